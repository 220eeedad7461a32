// Sessions: spawn, message, cancel, end, list. Every step is one transaction whose rows are enough to continue after a crash.
// `dispatch.ts` sends the commands to containers; `events/` stores what happens.
import { createHash } from 'node:crypto'
import type { Caller } from '../../auth/caller.ts'
import type { SessionKeys } from '../../auth/session-keys.ts'
import type { Config, Credential } from '../../config/load.ts'
import { Fault, unknown } from '../../fault.ts'
import { isFinal, mayFollow, type SessionStatus } from '../../protocol/session-status.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import { projectById } from '../../store/rows/projects.ts'
import { type Due, insertCommand, newCommandId } from '../../store/rows/session/commands.ts'
import { turnMessage } from '../../store/rows/session/events.ts'
import { queuePositions } from '../../store/rows/session/memory.ts'
import * as rows from '../../store/rows/session/sessions.ts'
import type { ApprovalInbox } from '../approval/approvals.ts'
import { type CallerRequests, shownRequest } from '../caller/requests.ts'
import type { CallerTools, Declaration } from '../caller/tools.ts'
import { pausedReason } from '../container/pause.ts'
import { requireDiskSpace } from '../disk/limit.ts'
import type { EventLog } from '../events/event-log.ts'
import { full, hasRoom, limitBytes } from '../events/session-storage.ts'
import type { Admission } from '../memory/admission.ts'
import { expectedMb } from '../memory/expected.ts'
import type { MeasuredMemory } from '../memory/measured.ts'
import type { ProjectNames } from '../project/names.ts'
import { requireProject } from '../project/require.ts'
import type { Workspaces } from '../workspace/workspaces.ts'
import type { SessionChanging } from './change.ts'
import type { RequestDispatch } from './dispatch.ts'
import type { SessionEnds } from './ends.ts'
import { excess } from './spawn/bounds.ts'
import { fits, requireMayMessage } from './spawn/resume.ts'
import { createSpawn, type SpawnFields, type Turn, userMessage } from './spawn/spawn.ts'
import { createStarting } from './spawn/starting.ts'

export type SessionsDeps = {
  store: Store
  config: Config
  credentials: ReadonlyMap<string, Credential>
  runtime: Pick<Runtime, 'basesOf'>
  keys: SessionKeys
  workspaces: Workspaces
  events: EventLog
  projectNames: Pick<ProjectNames, 'of'>
  callerTools: CallerTools
  admission: Pick<Admission, 'place'>
  measured: MeasuredMemory
  paused: (project_id: string) => boolean
  openRequests: CallerRequests['shown']
  openQuestions: ApprovalInbox['openOf']
  /** The caller tools of a session changed. */
  toolsChanged: (project_id: string, session_id: string) => void
  /** Throws while the disk of the server is nearly full. */
  requireFree: () => void
  change: SessionChanging
  ends: SessionEnds
  requestDispatch: RequestDispatch
  dispatchFirst: (command: Due, row: rows.SessionRow) => void
  /** Ends what is left of sessions in their container and removes their journals. */
  forget: (project_id: string, session_ids: string[]) => void
}

export type SpawnInput = SpawnFields & {
  project_id: string
  workspace_id?: string
  create_workspace?: boolean
  new_session?: boolean
  turn: Turn
}
/** `since_index`: all events of this turn have a higher index. */
export type Addressed = { session_id: string; turn_id: string; since_index: number; spawned: boolean }

/** The same idempotency key of the same caller gives the same turn. */
const repeatableTurnId = (caller_id: string, session_id: string, key: string): string =>
  `cmd_${createHash('sha256')
    .update(JSON.stringify([caller_id, session_id, key]))
    .digest('hex')
    .slice(0, 20)}`

/** Characters of the final text in a list; `get` returns more. */
const listedText = 2_000

const usedBefore = () =>
  new Fault('conflict', 'this idempotency_key was already used for a different request', {
    hint: 'use a new key for a new request',
  })

const shown = (row: rows.SessionRow) => ({
  session_id: row.id,
  project_id: row.project_id,
  workspace_id: row.workspace_id,
  droid: row.droid,
  model: row.model,
  status: row.status,
  hibernated: row.hibernated,
  reason: row.reason,
  step: row.step,
  percent: row.percent,
  requires: row.requires,
  parent_session_id: row.parent_session_id,
  root_session_id: row.root_session_id,
  depth: row.depth,
  autonomy_level: row.autonomy_level,
  api_scope: row.api_scope,
  source: row.source,
  external_id: row.external_id,
  last_index: row.next_index - 1,
  turns: row.turns,
  final_text: row.final_text,
  stop_reason: row.stop_reason,
  usage: { input_tokens: row.input_tokens, output_tokens: row.output_tokens, cost_usd: row.cost_usd },
  created_by: row.created_by,
  created_at: row.created_at,
  updated_at: row.updated_at,
  ended_at: row.ended_at,
})

export function createSessions(deps: SessionsDeps) {
  const { store, config, workspaces, events, change } = deps
  const { db } = store
  const { spawn, droidOf } = createSpawn(deps)
  const starting = createStarting(deps)

  async function require(session_id: string): Promise<rows.SessionRow> {
    const row = await rows.sessionById(db, session_id)
    if (!row) throw unknown('session', session_id)
    return row
  }

  /** As callers see them, with the open caller requests of waiting sessions. */
  async function described(found: rows.SessionRow[]) {
    const waiting = found.filter(({ status }) => status === 'waiting').map(({ id }) => id)
    const [open, questions] = [await deps.openRequests(waiting), await deps.openQuestions(waiting)]
    const asked = Map.groupBy(questions, (question) => question.session_id)
    const nameOf = await deps.projectNames.of(found.map(({ project_id }) => project_id))
    const bySession = Map.groupBy(open, (request) => request.session_id)
    const positions = await queuePositions(
      db,
      found.filter(({ status }) => status === 'queued').map(({ id }) => id),
    )
    return found.map((row) => {
      const all = bySession.get(row.id) ?? []
      const open_requests = all.flatMap((request) =>
        request.arguments === null ? [] : [shownRequest({ ...request, arguments: request.arguments })],
      )
      const requires = [...row.requires, ...[...all, ...(asked.get(row.id) ?? [])].map(({ id }) => id)]
      const queue_position = positions.get(row.id) ?? null
      const measured = deps.measured.of(row.project_id, row.id)
      const memory_mb = { expected: expectedMb(config, row.droid), measured }
      const is_paused = row.reason === null && !isFinal(row.status) && deps.paused(row.project_id)
      const reason = is_paused ? pausedReason : row.reason
      const project_name = nameOf(row.project_id)
      return { ...shown(row), project_name, reason, queue_position, memory_mb, requires, open_requests }
    })
  }

  const mayResume = (row: rows.SessionRow) =>
    row.end_requested_at === null && mayFollow('server', row.status, 'starting')

  /** Adds a turn: queued behind the running one, or the droid is started again for it. */
  async function address(
    caller: Caller,
    session_id: string,
    turn: Turn,
    declaration?: Declaration,
    idempotency_key?: string,
  ): Promise<Addressed> {
    if (declaration) await deps.callerTools.check(declaration, (await require(session_id)).project_id)
    const turn_id = idempotency_key
      ? repeatableTurnId(caller.id, session_id, idempotency_key)
      : newCommandId()
    const { project_id, since_index } = await change(session_id, async (trx, row, write) => {
      await requireMayMessage(trx, caller, row)
      if (caller.kind === 'oidc' && row.created_by === caller.id && caller.expires_at)
        await rows.extendKeys(trx, row.id, caller.expires_at)
      const before = idempotency_key ? await turnMessage(trx, session_id, turn_id) : undefined
      if (before && before.text !== turn.text) throw usedBefore()
      if (before) return { project_id: row.project_id, since_index: before.index - 1 }
      const project = await projectById(trx, row.project_id)
      if (project) requireDiskSpace(config, project)
      const limit = limitBytes(config.limits.session_mb, row)
      if (!hasRoom(row, turn.text.length, limit)) throw full(session_id, limit)
      if (declaration) await deps.callerTools.declare(trx, session_id, caller.id, declaration)
      const message = userMessage(turn_id, turn, new Date().toISOString())
      const payload = {
        turn_id,
        text: turn.text,
        ...(turn.attachments ? { attachments: turn.attachments } : {}),
      }
      const common = { session_id, project_id: row.project_id }
      const where = { project_id: row.project_id, since_index: row.next_index - 1 }
      if (!isFinal(row.status)) {
        if (row.end_requested_at)
          throw new Fault('conflict', `session ${session_id} is being ended`, { hint: 'spawn a new session' })
        if (row.hibernated)
          await starting.resumeHibernated({ trx, row, write, turn: payload, messages: [message] })
        else {
          await write([message])
          await insertCommand(trx, { ...common, kind: 'prompt', payload })
        }
        return where
      }
      if (!mayResume(row))
        throw new Fault('conflict', `session ${session_id} was ended (${row.status})`, {
          hint: 'session spawn starts a new one',
        })
      await starting.startAgain(
        { trx, row, write, turn: payload, messages: [message] },
        'resumed by a message',
      )
      return where
    })
    if (declaration) deps.toolsChanged(project_id, session_id)
    deps.requestDispatch(project_id)
    return { session_id, turn_id, since_index, spawned: false }
  }

  /** `intent` is the audit record: changes wait for it, reads do not. */
  async function start(caller: Caller, input: SpawnInput, intent?: Promise<void>): Promise<Addressed> {
    const { idempotency_key, turn } = input
    const project = await requireProject(db, input.project_id)
    if (input.declaration) await deps.callerTools.check(input.declaration, project.id)
    const { turn: _, ...rest } = input
    const idempotency_hash = createHash('sha256')
      .update(JSON.stringify([turn, Object.entries(rest).sort()]))
      .digest('hex')
    const before = idempotency_key
      ? await rows.sessionByIdempotencyKey(db, project.id, caller.id, idempotency_key)
      : undefined
    if (before) return repeated(before, idempotency_hash)
    requireDiskSpace(config, project)
    deps.requireFree()
    const isolated = project.workspace_isolation && !input.workspace_id
    if (input.create_workspace || isolated) await intent
    const workspace = await workspaces.resolve(caller, project.id, {
      workspace_id: input.workspace_id,
      create_workspace: input.create_workspace || isolated,
    })
    const latest =
      input.new_session || caller.session_id
        ? undefined
        : await rows.latestOfWorkspace(db, project.id, workspace.workspace_id, input.droid)
    await intent
    if (latest && fits(latest, caller, input))
      return await address(caller, latest.id, turn, input.declaration, idempotency_key)
    try {
      const {
        row,
        command,
        events: first,
        turn_id,
      } = await spawn(caller, project, workspace.workspace_id, turn, {
        ...input,
        idempotency_hash,
      })
      if (row.status === 'queued') deps.requestDispatch(project.id)
      else deps.dispatchFirst(command, row)
      events.announce({ rows: [row], events: first })
      return { session_id: row.id, turn_id, since_index: -1, spawned: true }
    } catch (error) {
      const raced = idempotency_key
        ? await rows.sessionByIdempotencyKey(db, project.id, caller.id, idempotency_key)
        : undefined
      if (raced) return repeated(raced, idempotency_hash)
      throw error
    }
  }

  async function repeated(row: rows.SessionRow, hash: string): Promise<Addressed> {
    if (row.idempotency_hash !== hash) throw usedBefore()
    const first = (await events.after(row.id, -1, 10)).events.find((event) => event.type === 'message')
    return { session_id: row.id, turn_id: String(first?.data.turn_id), since_index: -1, spawned: true }
  }

  async function list(
    filter: { project_id?: string; status?: SessionStatus; parent_session_id?: string } & PageRequest,
  ) {
    const { items, next_cursor } = await rows.listSessions(db, filter)
    const short = items.map((row) => ({
      ...row,
      final_text: row.final_text?.slice(0, listedText).toWellFormed() ?? null,
    }))
    return { sessions: await described(short), next_cursor }
  }

  /** Deletes sessions that are over, with all their events. */
  async function cleanup(filter: { project_id?: string; max_age_hours: number }): Promise<string[]> {
    const before = new Date(Date.now() - filter.max_age_hours * 3_600_000)
    const ids = await store.transact(
      (trx) => rows.deleteOverSessions(trx, { project_id: filter.project_id, before }),
      { long: true },
    )
    if (filter.project_id) deps.forget(filter.project_id, ids)
    return ids
  }

  /** For sessions that a schedule of this session would spawn: a session must not exceed its own bounds that way. */
  async function requireMaySpawn({ session_id }: Caller, droid: string): Promise<void> {
    if (!session_id) return
    const plain = { autonomy_level: deps.config.default_autonomy, tools_allowed: [], tools_disallowed: [] }
    const more = excess(await require(session_id), { droid, ...plain })
    if (more)
      throw new Fault(
        'forbidden',
        `the sessions of the schedule would exceed the bounds of your session: ${more}`,
      )
  }

  return {
    start,
    address,
    restart: starting.restart,
    requireMaySpawn,
    list,
    require,
    change,
    ...deps.ends,
    cleanup,
    droidOf,
    get: async (session_id: string) => (await described([await require(session_id)]))[0]!,
    /** Its id and those of all its descendants. */
    family: async (session_id: string) => (await rows.subtree(db, session_id)).map(({ id }) => id),
    projectOf: async (session_id: string) => (await rows.sessionById(db, session_id))?.project_id,
  }
}
export type Sessions = ReturnType<typeof createSessions>
