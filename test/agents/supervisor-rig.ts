// A real supervisor process and a small server that keeps what it is told in memory, for tests without Docker. The
// server can be closed and opened again at any instant; what was committed stays.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Fault } from '../../internal/fault.ts'
import { newSessionId } from '../../internal/ids.ts'
import { createLog } from '../../internal/log.ts'
import type { SupervisorEvent } from '../../internal/protocol/messages.ts'
import { createRelay, type Relay, type RelayHandlers } from '../../internal/relay/relay.ts'
import type { SupervisorLink } from '../../internal/relay/supervisor-side.ts'

export type Rig = Awaited<ReturnType<typeof startRig>>
type Identity = { session_id: string }

const client = join(dirname(fileURLToPath(import.meta.url)), '../../cmd/oubliette-client/main.ts')
export const project_id = '00000000-0000-4000-8000-000000000001'

export async function until<T>(
  look: () => T | undefined | false,
  what: string,
  timeout_ms = 20_000,
): Promise<T> {
  const deadline = Date.now() + timeout_ms
  for (;;) {
    const found = look()
    if (found !== undefined && found !== false) return found
    if (Date.now() > deadline) throw new Error(`waited ${timeout_ms} ms in vain for ${what}`)
    await delay(5)
  }
}

export async function startRig(
  options: {
    droid?: Partial<RelayHandlers<Identity>['droid']>
    /** Called around each commit; may break the connection. */
    on_events?: (phase: 'before' | 'after') => void
    env?: Record<string, string>
  } = {},
) {
  const root = mkdtempSync(join(tmpdir(), 'oubliette-rig-'))
  const directory = join(root, 'run')
  const store = new Map<string, SupervisorEvent[]>()
  const keys = new Map<string, string>()
  const problems: string[] = []
  const boots: string[] = []
  const refuse = async (): Promise<never> => {
    throw new Fault('not_found', 'not in this test')
  }
  const handlers: RelayHandlers<Identity> = {
    async supervisorHello(_project, hello) {
      boots.push(hello.boot_id)
      const known = hello.sessions.filter(({ session_id }) => store.has(session_id))
      return {
        committed: Object.fromEntries(
          known.map(({ session_id }) => [session_id, store.get(session_id)!.length - 1]),
        ),
        unknown: hello.sessions.map((it) => it.session_id).filter((it) => !store.has(it)),
        unknown_execs: [],
        settled_execs: [],
      }
    },
    supervisorReady() {},
    supervisorGone() {},
    execsEnded: async (_project, { execs }) => ({ settled: execs.map((it) => it.exec_id) }),
    supervisorOutdated: (_project, protocol) => void problems.push(`protocol ${protocol}`),
    async events(_project, { session_id, events }) {
      options.on_events?.('before')
      const kept = store.get(session_id)
      if (!kept) return { unknown: true }
      for (const event of events) {
        if (event.seq < kept.length) continue
        if (event.seq > kept.length) problems.push(`gap: ${event.seq} after ${kept.length - 1}`)
        kept.push(event)
      }
      options.on_events?.('after')
      return { committed_seq: kept.length - 1 }
    },
    async authenticate(_project, api_key) {
      const session_id = keys.get(api_key)
      if (!session_id) throw new Fault('unauthenticated', 'unknown or expired key')
      return { session_id }
    },
    droid: {
      oubliette_tools: async () => ({ tools: [] }),
      caller_tools: async () => ({ tools: [] }),
      oubliette_call_tool: refuse,
      caller_tool: refuse,
      session_message: refuse,
      session_events: refuse,
      ...options.droid,
    },
  }

  let relay: Relay
  const openServer = async () => {
    relay = createRelay({ handlers, version: 'test', log: createLog({ level: 'error' }) })
    await relay.open(project_id, { directory, uid: process.getuid!(), gid: process.getgid!() })
  }
  const link = (timeout_ms = 10_000): Promise<SupervisorLink> =>
    relay.waitForSupervisor(project_id, { timeout_ms })
  let child: ChildProcess | undefined
  const startSupervisor = () => {
    child = spawn(process.execPath, [client, 'supervise'], {
      env: {
        ...process.env,
        OUBLIETTE_SOCKET: join(directory, 'relay.sock'),
        OUBLIETTE_STATE_DIR: join(root, 'state'),
        ...options.env,
      },
      stdio: ['ignore', 'inherit', process.env.RIG_LOG ? 'inherit' : 'ignore'],
    })
  }
  const killSupervisor = async (signal: NodeJS.Signals = 'SIGKILL') => {
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill(signal)
    await gone
  }
  await openServer()
  startSupervisor()

  const events = (session_id: string) => store.get(session_id) ?? []
  return {
    root,
    directory,
    store,
    keys,
    problems,
    boots,
    link,
    openServer,
    closeServer: () => relay.dispose(),
    relay: () => relay,
    startSupervisor,
    killSupervisor,
    supervisorPid: () => child!.pid!,
    events,
    newSession() {
      const session_id = newSessionId() as string
      store.set(session_id, [])
      const api_key = `key-${session_id}`
      keys.set(api_key, session_id)
      return { session_id, api_key }
    },
    text: (session_id: string, stream = 'stdout') =>
      events(session_id)
        .filter((it) => it.type === 'delta' && it.stream === stream)
        .map((it) => it.text)
        .join(''),
    completion: (session_id: string, turn_id: string, timeout_ms?: number) =>
      until(
        () => events(session_id).find((it) => it.type === 'completion' && it.turn_id === turn_id),
        `the completion of ${turn_id}`,
        timeout_ms,
      ),
    status: (session_id: string, status: string) =>
      until(
        () => events(session_id).findLast((it) => it.type === 'status' && it.status === status),
        `status ${status}`,
      ),
    async [Symbol.asyncDispose]() {
      await killSupervisor('SIGTERM')
      await relay.dispose()
      rmSync(root, { recursive: true, force: true })
    },
  }
}
