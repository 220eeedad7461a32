// Writes the events of supervisors to the event log. Events of any number of sessions that arrive during a transaction are
// committed by the next one, together with the new state of the sessions: many small writes cost one flush to disk. The
// supervisor is answered after the commit. It does not use `lib/batch.ts`: its queue is fair between containers, and it
// writes requests that may have crashed the server separately.
import { newApprovalId } from '../../ids.ts'
import { isFinal, isStatus, mayFollow, type SessionStatus } from '../../protocol/session-status.ts'
import { isOutage } from '../../store/errors.ts'
import type { Db, Store } from '../../store/open.ts'
import { cancelApprovals, insertApprovals } from '../../store/rows/approvals.ts'
import type { TouchedSession } from '../../store/rows/callers.ts'
import { deleteSessionCommands, sessionsToStart } from '../../store/rows/session/commands.ts'
import { insertEvents, logLock, type NewEvent, type PlacedEvent } from '../../store/rows/session/events.ts'
import {
  advancement,
  type LockedSession,
  lockSessions,
  type SessionChange,
  type SessionRow,
  updateSession,
} from '../../store/rows/session/sessions.ts'
import { addUsage } from '../../store/rows/usage.ts'
import { fold, usageIn } from '../session/state.ts'
import { withoutContent } from './dropped-events.ts'
import { createLogQueue, partsOf } from './log-queue.ts'
import type { Poison } from './poison.ts'
import { fullEvents, limitBytes, nearlyFull, storedSize } from './session-storage.ts'

/** `previous_run`: reported by the droid before its container was restarted. */
export type Numbered = NewEvent & { seq: number; previous_run?: boolean }
export type EventsAnswer = { committed_seq: number } | { unknown: true }

type Job = {
  session_id: string
  project_id: string
  events: Numbered[]
  /** The data of the events, as text: serialized on arrival, so that a commit does not do it for all at once. */
  json: string[]
  /** Length of all its data. */
  characters: number
  done: PromiseWithResolvers<EventsAnswer>
}

/** A session in this transaction: its row before, and the events that are added. */
type Open = {
  row: LockedSession
  next_index: number
  committed_seq: number
  added: NewEvent[]
  /** The data of the added events, as text: it is measured and then written. */
  json: string[]
  stored_bytes: number
  limit: number
  /** It reached its limit, now or before. */
  full: boolean
}

export type Committed = { rows: TouchedSession[]; events: PlacedEvent[] }

const textOf = (events: NewEvent[]): string[] => events.map(({ data }) => JSON.stringify(data))

/** Appends events to a session. The caller holds the lock of the log, and the row is current. */
export async function writeEvents(
  trx: Db,
  row: SessionRow,
  added: NewEvent[],
  together: Parameters<typeof insertEvents>[3] = {},
): Promise<{ change: SessionChange; events: PlacedEvent[] }> {
  const { id: session_id, project_id, root_session_id, next_index } = row
  const place = { session_id, project_id, root_session_id }
  const json = textOf(added)
  const events = added.map((event, at) => ({
    ...event,
    ...place,
    index: next_index + at,
    bytes: json[at]!.length,
  }))
  await insertEvents(trx, events, json, together)
  await addUsage(trx, usageIn(row, added))
  const stored_bytes = row.stored_bytes + sum(json.map(storedSize))
  return { change: { ...fold(row, added), next_index: next_index + added.length, stored_bytes }, events }
}

const sum = (numbers: number[]): number => numbers.reduce((total, one) => total + one, 0)

const isEnd = (event: NewEvent) => event.type === 'status' && isFinal(String(event.data.status))

/** What is not a status changes nothing, and is kept as an event of a session that has a droid. */
const mayReport = (from: SessionStatus, to: unknown): boolean =>
  mayFollow('container', from, isStatus(to) ? to : 'running')

const requiredBy = ({ status, requires }: NewEvent['data']): string[] =>
  status === 'waiting' && Array.isArray(requires) ? requires.map(String) : []

const recordOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}

/** Approvals are listed in pages; the event has the full text. */
const approvalCharacters = 16 * 1024
function storedToolCall(given: unknown): string {
  const text = JSON.stringify(given ?? {})
  if (text.length <= approvalCharacters) return text
  const { toolCallId, title, kind } = recordOf(given)
  const clip = (value: unknown) =>
    typeof value === 'string' ? value.slice(0, 1000).toWellFormed() : undefined
  return JSON.stringify({
    toolCallId: clip(toolCallId),
    title: clip(title),
    kind: clip(kind),
    truncated: true,
  })
}
function storedOptions(given: unknown): string {
  const text = JSON.stringify(given ?? [])
  return text.length <= approvalCharacters ? text : '[]'
}

const permissions = (row: SessionRow, events: NewEvent[]) =>
  events
    .filter((event) => event.type === 'permission_request')
    .map(({ at, data }) => ({
      id: newApprovalId(),
      session_id: row.id,
      project_id: row.project_id,
      request_id: String(data.request_id),
      tool_call: storedToolCall(data.tool_call),
      options: storedOptions(data.options),
      status: 'open' as const,
      reason: null,
      decided_by: null,
      created_at: at,
      decided_at: null,
    }))

const keyOf = ({ session_id, events }: Job) => `${session_id}:${events[0]?.seq}`

export function createLogWriter(deps: {
  store: Store
  poison: Poison
  /** The limit for sessions of a project without its own limit. */
  session_mb: number
  onCommit: (committed: Committed) => void
  /** It is unknown whether a write to these sessions was committed. */
  onDoubt: (session_ids: string[]) => void
}) {
  const { store, poison } = deps
  const queue = createLogQueue<Job>()
  let running: Promise<void> | undefined
  let waiting = 0
  /** Ends the pause of the writer early. */
  let endRest = () => {}

  function receive(job: Job, open: Open | undefined, restarting: Set<string>): EventsAnswer {
    // A container may report events only for sessions of its project.
    if (!open || open.row.project_id !== job.project_id) return { unknown: true }
    // A session that the server has ended is not ended again, least of all while its next start is on the way. Nor can
    // a container start a session, which would make its key valid again.
    const isLate = (event: NewEvent, previous_run: boolean) =>
      (event.type === 'status' && !mayReport(open.row.status, event.data.status)) ||
      (isEnd(event) && previous_run && restarting.has(job.session_id))
    for (const [at, { seq, previous_run = false, ...event }] of job.events.entries()) {
      // A repeat, or after a gap: the sender continues from the number in the answer.
      if (seq !== open.committed_seq + 1) continue
      open.committed_seq = seq
      if (!isLate(event, previous_run)) add(open, event, job.json[at]!)
    }
    // The supervisor then stops the droid and sends nothing more.
    return open.full ? { unknown: true } : { committed_seq: open.committed_seq }
  }

  function add(open: Open, event: NewEvent, json: string): void {
    if (open.full) return
    const stored = open.stored_bytes + storedSize(json)
    const fits = stored <= open.limit
    const events = fits
      ? [event, ...nearlyFull(open.stored_bytes, stored, open.limit)]
      : fullEvents(open.row, open.limit)
    open.full = !fits
    for (const [at, added] of events.entries()) {
      const text = fits && at === 0 ? json : JSON.stringify(added.data)
      open.added.push(added)
      open.json.push(text)
      open.stored_bytes += storedSize(text)
    }
  }

  const openFor = (row: LockedSession): Open => ({
    row,
    next_index: row.next_index,
    committed_seq: row.committed_seq,
    added: [],
    json: [],
    stored_bytes: row.stored_bytes,
    limit: limitBytes(deps.session_mb, row),
    full: row.full_at !== null,
  })

  /** Changes that follow from the events, except for the row of the session. */
  async function settle(trx: Db, { row, added, full }: Open): Promise<void> {
    if (full && row.full_at === null) await deleteSessionCommands(trx, row.id)
    const approvals = permissions(row, added)
    if (approvals.length > 0) await insertApprovals(trx, approvals)
    // A droid that continues no longer waits for an answer: its turn was cancelled. One that is idle waits for nothing.
    const said = added.findLast((event) => event.type === 'status')?.data
    if (said && (approvals.length > 0 || row.status === 'waiting'))
      await cancelApprovals(trx, row.id, 'the droid no longer waits for a decision', {
        still: requiredBy(said),
        all: said.status === 'idle',
      })
  }

  async function append(trx: Db, given: Job[]): Promise<{ answers: EventsAnswer[] } & Committed> {
    const rows = await lockSessions(trx, [...new Set(given.map((job) => job.session_id))])
    const opened = new Map<string, Open>()
    for (const [id, row] of rows) opened.set(id, openFor(row))
    const late = given.filter((job) => job.events.some((event) => event.previous_run && isEnd(event)))
    const restarting = await sessionsToStart(
      trx,
      late.map((job) => job.session_id),
    )
    const jobs = given.map((job) => {
      const refused = poison.begin({ project_id: job.project_id, key: keyOf(job), what: 'events' })
      if (!refused) return job
      const events = withoutContent(job.events, refused.message)
      return { ...job, events, json: textOf(events) }
    })
    const answers = jobs.map((job) => receive(job, opened.get(job.session_id), restarting))
    const events = [...opened.values()].flatMap(({ row, added, json, next_index }) =>
      added.map((event, at) => ({
        ...event,
        session_id: row.id,
        project_id: row.project_id,
        root_session_id: row.root_session_id,
        index: next_index + at,
        bytes: json[at]!.length,
      })),
    )
    const changes = [...opened.values()].map(
      ({ row, added, next_index, committed_seq, stored_bytes, full }) => ({
        row,
        change: {
          ...fold(row, added),
          ...(full && row.full_at === null ? { full_at: new Date().toISOString() } : {}),
        },
        moved: { next_index: next_index + added.length, committed_seq, stored_bytes },
      }),
    )
    // Most batches change only the indices, which one statement updates for all sessions.
    const advanced = changes.filter(({ change }) => Object.keys(change).length === 0)
    const changed = changes.filter(({ change }) => Object.keys(change).length > 0)
    const moved = advanced.map(({ row, moved }) => ({ id: row.id, ...moved }))
    const json = [...opened.values()].flatMap((open) => open.json)
    await insertEvents(trx, events, json, moved.length > 0 ? { moved: advancement(moved) } : {})
    for (const { row, change, moved } of changed) await updateSession(trx, row.id, { ...change, ...moved })
    for (const open of opened.values()) await settle(trx, open)
    await addUsage(
      trx,
      [...opened.values()].flatMap(({ row, added }) => usageIn(row, added)),
    )
    return {
      answers,
      rows: changes.map(({ row, change, moved }) => ({ ...row, ...change, ...moved }) as SessionRow),
      events,
    }
  }

  const commit = (jobs: Job[]) => store.transact((trx) => append(trx, jobs), { lock: logLock })

  /** Writes each event separately, to find the one that ends the server: only that one is dropped. */
  async function writeSingly(job: Job): Promise<void> {
    let answer: EventsAnswer | undefined
    try {
      for (const [at, event] of job.events.entries()) {
        const done = Promise.withResolvers<EventsAnswer>()
        const json = job.json[at]!
        await write([{ ...job, events: [event], json: [json], characters: json.length, done }])
        answer = await done.promise
      }
      job.done.resolve(answer!)
    } catch (error) {
      job.done.reject(error)
    }
  }

  async function write(jobs: Job[]): Promise<void> {
    const suspects = jobs.filter((job) => poison.isSuspect(job.project_id, keyOf(job)))
    if (suspects.length > 0 && (jobs.length > 1 || suspects[0]!.events.length > 1)) {
      const others = jobs.filter((job) => !suspects.includes(job))
      if (others.length > 0) await write(others)
      for (const job of suspects) await writeSingly(job)
      return
    }
    try {
      const { answers, ...committed } = await commit(jobs)
      deps.onCommit(committed)
      for (const [at, job] of jobs.entries()) job.done.resolve(answers[at]!)
    } catch (error) {
      // It may be committed nevertheless. A repeat is recognised by its sequence numbers.
      deps.onDoubt(jobs.map(({ session_id }) => session_id))
      // A batch that the database rejects must not block those of other containers each time it is sent again.
      if (jobs.length > 1 && !isOutage(error)) for (const job of jobs) await write([job])
      else for (const job of jobs) job.done.reject(error)
    }
  }

  async function rest(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, ms)
    endRest = resolve
    await promise
    clearTimeout(timer)
  }

  async function drain(): Promise<void> {
    while (!queue.empty) {
      const { rest_ms } = queue
      if (rest_ms > 0) {
        await rest(rest_ms)
        continue
      }
      const began = performance.now()
      await write(queue.take())
      queue.written(performance.now() - began)
    }
    running = undefined
  }

  return {
    /** Events of a supervisor; those that are already committed are skipped. */
    async receive(project_id: string, session_id: string, events: Numbered[]): Promise<EventsAnswer> {
      const parts = partsOf(events, textOf(events)).map((part): Job => {
        const done = Promise.withResolvers<EventsAnswer>()
        return { project_id, session_id, ...part, done }
      })
      queue.push(session_id, parts)
      running ??= drain()
      endRest()
      // A part that fails leaves a gap, and later parts are skipped: the supervisor sends them again.
      waiting += events.length
      try {
        const answers = await Promise.all(parts.map(({ done }) => done.promise))
        return answers.at(-1)!
      } finally {
        waiting -= events.length
      }
    },
    /** Events that are received and not committed. */
    waiting: () => waiting,
    close: async () => await running,
  }
}
