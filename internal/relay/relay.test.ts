import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { createConnection } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Fault } from '../fault.ts'
import { createLog } from '../log.ts'
import { createPeer, type Handlers, type Peer } from '../protocol/peer.ts'
import { protocolVersion } from '../protocol/wire.ts'
import { createRelay, type Relay, type RelayHandlers } from './relay.ts'

const session_id = 'gogol_00000000000000000000'
const here = { uid: process.getuid!(), gid: process.getgid!() }
let root: string
let relay: Relay
let outdated: number[]
let peers: Peer[]
const batches: unknown[] = []

const handlers: RelayHandlers<{ session_id: string }> = {
  supervisorHello: async () => ({
    committed: { [session_id]: 4 },
    unknown: [],
    unknown_execs: [],
    settled_execs: [],
  }),
  supervisorReady() {},
  supervisorGone() {},
  supervisorOutdated: (_project, protocol) => void outdated.push(protocol),
  execsEnded: async () => ({ settled: [] }),
  events: async (project_id, batch) => {
    batches.push({ project_id, ...batch })
    return { committed_seq: batch.events.at(-1)!.seq }
  },
  // The key of one container is worth nothing in the other.
  authenticate: async (project_id, api_key) => {
    if (api_key !== `key of ${project_id}`) throw new Fault('unauthenticated', 'unknown or expired key')
    return { session_id }
  },
  droid: {
    oubliette_tools: async (identity) => ({ tools: [], ...identity }),
    oubliette_call_tool: async () => {
      throw new Fault('forbidden', 'not in your scope')
    },
    caller_tools: async () => ({ tools: [] }),
    caller_tool: async (_identity, params) => params,
    session_message: async (_identity, params) => params,
    session_events: async (_identity, params) => params,
  },
}

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'relay-'))
  outdated = []
  peers = []
  relay = createRelay({ handlers, version: 'test', log: createLog({ write: () => {} }) })
  await relay.open('one', { directory: join(root, 'one'), ...here })
  await relay.open('two', { directory: join(root, 'two'), ...here })
})
afterEach(async () => {
  for (const peer of peers) peer.close()
  await relay.dispose()
  rmSync(root, { recursive: true })
})

async function dial(project: string, methods: Handlers = {}): Promise<Peer> {
  const socket = createConnection(join(root, project, 'relay.sock'))
  await once(socket, 'connect')
  const peer = createPeer(socket, { handlers: methods })
  peers.push(peer)
  return peer
}
const hello = (project: string, more: object = {}) => ({
  role: 'supervisor',
  protocol: protocolVersion,
  client_version: '1',
  proof: readFileSync(join(root, project, 'proof'), 'utf8'),
  boot_id: 'boot',
  sessions: [],
  ...more,
})

test("the socket and the proof belong to the container's user alone", async () => {
  expect(statSync(join(root, 'one/relay.sock')).mode & 0o777).toBe(0o600)
  expect(statSync(join(root, 'one/proof')).mode & 0o777).toBe(0o400)
  expect(statSync(join(root, 'one')).mode & 0o777).toBe(0o755)
  expect(readFileSync(join(root, 'one/proof'))).not.toEqual(readFileSync(join(root, 'two/proof')))
})

test('a path that is too long for a socket works all the same, and a stale socket is replaced', async () => {
  const directory = join(root, 'd'.repeat(120))
  await relay.open('long', { directory, ...here })
  const other = createRelay({ handlers, version: 'test', log: createLog({ write: () => {} }) })
  await other.open('long', { directory, ...here })
  await relay.close('long')
  // The first one's end leaves the second one's socket alone.
  expect(statSync(join(directory, 'relay.sock')).isSocket()).toBe(true)
  await other.dispose()
})

test('a supervisor says hello, is the only one, takes commands and delivers events', async () => {
  const waiting = relay.waitForSupervisor('one', { timeout_ms: 5000 })
  const supervisor = await dial('one', {
    ping: () => ({ now: new Date().toISOString() }),
    state: () => ({ nonsense: 1 }),
  })
  expect(await supervisor.request('hello', hello('one'))).toMatchObject({
    protocol: protocolVersion,
    committed: { [session_id]: 4 },
  })
  const link = await waiting
  expect(await link.send('ping', {})).toHaveProperty('now')
  await expect(link.send('state', {})).rejects.toMatchObject({ kind: 'invalid' })
  await expect((await dial('one')).request('hello', hello('one'))).rejects.toMatchObject({ kind: 'conflict' })

  const event = { seq: 5, type: 'delta', at: new Date().toISOString(), text: 'x', unknown_field: 1 }
  expect(await supervisor.request('events', { session_id, events: [event] })).toEqual({ committed_seq: 5 })
  expect(batches).toEqual([{ project_id: 'one', session_id, events: [event] }])
  await expect(
    supervisor.request('events', { session_id, events: [{ ...event, type: 'caller_tool_request' }] }),
  ).rejects.toMatchObject({ kind: 'invalid' })
  await expect(supervisor.request('oubliette_tools', { api_key: 'key of one' })).rejects.toMatchObject({
    kind: 'forbidden',
  })
  supervisor.close()
  await expect.poll(() => relay.supervisor('one')).toBeUndefined()
  await expect(relay.waitForSupervisor('one', { timeout_ms: 20 })).rejects.toMatchObject({ kind: 'timeout' })
  await (await dial('one')).request('hello', hello('one'))
})

test('a wrong proof and another protocol are refused with a sentence', async () => {
  const peer = await dial('one')
  await expect(peer.request('hello', hello('one', { proof: 'wrong' }))).rejects.toMatchObject({
    kind: 'unauthenticated',
  })
  await expect(peer.request('hello', { role: 'supervisor', protocol: 99 })).rejects.toThrow(
    /the client uses protocol version 99/,
  )
  expect(outdated).toEqual([99])
  await expect(peer.request('events', { session_id, events: [] })).rejects.toMatchObject({
    kind: 'unauthenticated',
  })
})

test("a droid's programs are known by their key, on their own socket only, with the codes of the contract", async () => {
  const peer = await dial('one')
  const code = (request: Promise<unknown>) =>
    request.then(
      () => 0,
      (error) => ((error as Fault).cause as { code: number }).code,
    )
  expect(await code(peer.request('oubliette_tools', {}))).toBe(-32001)
  expect(await code(peer.request('oubliette_tools', { api_key: 'key of two' }))).toBe(-32001)
  expect(await peer.request('oubliette_tools', { api_key: 'key of one' })).toEqual({ tools: [], session_id })
  expect(await code(peer.request('no_such_method', {}))).toBe(-32601)
  expect(await code(peer.request('caller_tool', { api_key: 'key of one', tool: 7 }))).toBe(-32602)
  expect(await code(peer.request('caller_tools', { api_key: 'key of one', other: 1 }))).toBe(-32602)
  expect(await code(peer.request('oubliette_call_tool', { api_key: 'key of one', tool: 'token' }))).toBe(
    -32002,
  )
  // The key of a hello serves for what follows on this connection.
  expect(await code(peer.request('hello', { role: 'droid', api_key: 'key of two' }))).toBe(-32001)
  expect(await code(peer.request('caller_tools', {}))).toBe(-32001)
  await peer.request('hello', { role: 'droid', api_key: 'key of one' })
  expect(await peer.request('caller_tool', { tool: 'app_x' })).toEqual({ tool: 'app_x', arguments: {} })
})

test('news about tools reach the connections of the session they concern', async () => {
  const heard: string[] = []
  const listen = (name: string) => ({ tools_changed: () => void heard.push(name) })
  const known = await dial('one', listen('known'))
  await dial('one', listen('stranger'))
  await known.request('hello', { role: 'droid', api_key: 'key of one' })
  relay.toolsChanged('one', 'gogol_11111111111111111111')
  relay.toolsChanged('two')
  relay.toolsChanged('one', session_id)
  await expect.poll(() => heard).toEqual(['known'])
})

test('a disposed relay opens nothing, and leaves nothing open', async () => {
  const late = relay.open('three', { directory: join(root, 'three'), ...here })
  rmSync(join(root, 'one', 'relay.sock'))
  const renewed = relay.open('one', { directory: join(root, 'one'), ...here })
  await relay.dispose()
  await Promise.all([late, renewed])
  for (const name of ['one', 'two', 'three']) {
    const directory = join(root, name)
    expect(existsSync(join(directory, 'relay.sock'))).toBe(false)
    await expect(relay.open(name, { directory, ...here })).rejects.toMatchObject({ kind: 'unavailable' })
    expect(existsSync(join(directory, 'relay.sock'))).toBe(false)
  }
})
