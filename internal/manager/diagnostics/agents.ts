// Live sessions as a tree, and what one of them does at the moment: from its rows, and from the supervisor of its container.
// What a container reports is bounded and shown as it is: false figures are about itself.
import { messageOf, unknown } from '../../fault.ts'
import type { Relay } from '../../relay/relay.ts'
import type { Store } from '../../store/open.ts'
import { listApprovals } from '../../store/rows/approvals.ts'
import { openRequestHeads } from '../../store/rows/callers.ts'
import { queueOf } from '../../store/rows/session/commands.ts'
import { type LivingSession, livingSessions } from '../../store/rows/session/living.ts'
import { sessionById } from '../../store/rows/session/sessions.ts'
import type { ProjectNames } from '../project/names.ts'

const answerMs = 5_000
const mebibyte = 1024 * 1024
const mostListed = 100
const mostCharacters = 200

type Deps = {
  store: Store
  relay: Pick<Relay, 'supervisor'>
  paused: (project_id: string) => boolean
  projectNames: ProjectNames
}

const clip = (text: string) => text.slice(0, mostCharacters).toWellFormed()
const toMb = (bytes: number) => Math.round((bytes / mebibyte) * 10) / 10

/** Each session is followed by its children. One whose parent is not in the list is a root. */
export function treeOrder<T extends { id: string; parent_session_id: string | null }>(rows: T[]): T[] {
  const known = new Set(rows.map(({ id }) => id))
  const children = Map.groupBy(rows, ({ parent_session_id: parent }) =>
    parent !== null && known.has(parent) ? parent : null,
  )
  const ordered: T[] = []
  const left = (children.get(null) ?? []).toReversed()
  for (let row = left.pop(); row; row = left.pop()) {
    ordered.push(row)
    left.push(...(children.get(row.id) ?? []).toReversed())
  }
  return ordered
}

const lastEvent = ({ last_index, last_type, last_at }: LivingSession) =>
  last_index === null || last_type === null || last_at === null
    ? null
    : { index: last_index, type: last_type, at: last_at }

export function createAgents({ store, relay, paused, projectNames }: Deps) {
  const { db } = store

  async function agents({ project_id, limit }: { project_id?: string | undefined; limit: number }) {
    const found = await livingSessions(db, { project_id, limit: limit + 1 })
    const nameOf = await projectNames.of(found.map((row) => row.project_id))
    const now = Date.now()
    return {
      agents: treeOrder(found)
        .slice(0, limit)
        .map((row) => ({
          session_id: row.id,
          parent_session_id: row.parent_session_id,
          depth: row.depth,
          project_id: row.project_id,
          project_name: nameOf(row.project_id),
          workspace_id: row.workspace_id,
          droid: row.droid,
          model: row.model,
          status: row.status,
          hibernated: row.hibernated,
          turns: row.turns,
          created_at: row.created_at,
          age_seconds: Math.max(0, Math.round((now - Date.parse(row.created_at)) / 1000)),
          last_event: lastEvent(row),
          usage: {
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            cost_usd: row.cost_usd,
          },
        })),
      truncated: found.length > limit,
    }
  }

  async function reported(project_id: string, session_id: string) {
    const link = relay.supervisor(project_id)
    if (!link) return { connected: false, reason: 'the container is not connected' }
    if (paused(project_id)) return { connected: true, reason: 'the container is paused' }
    const how = { timeout_ms: answerMs }
    try {
      const [state, processes] = await Promise.all([
        link.send('state', {}, how),
        link.send('processes', { session_id }, how),
      ])
      return {
        connected: true,
        reason: null,
        session: state.sessions.find((one) => one.session_id === session_id),
        processes,
      }
    } catch (error) {
      return { connected: true, reason: messageOf(error) }
    }
  }

  async function agentState(session_id: string) {
    const row = await sessionById(db, session_id)
    if (!row) throw unknown('session', session_id)
    const [commands, requests, approvals, container] = await Promise.all([
      queueOf(db, session_id, mostListed),
      openRequestHeads(db, session_id, mostListed),
      listApprovals(db, { session_id, status: 'open', limit: mostListed }),
      reported(row.project_id, session_id),
    ])
    const { session, processes } = container
    return {
      session_id,
      project_id: row.project_id,
      droid: row.droid,
      status: row.status,
      reason: row.reason,
      queue: {
        turn_id: session?.turn_id ? clip(session.turn_id) : null,
        queued_turn_ids: (session?.queued_turn_ids ?? []).slice(0, mostListed).map(clip),
        commands: commands.map(({ id, kind, created_at }) => ({ command_id: id, kind, created_at })),
      },
      pending_requests: [
        ...requests.map((request) => ({
          request_id: request.id,
          kind: 'caller_tool' as const,
          tool: `${request.caller_id}_${request.tool}`,
          created_at: request.created_at,
          deadline_at: request.deadline_at,
        })),
        ...approvals.items.map((approval) => ({
          request_id: clip(approval.request_id),
          kind: 'permission' as const,
          tool: typeof approval.tool_call.title === 'string' ? clip(approval.tool_call.title) : null,
          created_at: approval.created_at,
          deadline_at: null,
        })),
      ],
      journal: {
        last_index: row.next_index - 1,
        committed_seq: row.committed_seq,
        supervisor_seq: session?.last_seq ?? null,
        uncommitted: session ? Math.max(0, session.last_seq - row.committed_seq) : null,
      },
      supervisor: {
        connected: container.connected,
        live: session?.live ?? null,
        reason: container.reason,
      },
      memory_mb: session?.memory_bytes === undefined ? null : toMb(session.memory_bytes),
      process_count: processes?.total ?? null,
      processes: (processes?.processes ?? []).map(({ memory_bytes, ...process }) => ({
        ...process,
        memory_mb: toMb(memory_bytes),
      })),
    }
  }

  return { agents, agentState }
}
