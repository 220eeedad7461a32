// The rules, together: what the tools may ask for. Rooms below are given; nothing here knows HTTP, MCP or argv.
import { createRate } from '../auth/rate.ts'
import { createSessionKeys, sessionSecret } from '../auth/session-keys.ts'
import type { Config, Credential } from '../config.ts'
import { Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'
import { sparsely } from '../log-sparsely.ts'
import type { DroidSide } from '../relay/droid-side.ts'
import { createRelay, type Relay } from '../relay/relay.ts'
import type { Runtime } from '../runtime/runtime.ts'
import { beginDroidCall } from '../store/callers.ts'
import type { Store } from '../store/open.ts'
import { allProjects } from '../store/projects.ts'
import { isOver } from '../store/sessions.ts'
import { createApprovals } from './approvals.ts'
import { createAudit } from './audit.ts'
import { createCallerRequests } from './caller-requests.ts'
import { createCallerTools, type SchemaCheck } from './caller-tools.ts'
import { createChanges } from './changes.ts'
import { type ClientInContainer, type Containers, createContainers } from './containers.ts'
import { createDiskWatch } from './disk/watch.ts'
import { createDispatch, type Dispatch } from './dispatch.ts'
import { createEventLog } from './event-log.ts'
import { createFormerLives } from './former-lives.ts'
import { layoutOf } from './layout.ts'
import { createLimits } from './limits.ts'
import type { Committed } from './log-writer.ts'
import { createModelUse, providerOf } from './model-use.ts'
import { createOptions } from './options.ts'
import { createProjects } from './projects.ts'
import { createReconcile } from './reconcile.ts'
import type { ScheduledCall } from './schedule-run.ts'
import { createScheduler } from './scheduler.ts'
import { createSchedules } from './schedules.ts'
import { createSerial } from './serial.ts'
import { createIdentities, type Identity } from './session-identity.ts'
import { createStorageGuard } from './session-storage.ts'
import { createSessionWait } from './session-wait.ts'
import { createSessions } from './sessions.ts'
import { createSupervision } from './supervision.ts'
import { createTokens } from './tokens.ts'
import { createUnsupervised } from './unsupervised.ts'
import { createWake } from './wake.ts'
import { createWorkspaces } from './workspaces.ts'

export type ManagersDeps = {
  home: string
  version: string
  config: Config
  credentials: ReadonlyMap<string, Credential>
  store: Store
  runtime: Runtime
  client: ClientInContainer
  log: Log
  /** Tokens went away together with a project. */
  forgetTokens: () => void
  /** What droids may call; it ends in the one door, which stands above. */
  droid: DroidSide<Identity>['droid']
  /** What schedules may call; it ends in the same door. */
  scheduled: ScheduledCall
  schema: SchemaCheck
  /** Told of everything that was committed to the event log. */
  onCommit: ((committed: Committed) => void)[]
}

/** A session never changes its project, and one that is gone is found to be so by whoever asks for more. */
function remembered(projectOf: (id: string) => Promise<string | undefined>) {
  const known = new Map<string, string>()
  return async (id: string): Promise<string | undefined> => {
    const found = known.get(id) ?? (await projectOf(id))
    if (found === undefined || known.has(id)) return found
    if (known.size >= 10_000) known.delete(known.keys().next().value!)
    known.set(id, found)
    return found
  }
}

/** Whose project an id belongs to, or projects; the door asks before it decides. */
type Owner = { what: string; projectOf: (id: string) => Promise<string | string[] | undefined> }

/** A heavier message of a droid counts as several. */
const messageWeight = 16 * 1024

export function createManagers(deps: ManagersDeps) {
  const { store, runtime, config, credentials, log } = deps
  const layout = layoutOf(deps.home)
  const serial = createSerial()
  const wake = createWake()
  const former = createFormerLives()
  const keys = createSessionKeys(sessionSecret(deps.home))
  const uid = config.container_uid ?? (process.getuid?.() || 1000)
  const owner = { uid, gid: uid }
  const identities = createIdentities({ store, keys })
  const storage = createStorageGuard({
    store,
    config,
    log,
    change: () => sessions.change,
    forget: forgetSessions,
  })
  const events = createEventLog({
    store,
    wake,
    session_mb: config.limits.session_mb,
    listeners: [identities.onCommit, storage, ...deps.onCommit, forgetRequests],
  })
  /** Nobody waits for what the droid of a session that is over had asked for. */
  function forgetRequests({ rows }: Committed): void {
    for (const { id } of rows.filter(({ status }) => isOver(status)))
      callerRequests
        .cancelAll(id)
        .catch((error: unknown) => log.warn('requests stay open', { session_id: id, error }))
  }
  const callerTools = createCallerTools({ store, schema: deps.schema })
  const callerRequests = createCallerRequests({ store, events, tools: callerTools, log })
  const common = { store, runtime, config, credentials, layout, serial, owner, log, keys, events, wake }
  const soon = (project_id: string): void => dispatch.soon(project_id)
  const disk = createDiskWatch({
    ...common,
    stop: async (project_id, reason) => {
      // A start may be cloning for minutes.
      serial.interrupt(project_id, new Fault('exhausted', reason))
      await sessions.failAll(project_id, reason)
      await containers.stop(project_id, 1)
    },
  })

  const projects = createProjects({
    ...common,
    beforeDelete: [async (project_id) => await relay.close(project_id)],
    afterDelete: [deps.forgetTokens],
  })
  const workspaces = createWorkspaces({
    ...common,
    projects,
    disk,
    inUse: (project_id, id) => sessions.inUse(project_id, id),
  })
  const sessions = createSessions({
    ...common,
    projects,
    workspaces,
    callerTools,
    requireFree: disk.requireFree,
    openRequests: callerRequests.open,
    soon,
    first: (command, row) => dispatch.first(command, row),
    toolsChanged: (project_id, session_id) => {
      callerTools.changed(session_id)
      relay.toolsChanged(project_id, session_id)
    },
    forget: forgetSessions,
  })
  /** Ends what is left of sessions in their container, and removes their journals. */
  function forgetSessions(project_id: string, ids: string[]): void {
    for (const session_id of ids)
      relay
        .supervisor(project_id)
        ?.send('forget', { session_id })
        // It learns at its next hello that nobody knows the session.
        .catch((error: unknown) =>
          log.debug('a session is not forgotten yet', { session_id, reason: messageOf(error) }),
        )
  }
  const fail = async (session_id: string, reason: string) => await sessions.over(session_id, 'failed', reason)
  const { per_container_per_second: per_second, per_container_burst: burst } = config.rate
  const messages = createRate({ per_second, burst })
  const warn = sparsely(log)
  const pace = (project_id: string, weight: number): number => {
    const taken = messages.take(project_id, 1 + Math.floor(weight / messageWeight))
    return taken.ok ? 0 : Math.ceil(taken.retry_after_seconds * 1000)
  }
  const relay: Relay = createRelay<Identity>({
    version: deps.version,
    log,
    pace,
    handlers: {
      ...createSupervision({
        ...common,
        former,
        soon,
        fail,
        outdated: (project_id, protocol) =>
          warn(project_id, 'a container has a client of another protocol version: restart it', {
            project_id,
            protocol,
          }),
      }),
      authenticate: identities.identify,
      droid: deps.droid,
    },
    http: (project_id, socket) => models.accept(project_id, socket),
  })
  const models = createModelUse({ ...common, sessions, identify: identities.identify, pace })
  const containers: Containers = createContainers({
    ...common,
    projects,
    client: deps.client,
    prepare: workspaces.prepare,
    listen: async (project_id) =>
      await relay.open(project_id, { directory: layout.socketDir(project_id), ...owner }),
    requireFree: disk.requireFree,
    onStop: (project_id) => sessions.failAll(project_id, 'the container was stopped'),
    supervisorExec: (project_id, { signal, user: _, ...request }) =>
      relay.supervisor(project_id)?.send('exec', request, { signal }),
  })
  const dispatch: Dispatch = createDispatch({
    ...common,
    former,
    relay,
    containers,
    fail,
    finish: async (session_id) => await sessions.over(session_id, 'completed', 'ended'),
    restart: sessions.restart,
    provider: async (project_id, droid) =>
      droid === 'shell' ? undefined : providerOf(common, await projects.require(project_id), droid),
  })
  const scheduler = createScheduler({
    store,
    log,
    call: deps.scheduled,
    follow: events.followSession,
    queue_limit: config.schedules.queue,
    keep_runs: config.schedules.history_runs,
  })
  const schedules = createSchedules({
    store,
    projects,
    workspaces,
    sessions,
    scheduler,
    history_days: config.schedules.history_days,
  })
  const audit = createAudit(store.db, log)
  const reconcile = createReconcile({
    ...common,
    projects,
    containers,
    every_seconds: config.reconcile_seconds,
    also: [
      dispatch.sweep,
      sessions.endIdle,
      callerRequests.expire,
      createUnsupervised({ ...common, relay, containers, sessions }),
      async () => await audit.expire(config.audit_days),
      schedules.expire,
    ],
    onGivenUp: sessions.failAll,
  })
  const approvals = createApprovals({ store, sessions, soon })

  let listening = false
  const owners: Record<string, Owner> = {
    project_id: { what: 'project', projectOf: async (id) => id },
    session_id: { what: 'session', projectOf: remembered(sessions.projectOf) },
    approval_id: { what: 'approval', projectOf: approvals.projectOf },
    schedule_id: { what: 'schedule', projectOf: schedules.projectsOf },
  }

  return {
    owners,
    projects,
    containers,
    workspaces,
    sessions,
    sessionWait: createSessionWait({ sessions, events, wake }),
    events,
    approvals,
    callerTools,
    callerRequests,
    identities,
    droidCalls: {
      begin: (session_id: string, call_id: string) => beginDroidCall(store.db, session_id, call_id),
    },
    schedules,
    scheduler,
    audit,
    reconcile,
    disk,
    tokens: createTokens({ store, requireProject: projects.require, forget: deps.forgetTokens }),
    changes: createChanges(workspaces),
    options: createOptions({ config, credentials, runtime }),
    limits: createLimits({ store, config, projects, sessions }),
    runtime,
    exec_output_bytes: config.exec_output_bytes,
    /** The sockets of all containers that may still run, so that their supervisors find us at once. */
    async listen() {
      listening = false
      for (const project of await allProjects(store.db))
        if (project.wanted === 'running' && !project.deleting_at)
          await relay.open(project.id, { directory: layout.socketDir(project.id), ...owner })
      listening = true
    },
    async relayReady() {
      if (!listening) throw new Fault('unavailable', 'the sockets of the containers are not open yet')
    },
    async close() {
      await scheduler.close()
      await reconcile.close()
      await disk.close()
      await dispatch.close()
      await relay.dispose()
      await models.close()
      callerRequests.stop()
      await events.close()
      await audit.close()
    },
  }
}
export type Managers = ReturnType<typeof createManagers>
