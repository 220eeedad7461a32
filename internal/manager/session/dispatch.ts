// From rows of commands to the supervisors of containers. Whatever a session is to be told is a row first; a row goes
// when the supervisor has taken it over, and is sent again after any crash: the supervisor does each command once, by
// its id. Commands of one session go in order, sessions do not wait for each other.
import type { SessionKeys } from '../../auth/session-keys.ts'
import type { Config } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Relay } from '../../relay/relay.ts'
import type { SupervisorLink } from '../../relay/supervisor-side.ts'
import type { Store } from '../../store/open.ts'
import {
  type CommandRow,
  type Due,
  deleteCommand,
  pendingCommands,
  projectsWithCommands,
} from '../../store/rows/session/commands.ts'
import { type SessionRow, sessionById } from '../../store/rows/session/sessions.ts'
import type { Containers } from '../container/containers.ts'
import { type Poison, PoisonRefusal } from '../events/poison.ts'
import type { SupervisorOf } from '../exec/supervised.ts'
import { containerPaths } from '../workspace/layout.ts'
import type { PreviousRuns } from './previous-run.ts'

export type DispatchDeps = {
  store: Store
  poison: Poison
  previousRuns: PreviousRuns
  relay: Relay
  supervisorOf: SupervisorOf
  containers: Containers
  config: Config
  keys: SessionKeys
  log: Log
  /** Its droid cannot be started, or the command cannot be carried out: say so in the session and let it be over. */
  fail: (session_id: string, reason: string) => Promise<void>
  /** There is nothing to end in a container: its end is written down. */
  finish: (command: Due) => Promise<void>
  /** The droid that the prompt was for is gone: start it again with this turn. */
  restart: (command: Due) => Promise<void>
  /** The process of its agent is stopped: write that down, and the command is done. */
  hibernated: (command: Due) => Promise<void>
  /** Nothing is sent to a container that is paused: it waits. */
  paused: (project_id: string) => boolean
  /** Whether the workspace of its droids is not there yet: they are started afterwards. */
  preparing: (project_id: string) => boolean
  /** The model provider that a droid uses in a project; a fault if it needs one and there is none. */
  provider: (project_id: string, droid: string) => Promise<string | undefined>
}

const gone = (error: unknown) =>
  error instanceof Fault && (error.kind === 'unavailable' || error.kind === 'timeout')

/** Sessions whose droid is still to be started: what follows for them waits as well. */
const startingIn = (commands: CommandRow[]) =>
  new Set(commands.filter(({ kind }) => kind === 'start').map(({ session_id }) => session_id))

export function createDispatch(deps: DispatchDeps) {
  const { store, relay, containers, config, keys, log } = deps
  const { db } = store
  const under = new Set<string>()
  const tails = new Map<string, Promise<void>>()
  let closed = false

  async function startParams(command: Due, row: SessionRow) {
    const droid = row.droid === 'shell' ? { kind: 'shell' as const } : config.droids[row.droid]
    if (!droid) throw new Fault('invalid', `the config has no droid "${row.droid}" any more`)
    const { turn, resume } = command.payload as { turn?: never; resume?: boolean }
    const provider = await deps.provider(row.project_id, row.droid)
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

  async function send(link: SupervisorLink, command: Due, fresh?: SessionRow): Promise<void> {
    if (command.kind === 'start') await deps.previousRuns.told(command.session_id)
    const row = fresh ?? (await sessionById(db, command.session_id))
    if (!row) return
    const base = { command_id: command.id, session_id: row.id }
    const payload = command.payload as never
    // It was hibernated after its end was asked for: its supervisor has nothing more to say of it.
    if (command.kind === 'end' && row.hibernated) return await deps.finish(command)
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
    log.warn('a command is refused', { session_id, command_id, reason: why.message })
    await deleteCommand(db, command.id)
    await deps.fail(session_id, why.message)
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
      await send(link, command, fresh)
      if (command.kind === 'hibernate') await deps.hibernated(command)
      else await deleteCommand(db, command.id)
    } catch (error) {
      // The row stays; the next connection of the supervisor takes it up.
      if (gone(error) || closed) return
      if (error instanceof PoisonRefusal) return await refuse(command, error)
      const refused = error instanceof Fault && (error.kind === 'conflict' || error.kind === 'not_found')
      if (refused && command.kind === 'prompt') return await restart(command)
      // A turn was faster, or there is no process any more.
      if (refused && command.kind === 'hibernate') return await deleteCommand(db, command.id)
      log.warn('a session refuses a command', {
        session_id: command.session_id,
        kind: command.kind,
        reason: messageOf(error),
      })
      await deleteCommand(db, command.id)
      if (command.kind === 'start') await deps.fail(command.session_id, messageOf(error))
      else if (command.kind === 'end') await deps.finish(command)
    }
  }

  function enqueue(link: SupervisorLink, command: Due, fresh?: SessionRow): void {
    if (under.has(command.id)) return
    under.add(command.id)
    const before = tails.get(command.session_id) ?? Promise.resolve()
    const mine = before
      .then(() => deliver(link, command, fresh))
      .catch((error: unknown) => log.error('a command is not delivered', { command_id: command.id, error }))
      .finally(() => {
        under.delete(command.id)
        if (tails.get(command.session_id) === mine) tails.delete(command.session_id)
      })
    tails.set(command.session_id, mine)
  }

  /** The supervisor, with the container brought up for it if there is something to start. */
  async function linkFor(project_id: string, commands: CommandRow[]): Promise<SupervisorLink | undefined> {
    const starts = commands.some(({ kind }) => kind === 'start' || kind === 'prompt')
    const running = (await containers.inspect(project_id))?.status === 'running'
    if (!starts && !running) return undefined
    await containers.start(project_id)
    return await deps.supervisorOf(project_id)
  }

  /** Sends whatever is due in a project. Safe to call at any time, by anybody, as often as one likes. */
  async function kick(project_id: string): Promise<void> {
    const commands = await pendingCommands(db, project_id)
    if (commands.length === 0 || closed || deps.paused(project_id)) return
    let link = relay.supervisor(project_id)
    let waiting = commands
    if (link) {
      const starting = deps.preparing(project_id) ? startingIn(commands) : undefined
      for (const command of commands) if (!starting?.has(command.session_id)) enqueue(link, command)
      waiting = commands.filter(({ session_id }) => starting?.has(session_id))
    }
    // Without a supervisor there is nothing to hibernate, and no reason to wait for one.
    waiting = waiting.filter(({ kind }) => kind !== 'hibernate')
    if (waiting.length === 0) return
    try {
      link = await linkFor(project_id, waiting)
    } catch (error) {
      if (closed || deps.paused(project_id)) return
      log.warn('a container for sessions is not to be had', { project_id, reason: messageOf(error) })
      for (const session_id of new Set(waiting.map((command) => command.session_id)))
        await deps.fail(session_id, messageOf(error))
      return
    }
    if (link) {
      // Read again: while the container came up, more may have been asked.
      for (const command of await pendingCommands(db, project_id)) enqueue(link, command)
      return
    }
    for (const command of waiting) {
      await deleteCommand(db, command.id)
      if (command.kind === 'end') await deps.finish(command)
    }
  }

  const soon = (project_id: string): void => {
    kick(project_id).catch((error: unknown) => {
      if (!closed) log.warn('commands wait for the next sweep', { project_id, reason: messageOf(error) })
    })
  }

  return {
    soon,
    /** The first command of a session that was just made: nothing can be before it, so nothing has to be read. */
    first(command: Due, row: SessionRow): void {
      const link = relay.supervisor(row.project_id)
      const waits = deps.preparing(row.project_id) || deps.paused(row.project_id)
      if (link && !closed && !waits) enqueue(link, command, row)
      else soon(row.project_id)
    },
    /** Part of the reconciler's sweep: after a crash, this is the recovery. */
    async sweep() {
      for (const project_id of await projectsWithCommands(db)) soon(project_id)
    },
    async close() {
      closed = true
      await Promise.allSettled(tails.values())
    },
  }
}
export type Dispatch = ReturnType<typeof createDispatch>
