// Calls of caller tools by droids: each is a row and an event that a caller answers. The row is open until it is answered, timed
// out or cancelled, also across crashes; a repeated call of the droid joins it by its id. Memory only holds the waiting calls,
// so that a call that is answered on this server does not read the row again.
import { randomUUID } from 'node:crypto'
import type { Caller } from '../../auth/caller.ts'
import { Fault, unknown } from '../../fault.ts'
import type { Log } from '../../log.ts'
import { isFinal } from '../../protocol/session-status.ts'
import type { Store } from '../../store/open.ts'
import {
  closedAmong,
  type NewRequest,
  openRequests,
  openRequestsShown,
  overdueRequests,
  type RequestEnd,
  type RequestRow,
  requestByCall,
  requestById,
} from '../../store/rows/callers.ts'
import type { AuditCall } from '../access/audit.ts'
import { refusal } from '../approval/approval.ts'
import type { ApprovalInbox } from '../approval/approvals.ts'
import type { EventLog } from '../events/event-log.ts'
import type { Committed } from '../events/log-writer.ts'
import type { CallerTools, Offered } from './tools.ts'

type Answer = { result: unknown } | { error: unknown }
type Ending = { status: RequestEnd; answer: Answer | null }
type Progress = { progress: number; total?: number; message?: string }
type Waiter = { done: (ending: Ending) => void; progress: (update: Progress) => void }
type From = { session_id: string; project_id: string }
export type Asking = {
  signal: AbortSignal
  progress: (update: Progress) => void
  cancelled: (reason: unknown) => boolean
  /** Throws if the tool of this name is disabled. */
  permit: (name: string) => void
  /** The audit row of the call: it is stored with the request, and written when that is closed. */
  audit: () => AuditCall
}

const defaultSeconds = 60
/** Interval of polling for answers that came through another server. */
const pollMs = 5_000

const textOf = (error: unknown): string => {
  if (typeof error === 'string') return error
  const { message } = (error ?? {}) as { message?: unknown }
  return typeof message === 'string' ? message : JSON.stringify(error)
}

export const shownRequest = ({
  id,
  session_id,
  caller_id,
  tool,
  arguments: args,
  created_at,
  deadline_at,
}: Omit<RequestRow, 'audit'>) => ({
  request_id: id,
  session_id,
  caller_id,
  tool,
  arguments: args,
  created_at,
  deadline_at,
})

const closedWords: Record<RequestEnd, string> = {
  answered: 'was already answered',
  timed_out: 'has timed out',
  cancelled: 'was cancelled',
}

export function createCallerRequests(deps: {
  store: Store
  events: EventLog
  tools: CallerTools
  approvals: Pick<ApprovalInbox, 'ask' | 'use' | 'usedBy'>
  log: Log
}) {
  const { store, events, tools } = deps
  const { db } = store
  const waiting = new Map<string, { row: RequestRow; waiters: Set<Waiter> }>()
  const looking = setInterval(() => {
    closedAmong(db, [...waiting.keys()]).then(
      (rows) => rows.forEach(tell),
      (error: unknown) => deps.log.warn('failed to poll open requests', { open: waiting.size, error }),
    )
  }, pollMs).unref()

  function tell(row: RequestRow): void {
    const ending = { status: row.status as RequestEnd, answer: row.answer as Answer | null }
    for (const waiter of waiting.get(row.id)?.waiters ?? []) waiter.done(ending)
  }

  /** Returns false if it was already closed. */
  async function close(row: RequestRow, ending: Ending, answered_by: string | null): Promise<boolean> {
    const closed = await events.closeRequest(row.session_id, { id: row.id, ...ending, answered_by })
    if (closed) tell({ ...row, ...ending })
    return closed
  }
  const timeOut = (row: RequestRow) => close(row, { status: 'timed_out', answer: null }, null)
  const cancel = (row: RequestRow) => close(row, { status: 'cancelled', answer: null }, null)

  /** The request may have been closed before the wait began. */
  const look = async (row: RequestRow): Promise<void> => {
    const now = await requestById(db, row.id)
    if (now && now.status !== 'open') tell(now)
  }

  /** The result for the droid, once the request is closed. */
  function outcome({ caller_id, tool }: RequestRow, { status, answer }: Ending): unknown {
    if (status === 'timed_out')
      throw new Fault('timeout', `caller "${caller_id}" did not answer ${tool} in time`)
    if (status === 'cancelled') throw new Fault('conflict', `the call of ${tool} was cancelled`)
    if (!answer || 'result' in answer) return answer?.result ?? null
    return {
      content: [{ type: 'text', text: textOf(answer.error) }],
      structuredContent: { error: answer.error },
      isError: true,
    }
  }

  async function wait(
    row: RequestRow,
    { signal, progress, cancelled }: Asking,
    begin: () => Promise<void>,
  ): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<Ending>()
    const waiter: Waiter = { done: resolve, progress }
    const entry = waiting.get(row.id) ?? { row, waiters: new Set() }
    waiting.set(row.id, entry)
    entry.waiters.add(waiter)
    const logFailure = (error: unknown) =>
      deps.log.warn('failed to close a request', { request_id: row.id, error })
    const timer = setTimeout(
      () =>
        void timeOut(row)
          .then((closed) => (closed ? undefined : look(row)))
          .catch(logFailure),
      Math.max(0, Date.parse(row.deadline_at) - Date.now()),
    )
    // A lost connection leaves the request open: the droid's client repeats the call.
    const onAbort = () => {
      if (cancelled(signal.reason)) void cancel(row).catch(logFailure)
      reject(signal.reason)
    }
    try {
      await begin()
      if (signal.aborted) onAbort()
      else signal.addEventListener('abort', onAbort, { once: true })
      return outcome(row, await promise)
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      entry.waiters.delete(waiter)
      if (entry.waiters.size === 0) waiting.delete(row.id)
    }
  }

  /** Returns when the call is approved; its time-out begins afterwards. Throws if it is not. */
  async function requireApproval(
    { session_id, project_id }: From,
    { caller, tool, name }: Offered,
    args: Record<string, unknown>,
    call_id: string,
    { signal, cancelled }: Asking,
  ): Promise<void> {
    // The request of this call exists: it was approved before.
    if (await requestByCall(db, session_id, call_id)) return
    // Another token may declare the same caller_id: what is remembered is for this one.
    const server_id = `caller ${caller.declared_by} ${caller.caller_id}`
    const call = { session_id, server_id, tool: tool.name, arguments: args, call_id }
    const decision = await deps.approvals.ask(
      {
        ...call,
        kind: 'tool',
        project_id,
        server: caller.caller_id,
        allowed_at: null,
        set_by_admin: false,
        because: `caller "${caller.caller_id}" requires approval of this tool`,
      },
      { signal, cancelled },
    )
    if (decision.decision === 'deny') throw refusal(name, decision)
    if (decision.by === 'rule' || (await deps.approvals.use(db, decision.approval_id, call))) return
    // A crash after the use: there is one request for a call_id, so this call is not made twice.
    if ((await deps.approvals.usedBy(decision.approval_id)) === call_id) return
    throw new Fault('conflict', `approval ${decision.approval_id} was used by another call of ${name}`, {
      hint: 'repeat the call to ask again',
    })
  }

  /** The tool, if the droid may call it with these arguments. */
  async function offered(
    { session_id, project_id }: From,
    name: string,
    args: Record<string, unknown>,
    how: Asking,
  ): Promise<Offered> {
    const offer = await tools.find(session_id, name)
    how.permit(offer.name)
    await tools.checkArguments(project_id, offer, args)
    return offer
  }

  async function ask(
    from: From,
    name: string,
    args: Record<string, unknown>,
    call_id: string = randomUUID(),
    how: Asking,
  ): Promise<unknown> {
    const { session_id } = from
    let offer: Offered
    try {
      offer = await offered(from, name, args, how)
      if (offer.tool.requires_approval) {
        await requireApproval(from, offer, args, call_id, how)
        // The caller may have changed its tools meanwhile.
        offer = await offered(from, offer.name, args, how)
      }
    } catch (error) {
      // The tool may have been removed or changed while an earlier request of this call is still open.
      const before = await requestByCall(db, session_id, call_id)
      if (!before) throw error
      how.audit()
      return await wait(before, how, () => look(before))
    }
    const created = Date.now()
    const id = randomUUID()
    const row: RequestRow & NewRequest = {
      id,
      session_id,
      caller_id: offer.caller.caller_id,
      tool: offer.tool.name,
      arguments: args,
      call_id,
      status: 'open',
      answer: null,
      answered_by: null,
      created_at: new Date(created).toISOString(),
      deadline_at: new Date(created + (offer.tool.timeout_seconds ?? defaultSeconds) * 1000).toISOString(),
      answered_at: null,
      audit: { ...how.audit(), action: offer.name, request_id: id },
    }
    let known = false
    // The wait begins before the commit: the answer may arrive before the commit is confirmed.
    const answered = await wait(row, how, async () => {
      known = !(await events.ask(row))
      if (known) throw new Fault('conflict', 'this call was already made')
    }).catch((error: unknown) => {
      if (!known) throw error
    })
    if (!known) return answered
    const before = await requestByCall(db, session_id, row.call_id)
    if (!before) throw unknown('session', session_id)
    return await wait(before, how, () => look(before))
  }

  /** The request, if this caller may answer it. */
  async function own(caller: Caller, session_id: string, request_id: string): Promise<RequestRow> {
    const row = waiting.get(request_id)?.row ?? (await requestById(db, request_id))
    if (!row || row.session_id !== session_id) throw unknown('request', request_id)
    const declared_by = await tools.declaredBy(session_id, row.caller_id)
    // Requests for tools without a declarer may be answered by any token that may write to the project.
    if (declared_by !== undefined && declared_by !== caller.id)
      throw new Fault(
        'forbidden',
        `request ${request_id} is for caller "${row.caller_id}", which another token declared`,
      )
    return row
  }

  async function cancelAll(session_id: string): Promise<void> {
    for (const row of await openRequests(db, [session_id])) await cancel(row)
  }

  async function refuse(request_id: string): Promise<never> {
    const now = await requestById(db, request_id)
    const end = now?.status === 'open' ? 'timed_out' : ((now?.status ?? 'cancelled') as RequestEnd)
    throw new Fault('conflict', `request ${request_id} ${closedWords[end]}`)
  }

  return {
    ask,
    async answer(caller: Caller, session_id: string, request_id: string, answer: Answer): Promise<void> {
      const row = await own(caller, session_id, request_id)
      if (!(await close(row, { status: 'answered', answer }, caller.id))) await refuse(request_id)
    },
    async progress(caller: Caller, session_id: string, request_id: string, update: Progress) {
      const row = await own(caller, session_id, request_id)
      const waiters = waiting.get(row.id)?.waiters
      if (!waiters && (await requestById(db, row.id))?.status !== 'open') await refuse(request_id)
      for (const waiter of waiters ?? []) waiter.progress(update)
    },
    shown: (session_ids: string[]) => openRequestsShown(db, session_ids),
    /** For requests whose waiting call is gone: their deadlines are in the rows. */
    async expire() {
      for (const row of await overdueRequests(db, 1000)) await timeOut(row)
    },
    /** The droid of a session that is over does not wait for its requests any more. */
    onCommit({ rows }: Committed): void {
      for (const { id } of rows.filter(({ status }) => isFinal(status)))
        cancelAll(id).catch((error: unknown) =>
          deps.log.warn('failed to cancel open requests', { session_id: id, error }),
        )
    },
    stop: () => clearInterval(looking),
  }
}
export type CallerRequests = ReturnType<typeof createCallerRequests>
