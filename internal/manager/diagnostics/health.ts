// What the running server does, in figures: its process, its event loop, the database, the engine, the sessions.
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { Config, Credential } from '../../config/load.ts'
import { messageOf } from '../../fault.ts'
import type { Relay } from '../../relay/relay.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import { countSchedules } from '../../store/rows/schedule/schedules.ts'
import { countCommands } from '../../store/rows/session/commands.ts'
import { countSessions } from '../../store/rows/session/sessions.ts'

const mebibyte = 1024 * 1024
const checkMs = 3000

type Deps = {
  store: Store
  runtime: Runtime
  config: Config
  credentials: ReadonlyMap<string, Credential>
  version: string
  /** Embedded, or the one of DATABASE_URL. */
  database_kind: 'embedded' | 'external'
  freeDiskMb: () => number | null
  relay: Pick<Relay, 'counts'>
  /** Event streams that are open. */
  openStreams: () => number
}

type Checked = { ok: boolean; latency_ms: number; reason: string | null }

async function timed<T>(check: () => Promise<T>): Promise<Checked & { value: T | undefined }> {
  const began = performance.now()
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error(`no answer within ${checkMs / 1000} s`)), checkMs)
  const latency_ms = () => Math.round((performance.now() - began) * 100) / 100
  try {
    const value = await Promise.race([check(), late.promise])
    return { ok: true, latency_ms: latency_ms(), reason: null, value }
  } catch (error) {
    return { ok: false, latency_ms: latency_ms(), reason: messageOf(error), value: undefined }
  } finally {
    clearTimeout(timer)
  }
}

export function createHealth(deps: Deps) {
  const { store, runtime } = deps
  const delay = monitorEventLoopDelay({ resolution: 20 })
  delay.enable()

  async function health() {
    const [database, engine, sessions, schedules] = await Promise.all([
      timed(() => store.ping()),
      timed(() => runtime.ping()),
      timed(() => countSessions(store.db)),
      timed(() => countSchedules(store.db)),
    ])
    const memory = process.memoryUsage()
    const milliseconds = (nanoseconds: number) => Math.round(nanoseconds / 10_000) / 100
    return {
      version: deps.version,
      node: process.versions.node,
      uptime_seconds: Math.round(process.uptime()),
      memory: {
        rss_mb: Math.round(memory.rss / mebibyte),
        heap_used_mb: Math.round(memory.heapUsed / mebibyte),
        heap_total_mb: Math.round(memory.heapTotal / mebibyte),
      },
      event_loop_delay_ms: {
        p50: milliseconds(delay.percentile(50)),
        p99: milliseconds(delay.percentile(99)),
        max: milliseconds(delay.max),
      },
      database: {
        kind: deps.database_kind,
        ok: database.ok,
        latency_ms: database.latency_ms,
        reason: database.reason,
      },
      engine: {
        ok: engine.ok,
        latency_ms: engine.latency_ms,
        reason: engine.reason,
        version: engine.value?.version ?? null,
      },
      disk: { free_mb: deps.freeDiskMb(), min_free_mb: deps.config.min_free_disk_mb },
      pool: store.pool(),
      relay: deps.relay.counts(),
      streams: { open: deps.openStreams(), max: deps.config.streams.per_server },
      sessions: sessions.value ?? null,
      schedules: schedules.value ?? null,
      providers: [...new Set([...deps.credentials.values()].map(({ provider }) => String(provider)))].sort(),
    }
  }

  /** Figures of the database, within a deadline; undefined if it does not answer. */
  const figures = {
    sessions: async () => (await timed(() => countSessions(store.db))).value,
    schedules: async () => (await timed(() => countSchedules(store.db))).value,
    commands: async () => (await timed(() => countCommands(store.db))).value,
  }
  return { health, figures, close: () => delay.disable() }
}
