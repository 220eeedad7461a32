// The rules, together: what the tools may ask for. Rooms below are given; nothing here knows HTTP, MCP or argv.
import { createHash } from 'node:crypto'
import { createRate } from '../auth/rate.ts'
import { createSessionKeys, sessionSecret } from '../auth/session-keys.ts'
import type { Config, Credential } from '../config/load.ts'
import { Fault, messageOf } from '../fault.ts'
import { createTrash } from '../files/trash.ts'
import { createKeyedQueue } from '../lib/keyed-queue.ts'
import { createThrottledWarn } from '../lib/throttled-log.ts'
import type { Log } from '../log.ts'
import type { DroidSide } from '../relay/droid-side.ts'
import { createRelay, type Relay } from '../relay/relay.ts'
import { onRequestPath } from '../relay/sniff.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { Store } from '../store/open.ts'
import { beginDroidCall } from '../store/rows/callers.ts'
import { allProjects, runningAmong } from '../store/rows/projects.ts'
import { projectsWithProcesses } from '../store/rows/session/memory.ts'
import { isOver } from '../store/rows/session/sessions.ts'
import { preparingProjects } from '../store/rows/workspaces.ts'
import { createAudit } from './access/audit.ts'
import { createTokens, tellTokenChange } from './access/tokens.ts'
import { createCallerRequests } from './caller/requests.ts'
import { createCallerTools, type SchemaCheck } from './caller/tools.ts'
import { type ClientInContainer, type Containers, createContainers } from './container/containers.ts'
import { createContainerEnds } from './container/ends.ts'
import { createPause } from './container/pause.ts'
import { createReconcile } from './container/reconcile.ts'
import { createSupervision } from './container/supervision.ts'
import { createUnsupervised } from './container/unsupervised.ts'
import { containerUser } from './container/user.ts'
import { createDiskWatch } from './disk/watch.ts'
import { createEventLog } from './events/event-log.ts'
import type { Committed } from './events/log-writer.ts'
import type { Poison } from './events/poison.ts'
import { createStorageGuard } from './events/session-storage.ts'
import { createWake } from './events/wake.ts'
import { createAttached } from './exec/attached.ts'
import { createDetached, type Detached } from './exec/detached.ts'
import { createReadOutput } from './exec/output.ts'
import { createSupervised, type SupervisorOf } from './exec/supervised.ts'
import { createAdmission } from './memory/admission.ts'
import { createHibernation } from './memory/hibernation.ts'
import { createMeasuredMemory } from './memory/measured.ts'
import { createModelUse, providerOf } from './model/model-use.ts'
import { createProjectCreation } from './project/creation.ts'
import { createGitUse } from './project/git-use.ts'
import { createGrants } from './project/grants.ts'
import { createLimits } from './project/limits.ts'
import { createOptions } from './project/options.ts'
import { createProjects } from './project/projects.ts'
import type { ScheduledCall } from './schedule/run.ts'
import { createScheduler } from './schedule/scheduler.ts'
import { createSchedules } from './schedule/schedules.ts'
import { createScheduleTimes } from './schedule/times.ts'
import { createApprovals } from './session/approvals.ts'
import { createDispatch, type Dispatch } from './session/dispatch.ts'
import { createIdentities, type Identity } from './session/identity.ts'
import { createPreviousRuns } from './session/previous-run.ts'
import { createSessions } from './session/sessions.ts'
import { createSessionWait } from './session/wait.ts'
import { createChanges } from './workspace/changes.ts'
import { createClone } from './workspace/clone.ts'
import { createDirectories } from './workspace/directories.ts'
import { layoutOf } from './workspace/layout.ts'
import { createWorkspaces } from './workspace/workspaces.ts'

export type ManagersDeps = {
  home: string
  version: string
  config: Config
  credentials: ReadonlyMap<string, Credential>
  store: Store
  poison: Poison
  runtime: Runtime
  client: ClientInContainer
  log: Log
  /** What is remembered of tokens, or of those that were minted through these sessions. */
  forgetTokens: (session_ids?: ReadonlySet<string>) => void
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

const firstRequestMs = 10_000
/** A heavier message of a droid counts as several. */
const messageWeight = 16 * 1024

export function createManagers(deps: ManagersDeps) {
  const { store, runtime, config, credentials, log } = deps
  const layout = layoutOf(deps.home)
  const serial = createKeyedQueue()
  const wake = createWake()
  const previousRuns = createPreviousRuns()
  const secret = sessionSecret(deps.home)
  const keys = createSessionKeys(secret)
  const identities = createIdentities({ store, keys, forgetTokens: deps.forgetTokens })
  const forget = (): void => {
    deps.forgetTokens()
    identities.forget()
  }
  const owner = containerUser(config.container_uid, {
    uid: process.getuid?.() ?? 0,
    gid: process.getgid?.() ?? 0,
  })
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
    listeners: [
      identities.onCommit,
      storage,
      (committed) => admission.onCommit(committed),
      (committed) => git.onCommit(committed),
      ...deps.onCommit,
      forgetRequests,
    ],
    poison: deps.poison,
    session_mb: config.limits.session_mb,
  })
  /** Nobody waits for what the droid of a session that is over had asked for. */
  function forgetRequests({ rows }: Committed): void {
    for (const { id } of rows.filter(({ status }) => isOver(status)))
      callerRequests
        .cancelAll(id)
        .catch((error: unknown) => log.warn('requests stay open', { session_id: id, error }))
  }
  /** Projects whose remote is not cloned yet. */
  const preparing = new Set<string>()
  const callerTools = createCallerTools({ store, schema: deps.schema })
  const callerRequests = createCallerRequests({ store, events, tools: callerTools, log })
  const trash = createTrash({ directory: layout.trash, log })
  const directories = createDirectories({ layout, owner, trash, log })
  const common = {
    store,
    runtime,
    config,
    credentials,
    layout,
    directories,
    serial,
    owner,
    log,
    keys,
    events,
    wake,
    preparing,
  }
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

  const ends = createContainerEnds(common)
  const pause = createPause({ ...common, projects: () => projects, soon })
  const measured = createMeasuredMemory({ relay: () => relay, paused: pause.is, log })
  const admission = createAdmission({ ...common, measured, change: () => sessions.change, soon })
  const hibernation = createHibernation({ ...common, change: () => sessions.change, soon })

  const projects = createProjects({
    ...common,
    regrant: createGrants({
      ...common,
      forget: async () => {
        forget()
        await tellTokenChange(store)
      },
    }).change,
    beforeDelete: [
      async (project_id) => await relay.close(project_id),
      async (project_id) => await execs.lose(project_id, 'the project was deleted'),
    ],
    afterDelete: [forget],
  })
  const workspaces = createWorkspaces({
    ...common,
    projects,
    clone: (project_id, remote_url, signal) => clone(project_id, remote_url, signal),
    supervisorOf: (project_id, signal) => supervisorOf(project_id, signal),
    disk,
    inUse: (project_id, id) => sessions.inUse(project_id, id),
  })
  const sessions = createSessions({
    ...common,
    projects,
    workspaces,
    callerTools,
    admission,
    measured,
    paused: pause.is,
    openRequests: callerRequests.shown,
    requireFree: disk.requireFree,
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
  const warn = createThrottledWarn(log)
  const pace = (project_id: string, weight: number): number => {
    const taken = messages.take(project_id, 1 + Math.floor(weight / messageWeight))
    return taken.ok ? 0 : Math.ceil(taken.retry_after_seconds * 1000)
  }
  const relay: Relay = createRelay<Identity>({
    version: deps.version,
    log,
    pace,
    heartbeat_ms: config.heartbeat_seconds * 1000,
    paused: pause.is,
    watch: (project_id) => ({
      isSuspect: (key) => deps.poison.isSuspect(project_id, key),
      begin: (request) => deps.poison.begin({ project_id, ...request }),
    }),
    handlers: {
      ...createSupervision({
        ...common,
        previousRuns,
        execs: () => execs,
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
    http: (project_id, socket) =>
      onRequestPath(socket, { prefix: '/git/', silence_ms: firstRequestMs }, (to_git) =>
        (to_git ? git : models).accept(project_id, socket),
      ),
  })
  const git = createGitUse({ ...common, projects, identify: identities.identify, pace })
  const supervisorOf: SupervisorOf = createSupervised({ relay, runtime, paused: pause })
  const clone = createClone({ supervisorOf, git })
  const models = createModelUse({
    ...common,
    sessions,
    home: createHash('sha256').update('spending').update(secret).digest('hex').slice(0, 32),
    identify: identities.identify,
    pace,
  })
  const containers: Containers = createContainers({
    ...common,
    projects,
    client: deps.client,
    prepare: workspaces.prepare,
    unprepared: workspaces.unprepared,
    listen,
    ends,
    paused: pause,
    requireFree: disk.requireFree,
    onStop: async (project_id) => {
      await sessions.failAll(project_id, 'the container was stopped')
      await execs.lose(project_id, 'the container was stopped')
      await workspaces.unprepared(project_id)
    },
  })
  const attached = createAttached({ ...common, git, supervisor: relay.supervisor, supervisorOf, containers })
  const execs: Detached = createDetached({
    ...common,
    projects,
    relay,
    supervisorOf,
    attached,
    git,
    readOutput: createReadOutput(common),
  })
  async function listen(project_id: string): Promise<void> {
    await relay.open(project_id, { directory: layout.socketDir(project_id), ...owner })
  }
  const dispatch: Dispatch = createDispatch({
    ...common,
    poison: deps.poison,
    previousRuns,
    relay,
    supervisorOf,
    containers,
    fail,
    finish: async ({ session_id, payload }) => {
      const { status = 'completed', reason = 'ended' } = payload as {
        status?: 'completed' | 'cancelled'
        reason?: string
      }
      await sessions.over(session_id, status, reason)
    },
    restart: sessions.restart,
    hibernated: hibernation.done,
    paused: pause.is,
    preparing: (project_id) => preparing.has(project_id),
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
  const times = createScheduleTimes()
  const schedules = createSchedules({
    store,
    times,
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
    ends,
    paused: pause,
    listen,
    preparing: (project_id) => preparing.has(project_id),
    unprepared: workspaces.unprepared,
    every_seconds: config.reconcile_seconds,
    also: [
      // In the background: the other sweeps do not wait for large trees.
      async () => void trash.sweep(),
      dispatch.sweep,
      sessions.endIdle,
      async () => measured.sweep(await projectsWithProcesses(store.db)),
      hibernation.sweep,
      admission.sweep,
      callerRequests.expire,
      execs.sweep,
      createUnsupervised({ ...common, relay, containers, sessions }),
      async () => await audit.expire(config.audit_days),
      // A statement of a previousRuns process may be executed after this one has started.
      audit.settleAbandoned,
      schedules.expire,
      models.sweep,
    ],
    onGivenUp: async (project_id, reason) => {
      await sessions.failAll(project_id, reason)
      await execs.lose(project_id, reason)
    },
  })
  const approvals = createApprovals({ store, sessions, soon })

  let listening = false
  const owners: Record<string, Owner> = {
    project_id: { what: 'project', projectOf: async (id) => id },
    session_id: { what: 'session', projectOf: remembered(sessions.projectOf) },
    approval_id: { what: 'approval', projectOf: approvals.projectOf },
    schedule_id: { what: 'schedule', projectOf: schedules.projectsOf },
    exec_id: { what: 'command', projectOf: execs.projectOf },
  }

  return {
    owners,
    projects,
    projectCreation: createProjectCreation({ projects, containers, log }),
    containers,
    exec: attached.run,
    execs,
    pause,
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
    tokens: createTokens({ store, requireProject: projects.require, forget }),
    changes: createChanges(workspaces),
    options: createOptions({ config, credentials, runtime }),
    limits: createLimits({ store, config, projects, sessions }),
    runtime,
    exec_output_bytes: config.exec_output_bytes,
    /** The sockets of all containers that may still run, so that their supervisors find us at once. */
    async listen() {
      listening = false
      for (const project_id of await preparingProjects(store.db)) preparing.add(project_id)
      for (const project of await allProjects(store.db))
        if (project.wanted === 'running' && !project.deleting_at) await listen(project.id)
      await pause.load()
      listening = true
    },
    async relayReady() {
      if (!listening) throw new Fault('unavailable', 'the sockets of the containers are not open yet')
    },
    /**
     * What hangs although the server can do its work, in words that may be shown without a token. It is no reason to be not
     * ready: every tenant can stop its own supervisor.
     */
    async degraded(): Promise<string[]> {
      const ids = relay.unresponsive()
      const hanging = ids.length === 0 ? 0 : await runningAmong(store.db, ids)
      return hanging === 0 ? [] : [`relay: the supervisors of ${hanging} containers do not answer`]
    },
    async close() {
      await scheduler.close()
      await times.close()
      await reconcile.close()
      await admission.close()
      await trash.close()
      await disk.close()
      await dispatch.close()
      await relay.dispose()
      await models.close()
      git.close()
      callerRequests.stop()
      await events.close()
      await audit.close()
    },
  }
}
export type Managers = ReturnType<typeof createManagers>
