// Many tools: agents that load every definition get a search instead, which stays small and fast, and behind which the same
// rules hold.
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Dialled, type Droid, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { reading, type ScriptedServer, startScripted, tool } from '../../fixtures/gateway/scripted-server.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
let searching: Dialled
let listing: Dialled
const servers: ScriptedServer[] = []

const verbs = ['create', 'list', 'delete', 'update', 'search']
const nouns = [
  'issue',
  'invoice',
  'customer',
  'calendar_event',
  'pull_request',
  'ticket',
  'contact',
  'folder',
  'message',
  'deployment',
]

beforeAll(async () => {
  booted = await boot({
    config: {
      droids: {
        // A shell that is taken for an agent which loads every definition.
        loader: { kind: 'acp', command: 'sleep', args: ['900'], agent: 'opencode' },
      },
    },
  })
  const names = Array.from({ length: 10 }, (_, at) => `service${at}`)
  project_id = await booted.project({ mcp_servers: names })
  for (const [at, name] of names.entries()) {
    const tools = verbs.flatMap((verb) =>
      nouns.map((noun) =>
        tool(`${verb}_${noun}`, {
          ...reading,
          description: `${verb} a ${noun.replaceAll('_', ' ')} in service number ${at}. ${'More words about it. '.repeat(5)}`,
          inputSchema: {
            type: 'object',
            properties: { [`${noun}_id`]: { type: 'string', description: `Identifier of the ${noun}` } },
          },
        }),
      ),
    )
    if (at === 3)
      tools.push(
        tool('translate_text', { ...reading, description: 'Translates text into another language.' }),
      )
    const server = await startScripted({ tools })
    servers.push(server)
    await booted.ok('mcp_server', { action: 'add', name, transport: 'http', url: server.url })
  }
  const one = await droid(booted, project_id)
  listing = await dialAs(one)
  // The same key with the droid of another kind: what counts is the name of the droid of the session.
  const two: Droid = await droid(booted, project_id)
  await booted.query("update sessions set droid = 'loader' where id = $1", [two.session_id])
  searching = await dialAs(two)
})
afterAll(async () => {
  listing?.close()
  searching?.close()
  await booted?.stop()
  for (const server of servers) await server.stop()
})

const list = async (dialled: Dialled): Promise<Answer[]> =>
  (await dialled.ask('oubliette_tools')).result!.tools
const find = async (query: string, more: object = {}): Promise<Answer[]> => {
  const { result, error } = await searching.ask('oubliette_call_tool', {
    tool: 'find_tools',
    arguments: { query, ...more },
  })
  if (error) throw new Error(error.message)
  return result!.tools
}

it('lists 501 tools to a droid that can handle them, and two to one that loads every definition', async () => {
  expect(await list(listing)).toHaveLength(501)
  const two = await list(searching)
  expect(two.map(({ name }) => name)).toEqual(['find_tools', 'call_tool'])
  expect(countTokens(JSON.stringify(two))).toBeLessThanOrEqual(2000)
  expect(countTokens(JSON.stringify(await list(listing)))).toBeGreaterThan(20_000)
})

it.each([
  ['translate', 'mcp__service3__translate_text'],
  ['another language', 'mcp__service3__translate_text'],
  ['tranlate txt', 'mcp__service3__translate_text'],
])('finds by %j first %s', async (query, name) => {
  expect((await find(query))[0]).toMatchObject({ name, inputSchema: { type: 'object' } })
})

it('ranks the name above the description, and restricts to a server and a number', async () => {
  const found = await find('create invoice', { limit: 10 })
  expect(found).toHaveLength(10)
  for (const { name } of found) expect(name).toMatch(/__create_invoice$/)
  const [only] = await find('create invoice', { server: 'service7', limit: 1 })
  expect(only).toMatchObject({ name: 'mcp__service7__create_invoice', server: 'service7' })
  expect(await find('zzzzqqqq xxyyzz')).toEqual([])
})

it('calls what it found, by the same rules', async () => {
  const call = async (args: object) =>
    (await searching.ask('oubliette_call_tool', { tool: 'call_tool', arguments: args })) as Answer
  const { result } = await call({ tool: 'mcp__service3__translate_text', arguments: { text: 'hi' } })
  expect(JSON.stringify(result)).toContain('hi')
  expect(
    (await call({ tool: 'mcp__service3__translate_text', arguments: { text: 1 } })).error.data.kind,
  ).toBe('invalid')
  expect((await call({ tool: 'mcp__service3__nothing' })).error.data.kind).toBe('not_found')
  expect((await call({ tool: 'project', arguments: { action: 'list' } })).error.data.kind).toBe('invalid')
  await booted.ok('project', { action: 'update', project_id, disabled_tools: ['mcp__service3'] })
  const hidden = async () => !(await find('translate')).some(({ name }) => name.startsWith('mcp__service3__'))
  await expect.poll(hidden, { timeout: 10_000 }).toBe(true)
  expect((await call({ tool: 'mcp__service3__translate_text' })).error.data.kind).toBe('forbidden')
  const rows = await booted.query<Answer>("select distinct action from audit where tool = 'mcp:service3'")
  expect(rows).toEqual([{ action: 'mcp_tool_call' }])
})

it('answers in a few milliseconds', async () => {
  const times: number[] = []
  for (let at = 0; at < 100; at++) {
    const began = performance.now()
    await find(`${verbs[at % 5]} ${nouns[at % 10]}`)
    times.push(performance.now() - began)
  }
  times.sort((a, b) => a - b)
  // In the server, without the socket; the audit has it.
  const inServer = await until(
    async () => {
      const [row] = await booted.query<Answer>(
        `select count(*)::int as calls, percentile_cont(0.5) within group (order by milliseconds) as p50
         from audit where tool = 'find_tools'`,
      )
      return row!.calls >= 100 && Number(row!.p50)
    },
    { what: 'the calls are audited' },
  )
  console.log(
    `find_tools over 501 tools: p50 ${inServer.toFixed(1)} ms in the server, ${times[50]!.toFixed(1)} ms with the socket`,
  )
  expect(inServer).toBeLessThanOrEqual(5)
})
