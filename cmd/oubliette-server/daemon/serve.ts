// The daemon: the one place where the rooms are wired together. Each step starts its part and defers the stop of that part
// on one stack, so that SIGTERM or SIGINT stops them in reverse order, within the deadline of the config.
import { once } from 'node:events'
import { join } from 'node:path'
import { createRate } from '../../../internal/auth/rate.ts'
import type { Settings } from '../../../internal/config/load.ts'
import { startWatchdog } from '../../../internal/event-loop/watchdog.ts'
import { lockHome } from '../../../internal/home-lock.ts'
import { createHttp, type Http } from '../../../internal/http/app.ts'
import { createLog, type Log } from '../../../internal/log.ts'
import { captureConsole, createLogRing, type LogRing } from '../../../internal/log-ring.ts'
import type { Committed } from '../../../internal/manager/events/log-writer.ts'
import { createPoison } from '../../../internal/manager/events/poison.ts'
import { createManagers, type Managers } from '../../../internal/manager/managers.ts'
import { createSessionNotices } from '../../../internal/mcp/notices.ts'
import { createMcp, type Mcp } from '../../../internal/mcp/serve.ts'
import { createMetrics, type Metrics } from '../../../internal/metrics/metrics.ts'
import { createDocker } from '../../../internal/runtime/docker/docker.ts'
import type { Runtime } from '../../../internal/runtime/runtime.ts'
import { createStage } from '../../../internal/runtime/stage.ts'
import { createInspection, type Inspection } from '../../../internal/store/inspection/inspection.ts'
import type { Store } from '../../../internal/store/open.ts'
import { createMcpSessionRows } from '../../../internal/store/rows/mcp-sessions.ts'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { createDoor, type Door } from '../../../internal/tools/door.ts'
import { createDroidCalls } from '../../../internal/tools/droid/calls.ts'
import { createSchemaCheck } from '../../../internal/tools/schema/check.ts'
import { checkout, version } from '../command.ts'
import { type Auth, followRevocations, startAuth } from './auth.ts'
import { installClient, removeOldClients } from './client.ts'
import { openDatabase } from './database.ts'
import { addGauges, countEvents } from './metrics.ts'
import { closeSeconds } from './stop.ts'

const instructions =
  'Oubliette runs AI agents in containers. Create a project, then use its container, workspaces and sessions. Tools with several operations take an `action`. Refer to objects by the ids that earlier calls returned, and to projects also by name.'

/** Directories of the home of which containers mount parts. Containers write to `projects` only. */
const mountedDirectories = [
  { name: 'projects', read_only: false },
  { name: 'sockets', read_only: true },
  { name: 'client', read_only: true },
]

/** What every step of the start needs. */
type Start = {
  settings: Settings
  log: Log
  ring: LogRing
  stack: AsyncDisposableStack
  metrics: Metrics | undefined
}
type Below = { store: Store; runtime: Runtime; auth: Auth; inspection: Inspection }

async function startRuntime({ settings, log, stack }: Start, instance: string): Promise<Runtime> {
  const { home, config } = settings
  const stage = await createStage({ home, directories: mountedDirectories, log })
  stack.defer(() => stage.close())
  const runtime = createDocker({
    instance,
    docker_host: settings.docker_host,
    stage,
    network_pool: config.network_pool,
    allowed_networks: config.allowed_networks,
    dns_servers: config.dns_servers,
    images_dir: config.images_dir ?? join(checkout, 'images'),
    log,
  })
  await runtime.ping()
  const watching = new AbortController()
  stack.defer(() => watching.abort())
  runtime.watch(watching.signal)
  return runtime
}

/** The managers, the door in front of them, and MCP in front of the door. */
async function startRooms({ settings, log, ring, stack, metrics }: Start, below: Below) {
  const { store, runtime, auth, inspection } = below
  const { home, config } = settings
  const { lifetimes, streams, forgetTokens } = auth
  const poison = await createPoison({ home, store, log })
  stack.defer(() => poison.close())
  if (config.watchdog_seconds > 0) {
    const watchdog = startWatchdog({ home, seconds: config.watchdog_seconds })
    stack.defer(() => watchdog.stop())
  }
  const schema = createSchemaCheck()
  stack.defer(() => schema.close())

  const client = await installClient(home)
  let notify: (committed: Committed) => void = () => undefined
  const managers: Managers = createManagers({
    home,
    config,
    credentials: settings.credentials,
    store,
    poison,
    runtime,
    client,
    version: version(),
    log,
    forgetTokens,
    droid: createDroidCalls(
      () => door,
      () => managers,
    ),
    scheduled: async (caller, args, more) =>
      await door.call('session', { caller, via: 'schedule', progress: () => undefined, ...more }, args),
    schema,
    servers_directories: [process.cwd(), home],
    consent_url: `http://${config.address}/mcp-servers/consent`,
    diagnostics: {
      ring,
      inspection,
      database_kind: settings.database_url ? 'external' : 'embedded',
      sources: settings.sources,
      openStreams: streams.count,
    },
    onCommit: [(committed) => notify(committed), ...(metrics ? [countEvents(metrics)] : [])],
  })
  stack.defer(() => managers.close())

  const door: Door = createDoor({ tools, managers, lifetimes, measure: metrics?.call, log })
  if (metrics) addGauges(metrics, { managers, store, streams })
  const mcp = createMcp({
    door,
    server_info: { name: 'oubliette', version: version() },
    instructions,
    lifetimes,
    streams,
    rows: createMcpSessionRows(store.db),
    log,
  })
  // Before a container can send anything that is forwarded to a client.
  await mcp.load()
  notify = createSessionNotices({ notify: mcp.notify, declaredBy: managers.callerTools.declaredBy, log })
  return { managers, door, mcp, client }
}

function createHttpServer(
  { settings, log, metrics }: Start,
  { store, runtime, auth }: Below,
  { managers, door, mcp, server_id }: { managers: Managers; door: Door; mcp: Mcp; server_id: string },
): Http {
  const { config } = settings
  const { rate } = config
  return createHttp({
    config,
    authenticate: auth.authenticate,
    rate: {
      requests: createRate({ per_second: rate.per_token_per_second, burst: rate.per_token_burst }),
      failures: createRate({
        per_second: rate.failures_per_address_per_minute / 60,
        burst: rate.failures_per_address_per_minute,
      }),
    },
    requests_at_once: rate.per_token_at_once,
    lifetimes: auth.lifetimes,
    streams: auth.streams,
    mcp,
    door,
    finishConsent: managers.gateway.finishConsent,
    readiness: {
      database: { check: store.ping, refuses: ['every tool'] },
      engine: {
        check: async (signal) => void (await runtime.ping(signal)),
        refuses: [
          'container start',
          'container stop',
          'image_rebuild',
          'session spawn in stopped containers',
        ],
      },
      relay: managers.relayReady,
      disk: { check: async () => managers.disk.requireFree(), refuses: managers.disk.refused },
    },
    degraded: managers.degraded,
    metrics,
    server_id,
    log,
  })
}

/** An exit here loses nothing: every state is a row, and the next start recovers as after a kill. */
function exitAfter(seconds: number, log: Log): void {
  setTimeout(() => {
    const open = process.getActiveResourcesInfo().join(', ')
    log.error(`failed to stop within ${seconds} s, exiting`, { open })
    process.exit(1)
  }, seconds * 1000).unref()
}

export async function serve(settings: Settings): Promise<void> {
  const { home, config } = settings
  const ring = createLogRing(config.log.keep_lines)
  const log = createLog({ ...config.log, keep: ring.add })
  for (const warning of settings.warnings) log.warn(warning)
  const stopped = Promise.race(['SIGTERM', 'SIGINT'].map((name) => once(process, name).then(() => name)))
  await using stack = new AsyncDisposableStack()
  stack.defer(captureConsole(log))
  const metrics = config.metrics ? createMetrics() : undefined
  const start: Start = { settings, log, ring, stack, metrics }
  const lock = lockHome(home, config.address)
  stack.defer(() => lock.release())

  const { store, database_url, instance, lost } = await openDatabase(settings, log, stack)
  const inspection = createInspection({ store, database_url, instance, log })
  stack.defer(() => inspection.close())
  const runtime = await startRuntime(start, instance)
  const auth = await startAuth(settings, log, stack, store)
  const below: Below = { store, runtime, auth, inspection }
  const rooms = await startRooms(start, below)
  const { managers, client } = rooms
  const http = createHttpServer(start, below, { ...rooms, server_id: lock.server_id })
  stack.defer(await followRevocations(store, auth, managers))

  await managers.audit.settleAbandoned()
  await managers.listen()
  await managers.gateway.start()
  const { url } = await http.listen()
  stack.defer(() => http.close(config.shutdown_seconds))
  log.info('listening', { url, home, instance })
  managers.reconcile.start()
  await managers.scheduler.start({ sole: true })
  managers.disk.start()
  await managers.reconcile.once()
  await removeOldClients(home, client, runtime)

  const signal = await Promise.race([stopped, lost])
  log.info('stopping', { signal })
  exitAfter(config.shutdown_seconds + closeSeconds, log)
}
