// The example server, used by a droid through the gateway against a stand-in of LinkedIn: authorization, profile, and a post that a
// person approves.
import { randomUUID } from 'node:crypto'
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { escapeText } from '../../../examples/linkedin-server/linkedin.ts'
import { type Dialled, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { type LinkedInStandIn, startLinkedIn } from '../../fixtures/linkedin/stand-in.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const program = resolve(import.meta.dirname, '../../../examples/linkedin-server/main.ts')

let home: string
let linkedin: LinkedInStandIn
let booted: Booted
let project_id: string
let dialled: Dialled
const heard: string[] = []

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'oub-linkedin-'))
  linkedin = await startLinkedIn()
  const { client_id, client_secret, redirect_uri } = linkedin.client
  const entry = {
    command: process.execPath,
    args: [program],
    run: 'process',
    env: {
      LINKEDIN_CLIENT_ID: client_id,
      LINKEDIN_CLIENT_SECRET: '${env:LINKEDIN_CLIENT_SECRET}',
      LINKEDIN_REDIRECT_URI: redirect_uri,
      LINKEDIN_AUTH_URL: linkedin.url,
      LINKEDIN_API_URL: linkedin.url,
      LINKEDIN_TOKEN_FILE: join(home, 'linkedin-token.json'),
    },
  }
  await writeFile(join(home, 'mcp-servers.json'), JSON.stringify({ mcpServers: { linkedin: entry } }))
  booted = await boot({
    home,
    env: { LINKEDIN_CLIENT_SECRET: client_secret },
    config: { log: { level: 'debug' } },
  })
  project_id = await booted.project({ mcp_servers: ['linkedin'] })
  dialled = await dialAs(await droid(booted, project_id))
}, 60_000)
afterAll(async () => {
  dialled?.close()
  await booted?.stop()
  await linkedin?.stop()
  if (home) await rm(home, { recursive: true, force: true })
}, 60_000)

async function call(tool: string, args: object = {}): Promise<Answer> {
  const answer = await dialled.ask('oubliette_call_tool', {
    tool: `mcp__linkedin__linkedin_${tool}`,
    arguments: args,
    call_id: randomUUID(),
  })
  heard.push(JSON.stringify(answer))
  return (answer.result ?? answer) as Answer
}

/** The browser of a member who agrees: where LinkedIn sends it. */
async function consent(): Promise<{ code: string; state: string }> {
  const { structuredContent } = await call('generate_auth_url')
  const response = await fetch(structuredContent.url, { redirect: 'manual' })
  const location = new URL(response.headers.get('location') ?? '')
  return { code: location.searchParams.get('code')!, state: location.searchParams.get('state')! }
}

it('offers its four tools to a droid', async () => {
  const names = await until(
    async () => {
      const { result } = await dialled.ask('oubliette_tools')
      const found = ((result?.tools ?? []) as Answer[]).map(({ name }) => String(name))
      return found.length > 0 && found.filter((name) => name.startsWith('mcp__linkedin__'))
    },
    { what: 'its tools are listed', deadline_ms: 20_000 },
  )
  expect(names.toSorted()).toEqual([
    'mcp__linkedin__linkedin_exchange_code',
    'mcp__linkedin__linkedin_generate_auth_url',
    'mcp__linkedin__linkedin_post_text',
    'mcp__linkedin__linkedin_profile',
  ])
})

it('says what to do before it is authorized', async () => {
  const answer = await call('profile')
  expect(answer.isError).toBe(true)
  expect(JSON.stringify(answer.content)).toContain('linkedin_generate_auth_url')
})

it('refuses a foreign state, and uses a state and a code once', async () => {
  const { code } = await consent()
  expect(await call('exchange_code', { code, state: 'x'.repeat(32) })).toMatchObject({ isError: true })
  const second = await consent()
  const done = await call('exchange_code', second)
  expect(done.structuredContent).toMatchObject({ expires_in: 5_184_000 })
  expect(await call('exchange_code', second)).toMatchObject({ isError: true })
  const third = await consent()
  const used = await call('exchange_code', { code: second.code, state: third.state })
  expect(JSON.stringify(used)).toContain('authorization code not found')
  expect((await stat(join(home, 'linkedin-token.json'))).mode & 0o777).toBe(0o600)
})

it('returns the profile, also after its process was ended', async () => {
  expect((await call('profile')).structuredContent).toMatchObject({ name: 'Ada Lovelace', sub: 'Ab_12-x' })
  await booted.ok('mcp_server', { action: 'restart', name: 'linkedin' })
  expect((await call('profile')).structuredContent).toMatchObject({ name: 'Ada Lovelace' })
})

it('posts once a person has allowed it, and exactly once', async () => {
  const text = 'We count (really) 100 % of calls #mcp @home'
  const posting = call('post_text', { text })
  const asked = await until(
    async () => {
      const { approvals } = await booted.ok('approval', { action: 'list', status: 'open', project_id })
      return approvals.find(({ tool }: Answer) => tool === 'linkedin_post_text')
    },
    { what: 'the post is asked' },
  )
  expect(asked.arguments).toMatchObject({ text })
  expect(linkedin.posts).toEqual([])
  await booted.ok('approval', { action: 'decide', approval_id: asked.approval_id, decision: 'allow' })
  expect((await posting).structuredContent.id).toMatch(/^urn:li:share:\d+$/)
  expect(linkedin.posts).toMatchObject([
    {
      author: 'urn:li:person:Ab_12-x',
      commentary: 'We count \\(really\\) 100 % of calls #mcp \\@home',
      visibility: 'PUBLIC',
    },
  ])
  expect(escapeText('# a_b')).toBe('\\# a\\_b')
})

it('shows neither its secret nor its token', async () => {
  const shown = [
    ...heard,
    JSON.stringify(await booted.ok('mcp_server', { action: 'get', name: 'linkedin' })),
    booted.server.log(),
    JSON.stringify(await booted.query('select * from upstream_calls')),
    JSON.stringify(await booted.query('select * from audit')),
  ].join('\n')
  expect(shown).toContain('Ada Lovelace')
  expect(linkedin.tokens.size).toBe(1)
  for (const secret of [linkedin.client.client_secret, ...linkedin.tokens])
    expect(shown).not.toContain(secret)
})
