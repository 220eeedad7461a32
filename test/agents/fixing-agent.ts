// A scripted agent for the transcripts of docs/first-hour.md. It has no model: it makes the same few steps for every prompt
// that begins with "fix", but makes them for real. It reads a file, runs the test, asks before it edits, and runs the test again.
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import {
  type AgentContext,
  agent,
  methods,
  ndJsonStream,
  type RequestPermissionResponse,
} from '@agentclientprotocol/sdk'

type Session = { id: string; cwd: string; turns: number }
const sessions = new Map<string, Session>()
const cost_usd = 0.0021

async function act(client: AgentContext, { id, cwd }: Session): Promise<void> {
  const update = (what: Record<string, unknown>) =>
    client.notify('session/update', { sessionId: id, update: what })
  const say = (text: string) =>
    update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } })
  const begin = (toolCallId: string, kind: string, more: object) =>
    update({ sessionUpdate: 'tool_call', toolCallId, title: kind, kind, status: 'in_progress', ...more })
  const finish = (toolCallId: string, status: 'completed' | 'failed', more: object = {}) =>
    update({ sessionUpdate: 'tool_call_update', toolCallId, status, ...more })
  async function test(toolCallId: string): Promise<boolean> {
    const command = 'node sum.test.mjs'
    await begin(toolCallId, 'execute', { rawInput: { command } })
    const error = await new Promise<string>((done) => {
      execFile(process.execPath, ['sum.test.mjs'], { cwd }, (failed, _out, err) =>
        done(failed ? (/AssertionError.*?: (.*)/.exec(err)?.[1] ?? failed.message) : ''),
      )
    })
    await finish(toolCallId, error ? 'failed' : 'completed', error ? { rawOutput: { error } } : {})
    return error === ''
  }

  const path = join(cwd, 'sum.mjs')
  await say('I look at the test first.')
  await begin('read', 'read', { locations: [{ path }], rawInput: { filePath: path } })
  const oldText = await readFile(path, 'utf8')
  await finish('read', 'completed')
  if (await test('test-1')) return await say('The test passes already.')
  const newText = oldText.replace('a - b', 'a + b')
  const content = [{ type: 'diff' as const, path, oldText, newText }]
  await begin('edit', 'edit', { locations: [{ path }] })
  const answer = await client.request(methods.client.session.requestPermission, {
    sessionId: id,
    toolCall: { toolCallId: 'edit', title: 'Edit sum.mjs', kind: 'edit' as const, content },
    options: [
      { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
      { optionId: 'no', name: 'Deny', kind: 'reject_once' },
    ],
  })
  const { outcome } = answer as RequestPermissionResponse
  if (outcome.outcome !== 'selected' || outcome.optionId !== 'yes') {
    await finish('edit', 'failed', { rawOutput: { error: 'not allowed' } })
    return await say('I leave it as it is.')
  }
  await writeFile(path, newText)
  await finish('edit', 'completed', { content })
  await say((await test('test-2')) ? 'The test passes now.' : 'The test still fails.')
}

const stdin = Readable.toWeb(process.stdin) as ReadableStream<Uint8Array>
agent({ name: 'fixing-agent' })
  .onRequest(methods.agent.initialize, ({ params }) => ({
    protocolVersion: params.protocolVersion,
    agentCapabilities: { loadSession: false },
    authMethods: [],
  }))
  .onRequest(methods.agent.session.new, ({ params }) => {
    const id = `agent-${crypto.randomUUID()}`
    sessions.set(id, { id, cwd: params.cwd, turns: 0 })
    return { sessionId: id }
  })
  .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
    const session = sessions.get(params.sessionId)
    if (!session) throw new Error('no such session')
    session.turns++
    const block = params.prompt[0]
    if (block?.type === 'text' && block.text.startsWith('fix')) await act(client, session)
    else {
      const text = 'sum() subtracted its arguments; now it adds them.'
      await client.notify('session/update', {
        sessionId: session.id,
        update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } },
      })
    }
    await client.notify('session/update', {
      sessionId: session.id,
      update: {
        sessionUpdate: 'usage_update',
        used: 900,
        size: 200_000,
        cost: { amount: cost_usd * session.turns, currency: 'USD' },
      },
    })
    return {
      stopReason: 'end_turn',
      _meta: { usage: { inputTokens: 860, outputTokens: 140, totalTokens: 1000 } },
    }
  })
  .onNotification(methods.agent.session.cancel, () => undefined)
  .connect(ndJsonStream(Writable.toWeb(process.stdout) as WritableStream<Uint8Array>, stdin))
// An agent ends with the process that started it.
process.stdin.on('end', () => process.exit(0))
