import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { belonging } from '../../../internal/lib/process/processes.ts'
import type { Autonomy } from '../../../internal/protocol/messages.ts'
import { type Rig, startRig, until } from '../../fixtures/supervisor-rig.ts'

const agent = join(dirname(fileURLToPath(import.meta.url)), '../../agents/acp-agent.ts')
let count = 0
const id = (what: string) => `${what}-${process.pid}-${count++}`

async function start(
  rig: Rig,
  text: string,
  more: { autonomy?: Autonomy; resume?: { agent_session_id: string }; of?: string } = {},
) {
  const { session_id, api_key } = more.of
    ? { session_id: more.of, api_key: `key-${more.of}` }
    : rig.newSession()
  const turn_id = id('turn')
  await (await rig.link()).send('start_session', {
    command_id: id('cmd'),
    session_id,
    next_seq: rig.events(session_id).length,
    droid: {
      kind: 'acp',
      command: process.execPath,
      args: [agent],
      env: { ACP_AGENT_HOME: join(rig.root, 'memory') },
    },
    workspace_dir: rig.root,
    api_key,
    autonomy: more.autonomy ?? 'high',
    ...(more.resume ? { resume: more.resume } : {}),
    turn: { turn_id, text },
  })
  return { session_id, turn_id }
}
async function say(rig: Rig, session_id: string, text: string): Promise<string> {
  const turn_id = id('turn')
  await (await rig.link()).send('prompt', { command_id: id('cmd'), session_id, turn_id, text })
  return turn_id
}
const prompt = async (rig: Rig, session_id: string, text: string) =>
  rig.completion(session_id, await say(rig, session_id, text))
const types = (rig: Rig, session_id: string) => rig.events(session_id).map((it) => it.type)

describe('an agent that speaks ACP', { timeout: 60_000 }, () => {
  test('says things, and every kind of update becomes an event', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await start(rig, 'echo hello there')
    expect(await rig.completion(session_id, turn_id)).toMatchObject({
      final_text: 'hello there',
      stop_reason: 'end_turn',
      usage: { output_tokens: 1 },
    })
    expect(types(rig, session_id)).toEqual(['status', 'delta', 'message', 'usage', 'completion', 'status'])
    expect(rig.events(session_id)[0]).toMatchObject({
      status: 'running',
      resumed: false,
      agent_session_id: expect.any(String),
    })
    await prompt(rig, session_id, 'think')
    expect(types(rig, session_id).slice(6)).toEqual([
      'status',
      'thought',
      'plan',
      'usage',
      'update',
      'delta',
      'message',
      'usage',
      'completion',
      'status',
    ])
    expect(await prompt(rig, session_id, 'late')).toMatchObject({ final_text: 'early late' })
    await prompt(rig, session_id, 'slow 200 1')
    expect(rig.events(session_id).filter((it) => it.type === 'delta').length).toBeLessThan(60)
  })

  test('garbage, a huge line and a flood on stdout do no harm', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await start(rig, 'garbage')
    expect(await rig.completion(session_id, turn_id)).toMatchObject({ final_text: 'after the garbage' })
    expect(await prompt(rig, session_id, `huge ${40 * 1024 * 1024}`)).toMatchObject({
      final_text: 'after the huge line',
    })
    const told = rig.events(session_id).filter((it) => it.type === 'update')
    expect(told).toHaveLength(4)
    expect(JSON.stringify(told).length).toBeLessThan(5000)
    await prompt(rig, session_id, 'flood 20000')
    const text = rig
      .events(session_id)
      .filter((it) => it.type === 'delta')
      .map((it) => it.text)
      .join('')
    expect(text.endsWith(Array.from({ length: 20_000 }, (_, i) => `${i + 1}\n`).join(''))).toBe(true)
  })

  test('asks for permission, and autonomy or a caller answers', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await start(rig, 'ask read', { autonomy: 'low' })
    expect(await rig.completion(session_id, turn_id)).toMatchObject({ final_text: 'yes' })
    for (const [outcome, said] of [
      [{ outcome: 'deny' }, 'no'],
      [{ outcome: 'selected', option_id: 'always' }, 'always'],
    ] as const) {
      const turn = prompt(rig, session_id, 'ask edit')
      const asked = await until(
        () =>
          rig
            .events(session_id)
            .findLast((it, i, all) => it.type === 'permission_request' && i > all.length - 3),
        'the question',
      )
      await until(() => rig.events(session_id).at(-1)?.status === 'waiting', 'waiting')
      const request_id = String(asked.request_id)
      const link = await rig.link()
      await link.send('permission_answer', { command_id: id('cmd'), session_id, request_id, outcome })
      expect(await turn).toMatchObject({ final_text: said })
      await expect(
        link.send('permission_answer', { command_id: id('cmd'), session_id, request_id, outcome }),
      ).rejects.toMatchObject({ kind: 'not_found' })
    }
  })

  test('is cancelled when it listens, killed when it does not, and resumed by a new process', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await start(rig, 'slow 10000 10')
    await until(() => types(rig, session_id).includes('delta'), 'the first words')
    const link = await rig.link()
    await link.send('cancel', { command_id: id('cmd'), session_id })
    expect(await rig.completion(session_id, turn_id)).toMatchObject({ stop_reason: 'cancelled' })
    const hanging = prompt(rig, session_id, 'hang')
    await until(() => rig.events(session_id).some((it) => it.text === 'hanging'), 'the agent to hang')
    await link.send('cancel', { command_id: id('cmd'), session_id, grace_seconds: 0.3 })
    expect(await hanging).toMatchObject({ stop_reason: 'cancelled' })
    expect(await rig.status(session_id, 'failed')).toMatchObject({ signal: 'SIGKILL' })
    expect(belonging(`OUBLIETTE_SESSION_ID=${session_id}`)).toEqual([])

    const agent_session_id = String(
      rig.events(session_id).find((it) => it.agent_session_id)?.agent_session_id,
    )
    const before = rig.events(session_id).length
    const again = await start(rig, 'history', { of: session_id, resume: { agent_session_id } })
    const end = await rig.completion(session_id, again.turn_id)
    expect(end.final_text).toContain('slow 10000 10')
    expect(rig.events(session_id)[before]).toMatchObject({ resumed: true, agent_session_id })
    // The replayed past is not told a second time.
    expect(types(rig, session_id).slice(before)).toEqual([
      'status',
      'delta',
      'message',
      'usage',
      'completion',
      'status',
    ])
    await (await rig.link()).send('end', { command_id: id('cmd'), session_id })
    await rig.status(session_id, 'completed')
    expect(belonging(`OUBLIETTE_SESSION_ID=${session_id}`)).toEqual([])
  })

  test('that crashes or cannot be started ends its session with the reason', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await start(rig, 'crash 9')
    expect(await rig.completion(session_id, turn_id)).toMatchObject({
      stop_reason: 'error',
      final_text: 'about to crash',
    })
    expect(await rig.status(session_id, 'failed')).toMatchObject({
      exit_code: 9,
      reason: expect.stringContaining('scripted crash'),
    })
    const other = rig.newSession()
    const refused = (await rig.link()).send('start_session', {
      command_id: id('cmd'),
      session_id: other.session_id,
      droid: { kind: 'acp', command: 'no-such-agent' },
      workspace_dir: rig.root,
      turn: { turn_id: id('turn'), text: 'never' },
    })
    await expect(refused).rejects.toThrow('no-such-agent is not installed in this container')
  })
})

describe('the tools of a session', { timeout: 60_000 }, () => {
  test('are listed and called through MCP and the shell, over restarts of the server', async () => {
    const seen = new Map<string, number>()
    let offered = ['app_first']
    let release: (() => void) | undefined
    await using rig = await startRig({
      droid: {
        oubliette_tools: async () => ({ tools: [{ name: 'project', inputSchema: { type: 'object' } }] }),
        caller_tools: async () => ({
          tools: offered.map((name) => ({ name, description: name, inputSchema: { type: 'object' } })),
        }),
        oubliette_call_tool: async ({ session_id }, { tool, arguments: args }) => ({
          tool,
          args,
          session_id,
        }),
        caller_tool: async (_identity, { tool, call_id }, call) => {
          seen.set(call_id!, (seen.get(call_id!) ?? 0) + 1)
          call.progress({ progress: 1, message: 'asked' })
          // Only a call that was sent again is answered: the first one is still open when the server goes.
          if (tool === 'app_slow' && seen.get(call_id!) === 1)
            await new Promise<void>((resolve) => {
              release = resolve
            })
          return { content: [{ type: 'text', text: `answer of ${tool}` }] }
        },
      },
    })
    const { session_id, turn_id } = await start(rig, 'tools')
    expect(await rig.completion(session_id, turn_id)).toMatchObject({
      final_text: 'oubliette_project app_first',
    })
    expect(await prompt(rig, session_id, 'tool oubliette_project {"action":"list"}')).toMatchObject({
      final_text: JSON.stringify({ tool: 'project', args: { action: 'list' }, session_id }),
    })
    offered = ['app_slow']
    rig.relay().toolsChanged('00000000-0000-4000-8000-000000000001', session_id)
    expect(await prompt(rig, session_id, 'tools')).toMatchObject({ final_text: 'oubliette_project app_slow' })
    const slow_turn = await say(rig, session_id, 'tool app_slow {}')
    await until(() => seen.size === 1, 'the call')
    await rig.closeServer()
    release?.()
    await rig.openServer()
    expect((await rig.completion(session_id, slow_turn)).final_text).toContain('answer of app_slow')
    expect([...seen.values()]).toEqual([2])
    expect(types(rig, session_id)).toContain('tool_result')

    const shell = rig.newSession()
    const turn = {
      turn_id: id('turn'),
      text: `client() { ${process.execPath} ${join(dirname(agent), '../../cmd/oubliette-client/main.ts')} call "$@"; }
        client project '{"action":"get"}'; echo $?; client app_slow; client nothing; echo $?; OUBLIETTE_API_KEY=wrong client project; echo $?`,
    }
    await (await rig.link()).send('start_session', {
      command_id: id('cmd'),
      ...shell,
      droid: { kind: 'shell' },
      workspace_dir: rig.root,
      turn,
    })
    seen.set('x', 1)
    await until(() => seen.size === 3, 'the call from the shell')
    release?.()
    await rig.completion(shell.session_id, turn.turn_id, 40_000)
    const lines = rig.text(shell.session_id).trim().split('\n')
    expect(JSON.parse(lines[0]!)).toMatchObject({ tool: 'project', args: { action: 'get' } })
    expect(lines[1]).toBe('0')
    expect(JSON.parse(lines[2]!)).toMatchObject({ content: [{ text: 'answer of app_slow' }] })
    expect(JSON.parse(lines[3]!)).toMatchObject({ error: { kind: 'not_found' } })
    expect(lines[4]).toBe('1')
    expect(JSON.parse(lines[5]!)).toMatchObject({ error: { kind: 'unauthenticated' } })
    // None of them is left when the session is over.
    await (await rig.link()).send('end', { command_id: id('cmd'), session_id })
    await rig.status(session_id, 'completed')
    expect(belonging(`OUBLIETTE_SESSION_ID=${session_id}`)).toEqual([])
  })
})
