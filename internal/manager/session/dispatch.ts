// Sends commands from their rows to the supervisors of containers. A row is deleted when the supervisor has accepted the
// command, and is sent again after a crash: the supervisor executes each command id once. Commands of one session are sent
// in order; sessions do not wait for each other.
import type { SessionKeys } from '../../auth/session-keys.ts'
import type { Config, Credential } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import { createKeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import type { Relay } from '../../relay/relay.ts'
import type { SupervisorLink } from '../../relay/supervisor-side.ts'
import type { Store } from '../../store/open.ts'
import {
  type CommandRow,
  type Due,
  deleteCommand,
  isPending,
  pendingCommands,
  projectsWithCommands,
} from '../../store/rows/session/commands.ts'
import { type SessionRow, sessionById } from '../../store/rows/session/sessions.ts'
import type { Containers } from '../container/containers.ts'
import { type Poison, PoisonRefusal } from '../events/poison.ts'
import type { SupervisorOf } from '../exec/supervised.ts'
import { providerOf } from '../model/model-use.ts'
import { requireProject } from '../project/require.ts'
import { containerPaths } from '../workspace/layout.ts'
import { type SessionChanging, status } from './change.ts'
import type { SessionEnds } from './ends.ts'
import type { PreviousRuns } from './previous-run.ts'

/** The project has commands to send. */
export type RequestDispatch = (project_id: string) => void
/** The first command of a session that was just inserted: no other command precedes it, so no row has to be read. */
type DispatchFirst = (command: Due, row: SessionRow) => void

/**
 * How the managers that write command rows reach the dispatcher, which is built on top of them and subscribes. A request
 * without a subscriber is not lost: the sweep reads the rows.
 */
export function createDispatchRequests() {
  let subscriber: { dispatch: RequestDispatch; first: DispatchFirst } | undefined
  return {
    requestDispatch: ((project_id) =>
      subscriber?.dispatch(project_id)) satisfies RequestDispatch as RequestDispatch,
    dispatchFirst: ((command, row) =>
      subscriber?.first(command, row)) satisfies DispatchFirst as DispatchFirst,
    subscribe(to: NonNullable<typeof subscriber>): void {
      subscriber = to
    },
  }
}
type DispatchRequests = ReturnType<typeof createDispatchRequests>

export type DispatchDeps = {
  store: Store
  poison: Poison
  previousRuns: PreviousRuns
  relay: Relay
  supervisorOf: SupervisorOf
  containers: Containers
  config: Config
  credentials: ReadonlyMap<string, Credential>
  keys: SessionKeys
  log: Log
  change: SessionChanging
  requests: Pick<DispatchRequests, 'subscribe'>
  ends: Pick<SessionEnds, 'over'>
  /** The droid of a prompt is gone: start it again with this turn. */
  restart: (command: Due) => Promise<void>
  /** The process of its agent is stopped: writes that to the row and deletes the command. */
  hibernated: (command: Due) => Promise<void>
  /** Nothing is sent to a paused container: its commands stay in their rows. */
  paused: (project_id: string) => boolean
  /** Projects whose remote is not cloned yet: their droids are started afterwards. */
  preparing: ReadonlySet<string>
}

const isUnreachable = (error: unknown) =>
  error instanceof Fault && (error.kind === 'unavailable' || error.kind === 'timeout')

/** Sessions whose droid is not started yet: their other commands wait as well. */
const startingIn = (commands: CommandRow[]) =>
  new Set(commands.filter(({ kind }) => kind === 'start').map(({ session_id }) => session_id))

/** `again`: more commands were written meanwhile. */
type Start = { for_droids: boolean; unneeded: AbortController; again: boolean }

const needsDroid = ({ kind }: CommandRow) => kind === 'start' || kind === 'prompt'
const unneeded = () => new Fault('conflict', 'no session waits for the container any more')

export function createDispatch(deps: DispatchDeps) {
  const { store, relay, containers, config, keys, log, ends } = deps
  const { db } = store
  const under = new Set<string>()
  const queue = createKeyedQueue()
  /** Starts of containers that commands wait for. */
  const starts = new Map<string, Start>()
  let closed = false

  const fail = (session_id: string, reason: string) => ends.over(session_id, 'failed', reason)

  /** Nothing of the session is left in the container: the end that was requested is written down. */
  async function finish({ session_id, payload }: Due): Promise<void> {
    const { status = 'completed', reason = 'ended' } = payload as {
      status?: 'completed' | 'cancelled'
      reason?: string
    }
    await ends.over(session_id, status, reason)
  }

  async function startParams(command: Due, row: SessionRow) {
    const droid = row.droid === 'shell' ? { kind: 'shell' as const } : config.droids[row.droid]
    if (!droid) throw new Fault('invalid', `droid "${row.droid}" is no longer in the config`)
    const { turn, resume } = command.payload as { turn?: never; resume?: boolean }
    const provider =
      row.droid === 'shell'
        ? undefined
        : providerOf(deps, await requireProject(db, row.project_id), row.droid)
    return {
      command_id: command.id,
      session_id: row.id,
      next_seq: row.committed_seq + 1,
      droid,
      workspace_dir: `${containerPaths.workspaces}/${row.workspace_id}`,
      env: { OUBLIETTE_PROJECT_ID: row.project_id },
      api_key: keys.keyOf(row.id, row.key_generation),
      autonomy: row.autonomy_level,
      ...(row.model ? { model: row.model } : {}),
      ...(row.reasoning_level ? { reasoning_level: row.reasoning_level } : {}),
      ...(row.tools_allowed.length > 0 ? { tools_allowed: row.tools_allowed } : {}),
      ...(row.tools_disallowed.length > 0 ? { tools_disallowed: row.tools_disallowed } : {}),
      ...(provider ? { provider } : {}),
      agent_limits: {
        answer_seconds: config.agent_answer_seconds,
        silence_seconds: config.agent_silence_minutes * 60,
      },
      ...(resume && row.agent_session_id ? { resume: { agent_session_id: row.agent_session_id } } : {}),
      ...(turn ? { turn } : {}),
    }
  }

  /** From here on the session may have a droid. Undefined if it was cancelled or ended before. */
  async function leavePreparing(command: Due): Promise<SessionRow | undefined> {
    return await deps.change(command.session_id, async (trx, row, write) => {
      if (!(await isPending(trx, command.id))) return undefined
      if (row.status === 'preparing') await write([status('starting')])
      return row
    })
  }

  async function sendOne(link: SupervisorLink, command: Due, fresh?: SessionRow): Promise<void> {
    if (command.kind === 'start') await deps.previousRuns.committed(command.session_id)
    const found = fresh ?? (await sessionById(db, command.session_id))
    const row =
      command.kind === 'start' && found?.status === 'preparing' ? await leavePreparing(command) : found
    if (!row) return
    const base = { command_id: command.id, session_id: row.id }
    const payload = command.payload as never
    // The session was hibernated after its end was requested: its supervisor will not report an end.
    if (command.kind === 'end' && row.hibernated) return await finish(command)
    const start = command.kind === 'start' ? await startParams(command, row) : undefined
    const refused = deps.poison.begin({
      project_id: row.project_id,
      key: command.id,
      what: `command ${command.kind}`,
    })
    if (refused) throw refused
    if (start) await link.send('start_session', start)
    else if (command.kind === 'prompt')
      await link.send('prompt', { ...base, ...(payload as object) } as never)
    else if (command.kind === 'cancel') await link.send('cancel', { ...base, ...(payload as object) })
    else if (command.kind === 'end')
      await link.send('end', { ...base, ...(payload as object) }, { timeout_ms: 60_000 })
    else if (command.kind === 'hibernate') await link.send('hibernate', base, { timeout_ms: 60_000 })
    else await link.send('permission_answer', { ...base, ...(payload as object) } as never)
  }

  async function refuse(command: Due, why: Fault): Promise<void> {
    const { id: command_id, session_id } = command
    log.warn('refused a command that ended the server before', {
      session_id,
      command_id,
      reason: why.message,
    })
    await deleteCommand(db, command.id)
    await fail(session_id, why.message)
  }

  async function restart(command: Due): Promise<void> {
    try {
      await deps.restart(command)
    } catch (error) {
      if (!(error instanceof Fault && error.kind === 'exhausted')) throw error
      await refuse(command, error)
    }
  }

  async function deliver(link: SupervisorLink, command: Due, fresh?: SessionRow): Promise<void> {
    try {
      await sendOne(link, command, fresh)
      if (command.kind === 'hibernate') await deps.hibernated(command)
      else await deleteCommand(db, command.id)
    } catch (error) {
      // The row stays and is sent on the next connection of the supervisor.
      if (isUnreachable(error) || closed) return
      if (error instanceof PoisonRefusal) return await refuse(command, error)
      const refused = error instanceof Fault && (error.kind === 'conflict' || error.kind === 'not_found')
      if (refused && command.kind === 'prompt') return await restart(command)
      // A turn started first, or the process has ended.
      if (refused && command.kind === 'hibernate') return void (await deleteCommand(db, command.id))
      log.warn('a supervisor refused a command', {
        session_id: command.session_id,
        kind: command.kind,
        reason: messageOf(error),
      })
      await deleteCommand(db, command.id)
      if (command.kind === 'start') await fail(command.session_id, messageOf(error))
      else if (command.kind === 'end') await finish(command)
    }
  }

  function enqueue(link: SupervisorLink, command: Due, fresh?: SessionRow): void {
    if (under.has(command.id)) return
    under.add(command.id)
    queue(command.session_id, () => deliver(link, command, fresh))
      .catch((error: unknown) => log.error('failed to deliver a command', { command_id: command.id, error }))
      .finally(() => under.delete(command.id))
  }

  /** The supervisor. Starts the container if a command needs a droid. */
  async function linkFor(
    project_id: string,
    commands: CommandRow[],
    signal: AbortSignal,
  ): Promise<SupervisorLink | undefined> {
    const starts = commands.some(needsDroid)
    const running = (await containers.inspect(project_id))?.status === 'running'
    if (!starts && !running) return undefined
    await containers.start(project_id, { signal })
    return await deps.supervisorOf(project_id, signal)
  }

  /** Sends the pending commands of a project. Safe to call at any time and to repeat. */
  async function send(project_id: string): Promise<void> {
    const commands = await pendingCommands(db, project_id)
    const start = starts.get(project_id)
    if (start?.for_droids && !commands.some(needsDroid)) start.unneeded.abort(unneeded())
    if (commands.length === 0 || closed || deps.paused(project_id)) return
    const link = relay.supervisor(project_id)
    let waiting = commands
    if (link) {
      const starting = deps.preparing.has(project_id) ? startingIn(commands) : undefined
      for (const command of commands) if (!starting?.has(command.session_id)) enqueue(link, command)
      waiting = commands.filter(({ session_id }) => starting?.has(session_id))
    }
    // Without a supervisor there is nothing to hibernate.
    waiting = waiting.filter(({ kind }) => kind !== 'hibernate')
    if (waiting.length > 0) await connect(project_id, waiting)
  }

  /** Sends the commands of a project when its container is started. One start at a time serves all of them. */
  async function connect(project_id: string, waiting: CommandRow[]): Promise<void> {
    const under_way = starts.get(project_id)
    if (under_way) {
      under_way.again = true
      return
    }
    const for_droids = waiting.some(needsDroid)
    const start: Start = { for_droids, unneeded: new AbortController(), again: false }
    starts.set(project_id, start)
    try {
      await sendAfterStart(project_id, waiting, start.unneeded.signal)
    } finally {
      starts.delete(project_id)
      if (start.again) dispatch(project_id)
    }
  }

  async function sendAfterStart(
    project_id: string,
    waiting: CommandRow[],
    signal: AbortSignal,
  ): Promise<void> {
    let link: SupervisorLink | undefined
    try {
      link = await linkFor(project_id, waiting, signal)
    } catch (error) {
      // Sessions that were spawned since then begin another start.
      if (signal.aborted) return dispatch(project_id)
      if (closed || deps.paused(project_id)) return
      log.warn('failed to start the container for pending sessions', { project_id, reason: messageOf(error) })
      const failed = (await pendingCommands(db, project_id)).filter(({ kind }) => kind !== 'hibernate')
      for (const session_id of new Set(failed.map((command) => command.session_id)))
        await fail(session_id, messageOf(error))
      return
    }
    if (link) {
      // Read again: more commands may have been written while the container started.
      for (const command of await pendingCommands(db, project_id)) enqueue(link, command)
      return
    }
    for (const command of waiting) {
      await deleteCommand(db, command.id)
      if (command.kind === 'end') await finish(command)
    }
  }

  function dispatch(project_id: string): void {
    send(project_id).catch((error: unknown) => {
      if (!closed)
        log.warn('failed to send commands, retrying in the next sweep', {
          project_id,
          reason: messageOf(error),
        })
    })
  }

  deps.requests.subscribe({
    dispatch,
    first(command, row) {
      const link = relay.supervisor(row.project_id)
      const waits = deps.preparing.has(row.project_id) || deps.paused(row.project_id)
      if (link && !closed && !waits) enqueue(link, command, row)
      else dispatch(row.project_id)
    },
  })

  return {
    /** Part of the reconciler's sweep: after a crash, this is the recovery. */
    async sweep() {
      for (const project_id of await projectsWithCommands(db)) dispatch(project_id)
    },
    async close() {
      closed = true
      await queue.settled()
    },
  }
}
