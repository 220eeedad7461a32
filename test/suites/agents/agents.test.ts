// Real agents, each in a container without a network, against the scripted model through the model proxy. Slow, and in
// need of their images: `./oubliette test --agents`.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type AgentWorld, agentCases, agentWorld } from '../../fixtures/agents/agents.ts'
import { findSecret } from '../../fixtures/attacks/secret-search.ts'
import {
  completionOf,
  type Event,
  expectGapFree,
  get,
  history,
  textOf,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { runCli } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'
import { prompt, type Step } from '../../models/script.ts'

const enabled = process.env.OUBLIETTE_TEST_AGENTS === '1'
/** Never the same word twice: some agents stop a model that repeats itself. */
const numbered = (letter: string, count: number) =>
  Array.from({ length: count }, (_, at) => `${letter}${at}`).join(' ')
const minutes = (count: number) => count * 60_000
let world: AgentWorld

beforeAll(async () => {
  if (enabled) world = await agentWorld()
})
afterAll(() => world?.stop())

const only = process.env.OUBLIETTE_TEST_AGENT
const cases = agentCases.filter(({ droid }) => only === undefined || droid === only)

describe.runIf(enabled).each(cases)('$droid', ({ droid, write, run, find = [], plan, whole_messages }) => {
  let project_id: string
  let session_id: string
  const caller_tools = [
    {
      name: 'note',
      description: 'Keeps a note.',
      inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    },
  ]

  beforeAll(async () => {
    project_id = await world.booted.project({ droid, model: 'test-model' })
    await world.booted.ok('container', { action: 'start', project_id })
  }, minutes(5))

  // What an agent did is the only way to understand why it did not do something else.
  afterEach(async ({ task }) => {
    if (task.result?.state !== 'fail' || !session_id) return
    const lines = (await events()).map((event) => JSON.stringify(event).slice(0, 400))
    const requests = world.model.asked.slice(-8).map(({ path, finished, conversation }) => {
      const tools = conversation?.tools.length
      return JSON.stringify({ path, finished, tools, last: conversation?.turns.at(-1)?.text.slice(-200) })
    })
    console.error([...lines.slice(-40), ...requests].join('\n'))
  })

  /** Sends a message, and gives its turn. */
  async function say(steps: Step[], more: object = {}): Promise<string> {
    const message = prompt(steps)
    const { turn_id } = await world.booted.ok('session', {
      action: 'message',
      session_id,
      message,
      ...more,
    })
    return String(turn_id)
  }
  /** The last request of a turn with this in it; titles, which are asked for on the side, come without tools. */
  const asked = (text: string) =>
    world.model.asked.findLast(
      ({ body, conversation }) => body.includes(text) && (conversation?.tools.length ?? 0) > 0,
    )!
  const events = () => history(world.booted, session_id)
  const ended = (turn_id: string, deadline_ms = minutes(2)): Promise<Event> =>
    until(async () => completionOf(await events(), turn_id), { deadline_ms, what: `turn ${turn_id} ends` })
  /** The model is in the middle of this answer, and the agent has told so, if it does. */
  const speaks = (text: string): Promise<unknown> =>
    until(
      async () =>
        whole_messages
          ? world.model.asked.some((it) => it.body.includes(text) && it.finished === undefined && it.told)
          : textOf(await events(), 'assistant').includes(text),
      { deadline_ms: minutes(1), what: `${droid} says ${text}` },
    )

  test(
    'takes a prompt, calls a tool of its caller and one of ours, edits a file, and reports each step as an event',
    async () => {
      const steps: Step[] = [
        ...find,
        ...(plan ? [plan] : []),
        { call: 'desk_note', args: { text: 'remember me' } },
        { call: 'oubliette_workspace', args: { action: 'list', project_id } },
        write('made.txt', `by ${droid}`),
        { think: 'That was all, I think.', say: 'Everything is in place now.' },
      ]
      const spawned = await world.booted.ok('session', {
        action: 'spawn',
        project_id,
        prompt: prompt(steps),
        new_session: true,
        caller_id: 'desk',
        caller_tools,
        api_scope: `project:${project_id}`,
      })
      session_id = spawned.session_id
      const request = await until(
        async () => (await events()).find((event) => event.type === 'caller_tool_request'),
        { deadline_ms: minutes(2), what: `${droid} calls the tool of its caller` },
      )
      expect(request).toMatchObject({ tool: 'note', arguments: { text: 'remember me' } })
      const { request_id } = request
      await world.booted.ok('caller_tool_response', {
        session_id,
        request_id,
        result: { kept: 'yes, kept' },
      })
      const completion = await ended(spawned.turn_id)
      expect(completion).toMatchObject({
        stop_reason: 'end_turn',
        final_text: 'Everything is in place now.',
      })

      const all = await events()
      expectGapFree(all, session_id)
      const kinds = new Set(all.map((event) => event.type))
      for (const kind of [
        'status',
        'message',
        'delta',
        'thought',
        'tool_call',
        'tool_result',
        'usage',
        'caller_tool_request',
        'caller_tool_result',
        'completion',
        ...(plan ? ['plan'] : []),
      ])
        expect(kinds, `events of ${droid}`).toContain(kind)
      expect(textOf(all, 'assistant')).toContain('Everything is in place now.')
      const file = await world.booted.ok('workspace', { action: 'read_file', project_id, path: 'made.txt' })
      expect(String(file.content).trimEnd()).toBe(`by ${droid}`)
      // What its tools answered came back to the model.
      const bodies = world.model.asked.map(({ body }) => body).join('\n')
      expect(bodies).toContain('yes, kept')
      expect(bodies).toContain('is_default')
      const session = await get(world.booted, session_id)
      expect(session.usage.input_tokens).toBeGreaterThanOrEqual(400)
      expect(session.usage.cost_usd).toBeGreaterThan(0)
    },
    minutes(5),
  )

  test(
    'takes a second message and remembers the first',
    async () => {
      const turn_id = await say([{ say: 'And this is the second answer.' }])
      expect(await ended(turn_id)).toMatchObject({
        stop_reason: 'end_turn',
        final_text: 'And this is the second answer.',
      })
      expect(asked('the second answer').body).toContain('remember me')
    },
    minutes(3),
  )

  test(
    'is cancelled in the middle of a turn, and the model with it',
    async () => {
      const turn_id = await say([{ say: `endless ${numbered('e', 2000)}`, every_ms: 30 }])
      await speaks('endless e0')
      await world.booted.ok('session', { action: 'cancel', session_id })
      expect(await ended(turn_id, 30_000)).toMatchObject({ stop_reason: 'cancelled' })
      const hungUp = () =>
        world.model.asked.some(({ body, finished }) => body.includes('endless e0') && finished === false)
      await until(hungUp, { what: 'the model is hung up on' })
      await untilStatus(world.booted, session_id, 'idle')
    },
    minutes(3),
  )

  test(
    'survives a SIGKILL of the server while a tool runs',
    async () => {
      const turn_id = await say([run('sleep 4; echo slept'), { say: 'Slept through it.' }])
      await until(
        async () => (await events()).some((event) => event.turn_id === turn_id && event.type === 'tool_call'),
        { deadline_ms: minutes(1), what: 'the tool runs' },
      )
      await world.booted.server.restart('SIGKILL')
      await world.booted.reconnect()
      expect(await ended(turn_id)).toMatchObject({
        stop_reason: 'end_turn',
        final_text: 'Slept through it.',
      })
      expectGapFree(await events(), session_id)
    },
    minutes(4),
  )

  test(
    'survives a SIGKILL of the server while its model streams',
    async () => {
      const turn_id = await say([{ say: `speaking ${numbered('n', 60)}`, every_ms: 50 }])
      await speaks('speaking n0')
      await world.booted.server.restart('SIGKILL')
      await world.booted.reconnect()
      expect(await ended(turn_id)).toMatchObject({ stop_reason: 'end_turn' })
      expect((await ended(turn_id)).final_text).toContain('n59')
      expectGapFree(await events(), session_id)
    },
    minutes(4),
  )

  // The second time it is a conversation that was resumed before.
  test.each(['Back again.', 'And once more.'])(
    'is resumed after its container was restarted, with its memory: %s',
    async (text) => {
      await world.booted.ok('container', { action: 'stop', project_id })
      await untilStatus(world.booted, session_id, 'failed')
      const turn_id = await say([{ say: text }])
      expect(await ended(turn_id)).toMatchObject({ stop_reason: 'end_turn', final_text: text })
      const all = await events()
      expectGapFree(all, session_id)
      expect(all.findLast((event) => event.type === 'status' && event.resumed !== undefined)).toMatchObject({
        resumed: true,
      })
      expect(asked(text).body).toContain('remember me')
    },
    minutes(4),
  )

  test(
    'is one command away',
    async () => {
      const { server, ok } = world.booted
      const { name } = await ok('project', { action: 'get', project_id })
      const said = prompt([{ say: 'Hello from the command line.' }])
      const { code, stdout } = await runCli(
        ['run', '--droid', droid, '--project', name, '--model', 'test-other', said],
        {
          OUBLIETTE_HOME: server.home,
          OUBLIETTE_ADDRESS: new URL(server.url).host,
          OUBLIETTE_ADMIN_TOKEN: server.admin_token,
        },
        minutes(2),
      )
      // Before it, some complain about a model that they do not know.
      expect({ code, last: stdout.trimEnd().split('\n').at(-1) }).toEqual({
        code: 0,
        last: 'Hello from the command line.',
      })
      expect(asked('from the command line').conversation?.model).toBe('test-other')
    },
    minutes(3),
  )
})

describe.runIf(enabled)('afterwards', () => {
  test(
    'the key is found nowhere but in the config of the server',
    async () => {
      const { found, looked } = await findSecret(world.booted, world.key)
      expect(found).toEqual([])
      expect(looked).toBeGreaterThan(50)
    },
    minutes(5),
  )

  test(
    'and the search would have found it',
    async () => {
      const project_id = await world.booted.project()
      await world.booted.ok('container', { action: 'start', project_id })
      await world.booted.exec(project_id, `echo ${world.key} > /tmp/planted`)
      expect((await findSecret(world.booted, world.key)).found.length).toBeGreaterThan(0)
    },
    minutes(5),
  )
})
