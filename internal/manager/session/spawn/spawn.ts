// Creates a session: one transaction checks the limits and writes the session, the hash of its key, its first events and the
// command that starts it. A refused spawn has started nothing; a crash after the commit loses nothing.
import type { Caller } from '../../../auth/caller.ts'
import { holdsEverything, isGranted, mayAct } from '../../../auth/grant.ts'
import { covers, formatScope, parseScope } from '../../../auth/scope.ts'
import type { SessionKeys } from '../../../auth/session-keys.ts'
import type { Limits } from '../../../config/limits.ts'
import { Fault, unknown } from '../../../fault.ts'
import { newSessionId } from '../../../ids.ts'
import { createKeyedQueue } from '../../../lib/keyed-queue.ts'
import type { Attachment } from '../../../protocol/messages.ts'
import { isFinal } from '../../../protocol/session-status.ts'
import type { Db, Store } from '../../../store/open.ts'
import { grantOf, type ProjectWithContainer } from '../../../store/rows/projects.ts'
import { commandInsertion, newCommandId } from '../../../store/rows/session/commands.ts'
import { logLock, type NewEvent } from '../../../store/rows/session/events.ts'
import {
  projectUsage,
  type SessionRow,
  sessionById,
  sessionInsertion,
  treeUsage,
} from '../../../store/rows/session/sessions.ts'
import type { CallerTools, Declaration } from '../../caller/tools.ts'
import { writeEvents } from '../../events/log-writer.ts'
import { storedSize } from '../../events/session-storage.ts'
import type { Admission } from '../../memory/admission.ts'
import { lacksGrant } from '../../project/boundaries.ts'
import { effectiveLimits } from '../../project/projects.ts'
import { boundsOfChild } from './bounds.ts'
import { createDroidChoice, type DroidChoiceDeps } from './droid.ts'

export type Turn = { text: string; attachments?: Attachment[] }
export type SpawnFields = {
  droid?: string
  model?: string
  reasoning_level?: string
  autonomy_level?: 'off' | 'low' | 'medium' | 'high'
  tools_allowed?: string[]
  tools_disallowed?: string[]
  external_id?: string
  source?: string
  api_scope?: string
  idempotency_key?: string
  idempotency_hash?: string
  declaration?: Declaration
}

export const userMessage = (turn_id: string, turn: Turn, at: string): NewEvent => ({
  type: 'message',
  at,
  data: {
    role: 'user',
    text: turn.text,
    turn_id,
    ...(turn.attachments?.length ? { attachments: turn.attachments.map(({ name }) => name) } : {}),
  },
})

const exhausted = (message: string, hint: string) => new Fault('exhausted', message, { hint })

/**
 * Counts usage for the insert that follows: every spawn takes the lock of the event log first, so no other spawn counts in
 * between.
 */
async function reserve(
  db: Db,
  project_id: string,
  limits: Limits,
  parent: SessionRow | undefined,
): Promise<void> {
  const used = await projectUsage(db, project_id)
  if (used.active >= limits.max_active_sessions)
    throw exhausted(
      `the project has ${used.active} active sessions, the limit`,
      'end a session, or raise limits.max_active_sessions',
    )
  if (used.spawned_last_minute >= limits.max_spawns_per_minute)
    throw exhausted(
      `the project spawned ${used.spawned_last_minute} sessions in the last minute, the limit`,
      'wait a minute, or raise limits.max_spawns_per_minute',
    )
  if (used.cost_usd >= limits.max_cost_usd && limits.max_cost_usd > 0)
    throw exhausted(
      `the project has cost ${used.cost_usd.toFixed(2)} US dollars, the limit`,
      'raise limits.max_cost_usd',
    )
  if (!parent) return
  if (parent.depth + 1 > limits.max_recursion_depth)
    throw exhausted(
      `sessions may be nested at most ${limits.max_recursion_depth} deep`,
      'raise limits.max_recursion_depth',
    )
  const tree = await treeUsage(db, parent.root_session_id)
  if (tree.sessions >= limits.max_agents_per_session)
    throw exhausted(
      `the tree of this session has ${tree.sessions} sessions, the limit`,
      'raise limits.max_agents_per_session',
    )
}

/**
 * The scope of the new session's key: what the spawn requests, within the scope of the caller, and beyond the project only
 * what an admin granted to it. The lock of the event log is held; setting a grant takes it too.
 */
async function scopeFor(
  trx: Db,
  caller: Caller,
  project_id: string,
  wanted: string | undefined,
): Promise<string | null> {
  if (wanted === undefined && holdsEverything(caller)) return null
  const grant = await grantOf(trx, project_id)
  if (!mayAct(caller, project_id, grant)) throw lacksGrant(project_id, grant)
  if (wanted === undefined) return null
  const scope = parseScope(wanted)
  const name = formatScope(scope)
  if (!covers(caller.scope, scope))
    throw new Fault('forbidden', `api_scope ${name} exceeds the scope of the caller`)
  if (!isGranted(grant, project_id, scope))
    throw new Fault('forbidden', `api_scope ${name} is not granted to project ${project_id}`, {
      hint: `a session may have project:${project_id}; an admin can grant more with project update {"api_scope_grant": "${name}"}`,
    })
  return name
}

async function parentOf(db: Db, { session_id }: Caller): Promise<SessionRow | undefined> {
  if (!session_id) return undefined
  const parent = await sessionById(db, session_id)
  if (!parent) throw unknown('session', session_id)
  if (parent.end_requested_at || isFinal(parent.status))
    throw new Fault('conflict', `session ${parent.id} is over and cannot spawn`)
  return parent
}

/**
 * One spawn transaction at a time per project, so that other requests find a database connection. When a spawn is refused
 * because a limit is reached, all spawns that were queued when the limit was checked are refused with it.
 */
export function createSpawnQueue() {
  const queue = createKeyedQueue()
  const refusals = new Map<string, { checked_ms: number; fault: Fault }>()

  return async <T>(project_id: string, { session_id }: Caller, spawn: () => Promise<T>): Promise<T> => {
    const queued_ms = performance.now()
    // Depth and tree are those of the calling session.
    const key = `${project_id} ${session_id ?? ''}`
    return await queue(project_id, async () => {
      const before = refusals.get(key)
      if (before && before.checked_ms > queued_ms) throw before.fault
      refusals.delete(key)
      const checked_ms = performance.now()
      try {
        return await spawn()
      } catch (error) {
        if (error instanceof Fault && error.kind === 'exhausted')
          refusals.set(key, { checked_ms, fault: error })
        throw error
      }
    })
  }
}

type SpawnDeps = DroidChoiceDeps & {
  store: Store
  keys: SessionKeys
  callerTools: CallerTools
  admission: Pick<Admission, 'place'>
}

export function createSpawn(deps: SpawnDeps) {
  const { store, config, keys } = deps
  const inTurn = createSpawnQueue()
  const choice = createDroidChoice(deps)

  /** Returns the new row and the id of its first turn. */
  async function spawn(
    caller: Caller,
    project: ProjectWithContainer,
    workspace_id: string,
    turn: Turn,
    fields: SpawnFields,
  ) {
    const id = newSessionId()
    const turn_id = newCommandId()
    const at = new Date().toISOString()
    const droid = choice.droidOf(project, fields.droid)
    await choice.require(project, droid, fields)
    const limits = effectiveLimits(config, project)
    const command = {
      id: newCommandId(),
      session_id: id,
      project_id: project.id,
      kind: 'start' as const,
      payload: {
        turn: { turn_id, text: turn.text, ...(turn.attachments ? { attachments: turn.attachments } : {}) },
      },
    }
    const insert = async (trx: Db) => {
      const parent = await parentOf(trx, caller)
      const api_scope = await scopeFor(trx, caller, project.id, fields.api_scope)
      const bounds = parent
        ? boundsOfChild(parent, droid, fields)
        : {
            droid,
            autonomy_level: fields.autonomy_level ?? config.default_autonomy,
            tools_allowed: fields.tools_allowed ?? [],
            tools_disallowed: fields.tools_disallowed ?? [],
          }
      await reserve(trx, project.id, limits, parent)
      const place = await deps.admission.place(trx, project, droid)
      const fresh: SessionRow = {
        id,
        project_id: project.id,
        workspace_id,
        ...bounds,
        model: fields.model ?? project.model,
        reasoning_level: fields.reasoning_level ?? null,
        status: place.status,
        reason: place.status === 'queued' ? place.reason : null,
        step: place.status === 'preparing' ? place.step : null,
        percent: null,
        requires: [],
        parent_session_id: parent?.id ?? null,
        root_session_id: parent?.root_session_id ?? id,
        depth: parent ? parent.depth + 1 : 0,
        created_by: caller.id,
        token_id: caller.token_id,
        source: fields.source ?? null,
        external_id: fields.external_id ?? null,
        api_scope,
        key_hash: keys.hashOf(keys.keyOf(id, 1)),
        key_generation: 1,
        agent_session_id: null,
        next_index: 0,
        committed_seq: -1,
        turns: 0,
        final_text: null,
        stop_reason: null,
        input_tokens: 0,
        output_tokens: 0,
        cost_usd: 0,
        idempotency_key: fields.idempotency_key ?? null,
        idempotency_hash: fields.idempotency_hash ?? null,
        created_at: at,
        updated_at: at,
        idle_at: null,
        ended_at: null,
        end_requested_at: null,
        key_expires_at: caller.expires_at,
        stored_bytes: 0,
        full_at: null,
        queued_at: place.status === 'queued' ? at : null,
        hibernated: false,
        resumable: false,
      }
      const opening = [{ type: 'status', at, data: place }, userMessage(turn_id, turn, at)]
      const session = sessionInsertion(trx, {
        ...fresh,
        next_index: opening.length,
        stored_bytes: opening.reduce((sum, { data }) => sum + storedSize(JSON.stringify(data)), 0),
        tools_allowed: JSON.stringify(fresh.tools_allowed),
        tools_disallowed: JSON.stringify(fresh.tools_disallowed),
        requires: '[]',
      })
      const start = commandInsertion(trx, command)
      const { change, events } = await writeEvents(trx, fresh, opening, { made: session, told: start })
      if (fields.declaration) await deps.callerTools.declare(trx, id, caller.id, fields.declaration)
      return { row: { ...fresh, ...change } as SessionRow, events }
    }
    const committed = await inTurn(project.id, caller, () => store.transact(insert, { lock: logLock }))
    return { ...committed, turn_id, command }
  }

  return { spawn, droidOf: choice.droidOf }
}
