// Questions of upstream servers: an elicitation and an OAuth consent that were asked before a kill are answered after it, and
// the call then runs once.
import { randomUUID } from 'node:crypto'
import { inputRequired } from '@modelcontextprotocol/server'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { dialAs, droid } from '../../fixtures/droid-socket.ts'
import {
  reading,
  type ScriptedServer,
  startScripted,
  textResult,
  tool,
} from '../../fixtures/gateway/scripted-server.ts'
import { type OAuthServer, startOAuthServer } from '../../fixtures/upstream/oauth-server.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let upstream: ScriptedServer
let oauth: OAuthServer
let project_id: string

beforeAll(async () => {
  upstream = await startScripted({ era: 'modern', tools: [tool('deploy', reading)] })
  oauth = await startOAuthServer()
  booted = await boot({ config: { log: { level: 'info' } } })
  project_id = await booted.project({ mcp_servers: ['asking', 'guarded'] })
})
afterAll(async () => {
  await booted?.stop()
  await upstream?.stop()
  await oauth?.stop()
})

const openApproval = async (kind: string): Promise<Answer> =>
  await until(
    async () => {
      const { approvals } = await booted.ok('approval', { action: 'list', status: 'open' })
      return approvals.find((one: Answer) => one.kind === kind)
    },
    { what: `an approval of kind ${kind} is open` },
  )
async function killAndRestart(): Promise<void> {
  await booted.server.restart('SIGKILL')
  await booted.reconnect()
}

it('parks a call that needs input, and continues it with the answer and the unchanged state', async () => {
  const request_state = 'state "of" the call\n✓'
  upstream.answers.deploy = async (params) => {
    const { confirm } = (params.inputResponses ?? {}) as { confirm?: { content?: object } }
    if (confirm) return textResult(JSON.stringify({ confirm, state: params.requestState }))
    return inputRequired({
      inputRequests: {
        confirm: inputRequired.elicit({
          message: 'Deploy?',
          requestedSchema: { type: 'object', properties: { sure: { type: 'boolean' } }, required: ['sure'] },
        }),
      },
      requestState: request_state,
    }) as Answer
  }
  await booted.ok('mcp_server', { action: 'add', name: 'asking', transport: 'http', url: upstream.url })
  const one = await droid(booted, project_id)
  const call = { tool: 'mcp__asking__deploy', arguments: {}, call_id: randomUUID() }
  const first = await dialAs(one)
  void first.ask('oubliette_call_tool', call)
  const asked = await openApproval('elicitation')
  expect(JSON.stringify(asked)).toContain('Deploy?')
  await killAndRestart()
  first.close()
  await booted.ok('approval', {
    action: 'decide',
    approval_id: asked.approval_id,
    decision: 'allow',
    content: { sure: true },
  })
  const again = await dialAs(one)
  const { result } = await again.ask('oubliette_call_tool', call)
  again.close()
  const said = JSON.stringify(result)
  expect(said).toContain('sure')
  expect(JSON.parse(result!.content[0].text)).toMatchObject({
    confirm: { action: 'accept', content: { sure: true } },
    state: request_state,
  })
  expect(upstream.calls).toHaveLength(2)
})

it('asks for the consent of an OAuth server, and accepts it once, also after a kill', async () => {
  await booted.ok('mcp_server', {
    action: 'add',
    name: 'guarded',
    transport: 'http',
    url: oauth.url,
    options: { oauth: {} },
  })
  const { url } = await booted.ok('mcp_server', { action: 'auth', name: 'guarded' })
  const { code, state, iss } = oauth.consent(url)
  await killAndRestart()
  const back = new URL(new URL(url).searchParams.get('redirect_uri')!)
  expect(back.origin).toBe(booted.server.url)
  const answer = (query: object) => fetch(`${back}?${new URLSearchParams(query as Record<string, string>)}`)
  expect((await answer({ code, state: 'guessed' })).status).toBe(404)
  const accepted = await answer({ code, state, iss })
  expect([accepted.status, await accepted.text()]).toEqual([200, expect.stringContaining('guarded')])
  expect((await answer({ code, state, iss })).status).toBe(404)
  const call = { action: 'call', name: 'guarded', tool: 'echo', arguments: { message: 'authorized' } }
  expect(JSON.stringify(await booted.ok('mcp_server', call))).toContain('authorized')
  expect(await booted.ok('mcp_server', { action: 'get', name: 'guarded' })).toMatchObject({
    credentials: 'ok',
  })
  const rows = await booted.query<Answer>("select oauth from upstreams where name = 'guarded'")
  expect(rows[0]!.oauth).toMatch(/^[\w-]+\.\./)

  // Revoked at the other end: a new consent is asked in the inbox, not only a failing call.
  oauth.revoke()
  await booted.fault('mcp_server', call)
  const consent = await openApproval('consent')
  expect(consent).toMatchObject({ server: 'guarded' })
  expect(JSON.stringify(consent)).toContain(oauth.origin)
})
