// What one container may ask of the server at once, and how fast, all its connections together.
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createConnection, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createLog } from '../log.ts'
import { createPeer, type Peer } from '../protocol/peer.ts'
import { protocolVersion } from '../protocol/wire.ts'
import { createRelay, type Relay, type RelayHandlers } from './relay.ts'

let root: string
let relay: Relay
let peers: Peer[]
let wait_ms: Record<string, number>
let hanging: number

const handlers: RelayHandlers<{ session_id: string }> = {
  supervisorHello: async () => ({ committed: {}, unknown: [], unknown_execs: [], settled_execs: [] }),
  supervisorReady() {},
  supervisorGone() {},
  supervisorOutdated() {},
  execsEnded: async () => ({ settled: [] }),
  events: async (_project, { events }) => ({ committed_seq: events.at(-1)!.seq }),
  authenticate: async () => ({ session_id: 'gogol_00000000000000000000' }),
  droid: {
    oubliette_tools: async () => ({}),
    oubliette_call_tool: async () => ({}),
    caller_tools: async () => ({ tools: [] }),
    // Nobody answers it.
    caller_tool: (_identity, _params, { signal }) => {
      hanging += 1
      return new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => {
          hanging -= 1
          reject(signal.reason)
        }),
      )
    },
    session_message: async () => ({}),
    session_events: async (_identity, params) => params,
  },
}

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'relay-load-'))
  peers = []
  wait_ms = {}
  hanging = 0
  relay = createRelay({
    handlers,
    version: 'test',
    log: createLog({ write: () => {} }),
    container: { requests: 12, bytes: 1_000_000 },
    pace: (project_id) => wait_ms[project_id] ?? 0,
  })
  for (const project_id of ['one', 'two'])
    await relay.open(project_id, {
      directory: join(root, project_id),
      uid: process.getuid!(),
      gid: process.getgid!(),
    })
})
afterEach(async () => {
  for (const peer of peers) peer.close()
  await relay.dispose()
  rmSync(root, { recursive: true })
})

async function dial(project_id: string): Promise<{ socket: Socket; peer: Peer }> {
  const socket = createConnection(join(root, project_id, 'relay.sock'))
  await once(socket, 'connect')
  const peer = createPeer(socket, { handlers: {} })
  peers.push(peer)
  return { socket, peer }
}
async function supervisor(project_id: string): Promise<Peer> {
  const { peer } = await dial(project_id)
  const proof = readFileSync(join(root, project_id, 'proof'), 'utf8')
  const who = { role: 'supervisor', protocol: protocolVersion, client_version: '1', boot_id: 'boot' }
  await peer.request('hello', { ...who, proof, sessions: [] })
  return peer
}
const api_key = 'key'
const hang = (peer: Peer, times: number) => {
  for (let n = 0; n < times; n++)
    peer.request('caller_tool', { api_key, tool: 'app_x' }).catch(() => undefined)
}

test('what comes faster than its pace waits, in order; other containers and the supervisor do not', async () => {
  const boss = await supervisor('one')
  const [{ peer: slow }, { peer: other }] = [await dial('one'), await dial('two')]
  await slow.request('caller_tools', { api_key })
  wait_ms.one = 5
  const answered: number[] = []
  const asked = Array.from({ length: 100 }, (_, n) =>
    slow.request('caller_tools', { api_key }).then(() => void answered.push(n)),
  )
  await other.request('caller_tools', { api_key })
  const event = { seq: 1, type: 'error', at: new Date().toISOString(), message: 'x' }
  await boss.request('events', { session_id: 'gogol_00000000000000000000', events: [event] })
  expect(answered).toEqual([])
  wait_ms.one = 0
  await Promise.all(asked)
  expect(answered).toEqual(Array.from({ length: 100 }, (_, n) => n))
})

test('too many open requests together cost the connection that has the most', async () => {
  const boss = await supervisor('one')
  const [{ peer: greedy }, { peer: modest }, { peer: other }] = [
    await dial('one'),
    await dial('one'),
    await dial('two'),
  ]
  hang(other, 12)
  hang(greedy, 9)
  hang(modest, 3)
  await modest.request('hello', { role: 'droid', api_key })
  expect(greedy.open).toBe(true)
  hang(modest, 1)
  await greedy.closed
  await modest.request('caller_tools', { api_key })
  await other.request('caller_tools', { api_key })
  expect(boss.open).toBe(true)
})

test('requests without an id count as well, and end with their connection', async () => {
  const { peer } = await dial('one')
  for (let n = 0; n < 13; n++) peer.notify('caller_tool', { api_key, tool: 'app_x' })
  await peer.closed
  await expect.poll(() => hanging).toBe(0)
})

test('many small values costOfFrame what they take once they are parsed', async () => {
  const { peer } = await dial('one')
  const args = { list: Array.from({ length: 20_000 }, () => ({})) }
  peer.request('caller_tool', { api_key, tool: 'app_x', arguments: args }).catch(() => undefined)
  await peer.closed
})

test('a supervisor does not stand in line behind its droids', async () => {
  wait_ms.one = 60_000
  const { peer: droid } = await dial('one')
  droid.request('caller_tools', { api_key }).catch(() => undefined)
  expect((await supervisor('one')).open).toBe(true)
})

test('too many bytes that are on their way cost the connection that holds the most', async () => {
  const [big, small] = [await dial('one'), await dial('one')]
  small.socket.write(`{"x":"${'a'.repeat(400_000)}`)
  big.socket.write(`{"x":"${'a'.repeat(700_000)}`)
  await big.peer.closed
  expect(small.peer.open).toBe(true)
})
