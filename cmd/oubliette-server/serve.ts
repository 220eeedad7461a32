// The daemon: the one place where the rooms are wired together. What is started here is stopped in reverse order, within
// the deadline of the config, when SIGTERM or SIGINT arrives.
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Caller } from '../../internal/auth/caller.ts'
import { createLifetimes } from '../../internal/auth/lifetimes.ts'
import { createOidc } from '../../internal/auth/oidc.ts'
import { createOpenStreams } from '../../internal/auth/open-streams.ts'
import { createRate } from '../../internal/auth/rate.ts'
import { createTokenCheck } from '../../internal/auth/tokens.ts'
import type { Settings } from '../../internal/config.ts'
import { lockHome } from '../../internal/home-lock.ts'
import { createHttp } from '../../internal/http/app.ts'
import { createLog, type Log } from '../../internal/log.ts'
import type { Committed } from '../../internal/manager/log-writer.ts'
import { createManagers, type Managers } from '../../internal/manager/managers.ts'
import { ensureAdminToken, onTokenChange, tokenSource } from '../../internal/manager/tokens.ts'
import { createDoor } from '../../internal/mcp/call.ts'
import type { Door } from '../../internal/mcp/door.ts'
import { createFollow } from '../../internal/mcp/follow.ts'
import { createSessionNotices } from '../../internal/mcp/notices.ts'
import { createSchemaCheck } from '../../internal/mcp/schema-check.ts'
import { createMcp } from '../../internal/mcp/serve.ts'
import { createSocketDoor } from '../../internal/mcp/socket.ts'
import { tools } from '../../internal/mcp/tools/index.ts'
import { createDocker } from '../../internal/runtime/docker.ts'
import { startEmbedded } from '../../internal/store/embedded.ts'
import { instanceId } from '../../internal/store/instance.ts'
import { migrate } from '../../internal/store/migrate.ts'
import { openStore } from '../../internal/store/open.ts'
import { endedAmong } from '../../internal/store/tokens.ts'
import { installClient, removeOldClients } from './client.ts'
import { checkout } from './command.ts'

const instructions =
  'Oubliette runs AI agents in containers. Make a project, then use its container, workspaces and sessions. Every tool takes an `action`; ids of earlier answers are the way to refer to things.'

const version = (): string =>
  (JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as { version: string }).version

async function openDatabase(settings: Settings, log: Log, stack: AsyncDisposableStack) {
  let database_url = settings.database_url
  if (!database_url) {
    const embedded = await startEmbedded({ home: settings.home, log })
    stack.defer(() => embedded.stop())
    database_url = embedded.url
  }
  const store = await openStore({ database_url, log })
  stack.defer(() => store.close())
  await migrate(store.db, log)
  return store
}

export async function serve(settings: Settings): Promise<void> {
  const { home, config } = settings
  const log = createLog(config.log)
  const asked = Promise.race(['SIGTERM', 'SIGINT'].map((name) => once(process, name).then(() => name)))
  await using stack = new AsyncDisposableStack()
  const lock = lockHome(home)
  stack.defer(() => lock.release())

  const store = await openDatabase(settings, log, stack)
  const instance = await instanceId(store.db)
  writeFileSync(join(home, 'instance-id'), `${instance}\n`, { mode: 0o600 })
  const runtime = createDocker({
    instance,
    docker_host: settings.docker_host,
    network_pool: config.network_pool,
    images_dir: join(checkout, 'images'),
    log,
  })
  await runtime.ping()

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

  /** Tokens went away, and it is not known which. */
  function forgetTokens(): void {
    tokens.forget()
    endedAmong(store.db, lifetimes.watched()).then(lifetimes.revoke, (error: unknown) =>
      log.warn('failed to look for revoked tokens', { error }),
    )
  }

  const client = await installClient(home)
  let notify: (committed: Committed) => void = () => undefined
  const managers: Managers = createManagers({
    home,
    config,
    credentials: settings.credentials,
    store,
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
    schema: createSchemaCheck(),
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
    log,
  })
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
      database: async (signal) => await store.ping(signal),
      engine: async (signal) => void (await runtime.ping(signal)),
      relay: managers.relayReady,
    },
    log,
  })
  const revoked = await onTokenChange(store, (token_id) => {
    managers.identities.forget()
    if (token_id === undefined) return forgetTokens()
    tokens.forget()
    lifetimes.revoke([token_id])
  })
  stack.defer(revoked)
  await managers.listen()
  const { url } = await http.listen()
  stack.defer(() => http.close(config.shutdown_seconds))
  log.info('listening', { url, home, instance })
  managers.reconcile.start()
  managers.disk.start()
  await managers.scheduler.start()
  await managers.reconcile.once()
  await removeOldClients(home, client, runtime)

  const signal = await asked
  log.info('stopping', { signal })
}
