// The daemon: the one place where the rooms are wired together. What is started here is stopped in reverse order, within
// the deadline of the config, when SIGTERM or SIGINT arrives.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Caller } from '../../../internal/auth/caller.ts'
import { createLifetimes } from '../../../internal/auth/lifetimes.ts'
import { createOidc } from '../../../internal/auth/oidc.ts'
import { createOpenStreams } from '../../../internal/auth/open-streams.ts'
import { createRate } from '../../../internal/auth/rate.ts'
import { createTokenCheck } from '../../../internal/auth/tokens.ts'
import type { Settings } from '../../../internal/config/load.ts'
import { startWatchdog } from '../../../internal/event-loop/watchdog.ts'
import { lockHome } from '../../../internal/home-lock.ts'
import { createHttp } from '../../../internal/http/app.ts'
import { createLog, type Log } from '../../../internal/log.ts'
import { ensureAdminToken, onTokenChange, tokenSource } from '../../../internal/manager/access/tokens.ts'
import type { Committed } from '../../../internal/manager/events/log-writer.ts'
import { createPoison } from '../../../internal/manager/events/poison.ts'
import { createManagers, type Managers } from '../../../internal/manager/managers.ts'
import { createSessionNotices } from '../../../internal/mcp/notices.ts'
import { createMcp } from '../../../internal/mcp/serve.ts'
import { createDocker } from '../../../internal/runtime/docker/docker.ts'
import { createStage } from '../../../internal/runtime/stage.ts'
import { startEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { migrate } from '../../../internal/store/migrate.ts'
import { openStore } from '../../../internal/store/open.ts'
import { createMcpSessionRows } from '../../../internal/store/rows/mcp-sessions.ts'
import { endedAmong } from '../../../internal/store/rows/tokens.ts'
import { becomeSoleServer, instanceId, knownInstance } from '../../../internal/store/sole-server.ts'
import type { Door } from '../../../internal/tools/call-types.ts'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { createDoor } from '../../../internal/tools/door.ts'
import { createSocketDoor } from '../../../internal/tools/droid-calls.ts'
import { createFollow } from '../../../internal/tools/follow.ts'
import { createSchemaCheck } from '../../../internal/tools/schema/check.ts'
import { checkout } from '../command.ts'
import { installClient, removeOldClients } from './client.ts'
import { refuseNewEmbedded, refuseOther, rememberInstance } from './instance.ts'

const instructions =
  'Oubliette runs AI agents in containers. Make a project, then use its container, workspaces and sessions. Every tool takes an `action`; ids of earlier answers are the way to refer to things.'

/** What containers get parts of; they write to their own parts of the first. */
const mountedDirectories = [
  { name: 'projects', read_only: false },
  { name: 'sockets', read_only: true },
  { name: 'client', read_only: true },
]

const migrationSeconds = 3_600

/** Streams of tokens that were found to be gone end this much later. */
const goneTokensMs = 1_000

/** What closing the rooms may take, once the running calls have ended. */
const closeSeconds = 10

/** Nothing that is lost by it matters: every state is a row, and the next start recovers as after a kill. */
function endWithin(seconds: number, log: Log): void {
  setTimeout(() => {
    const open = process.getActiveResourcesInfo().join(', ')
    log.error(`failed to stop within ${seconds} s, exiting`, { open })
    process.exit(1)
  }, seconds * 1000).unref()
}

const version = (): string =>
  (JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as { version: string }).version

async function openDatabase(settings: Settings, log: Log, stack: AsyncDisposableStack) {
  const { home } = settings
  let { database_url } = settings
  if (!database_url) {
    refuseNewEmbedded(home)
    const embedded = await startEmbedded({ home, log })
    stack.defer(() => embedded.stop())
    database_url = embedded.url
  }
  const store = await openStore({
    database_url,
    log,
    timeout_seconds: settings.config.database_timeout_seconds,
  })
  stack.defer(() => store.close())
  // Before anything is written into a database that may be the wrong one.
  refuseOther(home, await knownInstance(store.db), settings.database_url === undefined)
  const sole = await becomeSoleServer(database_url, log)
  stack.defer(() => sole.release())
  // Changing large tables may take its time.
  const migrating = await openStore({
    database_url,
    log,
    max_connections: 2,
    timeout_seconds: migrationSeconds,
  })
  await migrate(migrating.db, log).finally(() => migrating.close())
  return { store, lost: sole.lost }
}

export async function serve(settings: Settings): Promise<void> {
  const { home, config } = settings
  const log = createLog(config.log)
  for (const warning of settings.warnings) log.warn(warning)
  const asked = Promise.race(['SIGTERM', 'SIGINT'].map((name) => once(process, name).then(() => name)))
  await using stack = new AsyncDisposableStack()
  const lock = lockHome(home)
  stack.defer(() => lock.release())

  const { store, lost } = await openDatabase(settings, log, stack)
  const instance = await instanceId(store.db)
  rememberInstance(home, instance)
  const stage = await createStage({ home, directories: mountedDirectories, log })
  stack.defer(() => stage.close())
  const runtime = createDocker({
    instance,
    docker_host: settings.docker_host,
    stage,
    network_pool: config.network_pool,
    allowed_networks: config.allowed_networks,
    dns_servers: config.dns_servers,
    images_dir: join(checkout, 'images'),
    log,
  })
  await runtime.ping()
  const watching = new AbortController()
  stack.defer(() => watching.abort())
  runtime.watch(watching.signal)

  await ensureAdminToken(store.db, home, settings.admin_token)
  const source = tokenSource(store.db, log)
  stack.defer(() => source.close())
  const tokens = createTokenCheck(source)
  const lifetimes = createLifetimes()
  stack.defer(() => lifetimes.close())
  const streams = createOpenStreams({ ...config.streams, lifetimes })
  const oidc = config.oidc && createOidc(config.oidc)
  const authenticate = async (bearer: string): Promise<Caller> =>
    oidc && bearer.split('.').length === 3 ? await oidc(bearer) : await tokens.check(bearer)

  const poison = await createPoison({ home, store, log })
  stack.defer(() => poison.close())
  if (config.watchdog_seconds > 0) {
    const watchdog = startWatchdog({ home, seconds: config.watchdog_seconds })
    stack.defer(() => watchdog.stop())
  }
  const schema = createSchemaCheck()
  stack.defer(() => schema.close())
  /** Tokens went away, and it is not known which; or those that were minted through these sessions. */
  function forgetTokens(session_ids?: ReadonlySet<string>): void {
    tokens.forget(session_ids)
    // The database tells which tokens end with a session.
    if (session_ids) return
    endedAmong(store.db, lifetimes.watched()).then(
      // In a moment: the call that deletes a project may be made with a token that goes with it, and is to be answered.
      (ended) => void setTimeout(() => lifetimes.revoke(ended), goneTokensMs).unref(),
      (error: unknown) => log.warn('failed to look for revoked tokens', { error }),
    )
  }

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
    droid: createSocketDoor(
      () => door,
      () => managers,
      lifetimes,
    ),
    scheduled: async (caller, args, more) =>
      await door.call('session', { caller, via: 'schedule', progress: () => undefined, ...more }, args),
    schema,
    onCommit: [(committed) => notify(committed)],
  })
  stack.defer(() => managers.close())

  const door: Door = createDoor({ tools, managers, lifetimes, log })
  const mcp = createMcp({
    door,
    server_info: { name: 'oubliette', version: version() },
    instructions,
    lifetimes,
    streams,
    rows: createMcpSessionRows(store.db),
    log,
  })
  // Before a container can say anything that a client is to be told.
  await mcp.load()
  notify = createSessionNotices({
    notify: mcp.notify,
    declaredBy: managers.callerTools.declaredBy,
    log,
  })
  const { rate } = config
  const http = createHttp({
    config,
    authenticate,
    rate: {
      requests: createRate({ per_second: rate.per_token_per_second, burst: rate.per_token_burst }),
      failures: createRate({
        per_second: rate.failures_per_address_per_minute / 60,
        burst: rate.failures_per_address_per_minute,
      }),
    },
    requests_at_once: rate.per_token_at_once,
    lifetimes,
    streams,
    mcp,
    follow: createFollow(managers),
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
    log,
  })
  const revoked = await onTokenChange(store, (token_id) => {
    managers.identities.forget()
    if (token_id === undefined) return forgetTokens()
    tokens.forget()
    lifetimes.revoke([token_id])
  })
  stack.defer(revoked)
  await managers.audit.settleAbandoned()
  await managers.listen()
  const { url } = await http.listen()
  stack.defer(() => http.close(config.shutdown_seconds))
  log.info('listening', { url, home, instance })
  managers.reconcile.start()
  await managers.scheduler.start({ sole: true })
  managers.disk.start()
  await managers.reconcile.once()
  await removeOldClients(home, client, runtime)

  const signal = await Promise.race([asked, lost])
  log.info('stopping', { signal })
  endWithin(config.shutdown_seconds + closeSeconds, log)
}
