// The managers together: the rules behind the tools. Built in one direction, each from those above it; what happens in a
// later one reaches an earlier one by subscription (`listeners`, `requests`). Nothing here knows HTTP, MCP or argv.
import type { DroidSide } from '../relay/droid-side.ts'
import { beginDroidCall } from '../store/rows/callers.ts'
import { projectsWithProcesses } from '../store/rows/session/memory.ts'
import { createUpstreams } from '../upstream/upstreams.ts'
import { createAudit } from './access/audit.ts'
import { createTokens } from './access/tokens.ts'
import { createApprovals } from './approval/approvals.ts'
import { createCallerRequests } from './caller/requests.ts'
import { createCallerTools, type SchemaCheck } from './caller/tools.ts'
import { createFoundation, type FoundationDeps } from './composition/foundation.ts'
import { createHosting } from './composition/hosting.ts'
import { createSessionParts } from './composition/session-parts.ts'
import type { ClientInContainer } from './container/containers.ts'
import { createPause } from './container/pause.ts'
import { createReconcile } from './container/reconcile.ts'
import { createUnsupervised } from './container/unsupervised.ts'
import { createUplink } from './container/uplink.ts'
import { createDiagnostics, type DiagnosticsSources } from './diagnostics/diagnostics.ts'
import type { Committed } from './events/log-writer.ts'
import { createStorageGuard } from './events/session-storage.ts'
import { createExecRecords } from './exec/records.ts'
import { createProjectCreation } from './project/creation.ts'
import { createGrants } from './project/grants.ts'
import { createOptions } from './project/options.ts'
import { createProjects } from './project/projects.ts'
import type { ScheduledCall } from './schedule/run.ts'
import { createScheduler } from './schedule/scheduler.ts'
import { createSchedules } from './schedule/schedules.ts'
import { createScheduleTimes } from './schedule/times.ts'
import { createSessionEnds } from './session/ends.ts'
import type { Identity } from './session/identity.ts'
import { createSessionWait } from './session/wait.ts'
import { createGateway } from './upstream/gateway.ts'
import { createChanges } from './workspace/changes.ts'

export type ManagersDeps = FoundationDeps & {
  version: string
  client: ClientInContainer
  /** The calls of droids; they end in the door, which is above. */
  droid: DroidSide<Identity>['droid']
  /** The calls of schedules; they end in the same door. */
  scheduled: ScheduledCall
  schema: SchemaCheck
  /** Directories that may have mcp-servers.json; the first one counts. */
  servers_directories: readonly string[]
  /** Where people return to after they consented to the use of an upstream server. */
  consent_url: string
  diagnostics: DiagnosticsSources
  /** Called with everything that is committed to the event log. */
  onCommit: ((committed: Committed) => void)[]
}

/** A session never changes its project. One that is deleted since is found to be missing by the action itself. */
function cached(projectOf: (id: string) => Promise<string | undefined>) {
  const known = new Map<string, string>()
  return async (id: string): Promise<string | undefined> => {
    const found = known.get(id) ?? (await projectOf(id))
    if (found === undefined || known.has(id)) return found
    if (known.size >= 10_000) known.delete(known.keys().next().value!)
    known.set(id, found)
    return found
  }
}

/**
 * The projects that an id of a call belongs to; the door checks the caller's scope against them. Null: it belongs to no project
 * and exists for admins only.
 */
type Owner = { what: string; projectOf: (id: string) => Promise<string | string[] | null | undefined> }

export function createManagers(deps: ManagersDeps) {
  const { store, config, log } = deps
  const base = createFoundation(deps)
  const { identities, events } = base

  // What connections from containers need.
  const callerTools = createCallerTools({ store, schema: deps.schema })
  const approvals = createApprovals({ ...base, schema: deps.schema })
  const callerRequests = createCallerRequests({ store, events, tools: callerTools, approvals, log })
  const ends = createSessionEnds(base)
  const execRecords = createExecRecords(base)
  const pause = createPause(base)
  const uplink = createUplink({
    base,
    version: deps.version,
    pause,
    ends,
    execs: execRecords,
    droid: deps.droid,
  })
  const { relay, listen, git, models } = uplink

  // Projects and their containers.
  const projects = createProjects({
    ...base,
    regrant: createGrants({ ...base, forget: base.forgetEverywhere }).change,
    onUpdate: async (project_id) => await gateway.projectChanged(project_id),
    beforeDelete: [
      relay.close,
      async (project_id) => await gateway.projectDeleted(project_id),
      async (project_id) => await execRecords.lose(project_id, 'the project was deleted'),
    ],
    afterDelete: [base.forget],
  })
  const hosting = createHosting({ base, client: deps.client, uplink, ends, execRecords, pause })
  const { containers, disk, workspaces, attached, execs, terminals } = hosting

  const gateway = createGateway({
    ...base,
    home: deps.home,
    upstreams: createUpstreams({ log, version: deps.version }),
    approvals,
    schema: deps.schema,
    workspaces,
    toolsChanged: relay.toolsChanged,
    directories: deps.servers_directories,
    redirect_url: deps.consent_url,
  })

  // Sessions.
  const sessionParts = createSessionParts({
    ...{ base, uplink, ends, pause, hosting, callerTools, callerRequests, approvals },
  })
  const { sessions, dispatch, admission, hibernation, measured } = sessionParts
  base.listeners.push(
    identities.onCommit,
    createStorageGuard({ ...base, change: () => base.change, forget: uplink.forgetSessions }),
    admission.onCommit,
    git.onCommit,
    ...deps.onCommit,
    callerRequests.onCommit,
    approvals.onCommit,
    gateway.onCommit,
  )

  // Schedules.
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
    projectNames: base.projectNames,
    workspaces,
    sessions,
    scheduler,
    history_days: config.schedules.history_days,
  })

  const audit = createAudit(store.db, log)
  const diagnostics = createDiagnostics({
    ...base,
    ...deps.diagnostics,
    version: deps.version,
    freeDiskMb: disk.freeMb,
    relay,
    paused: pause.isPaused,
    workspaces,
  })
  const reconcile = createReconcile({
    ...base,
    projects,
    containers,
    ends: hosting.containerEnds,
    paused: pause,
    listen,
    unprepared: hosting.unprepared,
    every_seconds: config.reconcile_seconds,
    also: [
      // In the background: the other sweeps do not wait for large trees.
      async () => void base.trash.sweep(),
      dispatch.sweep,
      sessions.endIdle,
      async () => measured.sweep(await projectsWithProcesses(store.db)),
      hibernation.sweep,
      admission.sweep,
      callerRequests.expire,
      approvals.expireOverdue,
      async () => await approvals.deleteOld(config.audit_days),
      gateway.sweep,
      execRecords.sweep,
      createUnsupervised({ ...base, relay, containers, ends }),
      async () => await audit.expire(config.audit_days),
      async () => await diagnostics.expireUsage(config.usage_days),
      // A statement of a previous process may be executed after this one has started.
      audit.settleAbandoned,
      schedules.expire,
      models.sweep,
      async () => void (await base.runtime.sweepProcesses()),
    ],
    onGivenUp: async (project_id, reason) => {
      await ends.failAll(project_id, reason)
      await execRecords.lose(project_id, reason)
    },
  })

  const owners: Record<string, Owner> = {
    project_id: { what: 'project', projectOf: async (id) => id },
    session_id: { what: 'session', projectOf: cached(sessions.projectOf) },
    approval_id: { what: 'approval', projectOf: approvals.projectOf },
    schedule_id: { what: 'schedule', projectOf: schedules.projectsOf },
    exec_id: { what: 'command', projectOf: execs.projectOf },
  }

  return {
    owners,
    projects,
    projectNames: base.projectNames,
    projectCreation: createProjectCreation({ projects, containers, log }),
    containers,
    exec: attached.run,
    execs,
    terminals,
    pause,
    workspaces,
    archives: hosting.archives,
    sessions,
    sessionWait: createSessionWait({ sessions, events, wake: base.wake }),
    events,
    approvals,
    gateway,
    callerTools,
    callerRequests,
    identities,
    identityOf: base.identities.of,
    droidCalls: {
      begin: (session_id: string, call_id: string) => beginDroidCall(store.db, session_id, call_id),
    },
    schedules,
    scheduler,
    audit,
    reconcile,
    disk,
    diagnostics,
    tokens: createTokens({ ...base, requireProject: projects.require }),
    changes: createChanges(workspaces),
    options: createOptions(base),
    limits: projects.limits,
    exec_output_bytes: config.exec_output_bytes,
    listen: uplink.listenAll,
    relayReady: uplink.requireReady,
    degraded: uplink.degraded,
    async close() {
      diagnostics.close()
      await scheduler.close()
      await gateway.close()
      await times.close()
      await reconcile.close()
      await admission.close()
      await base.trash.close()
      await disk.close()
      await dispatch.close()
      containers.close()
      await relay.dispose()
      await models.close()
      git.close()
      callerRequests.stop()
      approvals.stop()
      await events.close()
      await audit.close()
    },
  }
}
export type Managers = ReturnType<typeof createManagers>
