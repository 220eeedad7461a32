// The approval inbox. A question is committed as a row and an event before anything waits for it; while it is open, its session is
// `waiting`. It is closed once: by a decision, its deadline, its asker, or the end of its session. An allowed tool call has a
// receipt that is used once. `question.ts` builds rows, `waiting.ts` holds the calls that wait, `may-decide.ts` says who decides.
import type { Caller } from '../../auth/caller.ts'
import type { Config } from '../../config/load.ts'
import { Fault, unknown } from '../../fault.ts'
import { hashOf } from '../../lib/canonical-json.ts'
import { createKeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import type { Db, Store } from '../../store/open.ts'
import type { ApprovalRow, Closing } from '../../store/rows/approvals.ts'
import * as rows from '../../store/rows/approvals.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import { insertCommand } from '../../store/rows/session/commands.ts'
import { actsNoMore, type LockedSession } from '../../store/rows/session/sessions.ts'
import type { SchemaCheck } from '../caller/tools.ts'
import type { ProjectNames } from '../project/names.ts'
import { type SessionChanging, status, type Write } from '../session/change.ts'
import type { RequestDispatch } from '../session/dispatch.ts'
import { statusWith } from '../session/state.ts'
import { checkAnswer, tenantOf } from './answer.ts'
import type { Answer, Approvals, DecidedApproval, Decision, Question, ToolQuestion } from './approval.ts'
import { isAdmin, requireMayDecide, requireMayRevoke } from './may-decide.ts'
import { decisionEvent, identityOf, requestEvent, requestedSchema, rowOf, titleOf } from './question.ts'
import { shown } from './shown.ts'
import { createWaiting } from './waiting.ts'

type Deps = {
  store: Store
  config: Pick<Config, 'approvals'>
  log: Log
  change: SessionChanging
  schema: SchemaCheck
  requestDispatch: RequestDispatch
  projectNames: Pick<ProjectNames, 'of'>
}
type Effect = (trx: Db, approval: DecidedApproval) => Promise<void>

const sweepAtOnce = 500

const decided = (row: ApprovalRow): DecidedApproval => ({ ...row, approval_id: row.id })

/** What the asker gets for a closed row. */
function decisionOf(row: ApprovalRow): Decision {
  const approval_id = row.id
  if (row.status === 'allowed')
    return { decision: 'allow', by: 'decision', approval_id, content: row.content }
  const words = {
    denied: 'it was denied',
    expired: 'no decision was made in time',
    cancelled: 'it was cancelled',
  }
  const known = row.status as keyof typeof words
  return { decision: 'deny', status: known, approval_id, reason: row.reason ?? words[known] }
}

export type ApprovalInbox = Approvals & ReturnType<typeof inbox>
export const createApprovals = (deps: Deps): ApprovalInbox => inbox(deps)

function inbox({ store, log, change, schema, config: { approvals: limits }, ...deps }: Deps) {
  const { db } = store
  const effects = new Map<string, Effect>()
  // One at a time per project: otherwise a container that asks and cancels in a loop fills the queue of the log lock.
  const serial = createKeyedQueue()
  const waiting = createWaiting({
    db,
    log,
    expire: async (row) => void (await expire(row)),
    cancel: async (row) => void (await close(row, cancelled('the droid cancelled the call'))),
  })

  const cancelled = (reason: string): Closing => ({ status: 'cancelled', reason, decided_by: null })

  async function require(id: string): Promise<ApprovalRow> {
    const row = await rows.approvalById(db, id)
    if (!row) throw unknown('approval', id)
    return row
  }

  async function described(found: ApprovalRow[]) {
    const nameOf = await deps.projectNames.of(found.flatMap(({ project_id }) => project_id ?? []))
    return found.map((row) => shown(row, row.project_id === null ? null : nameOf(row.project_id)))
  }
  const describe = async (row: ApprovalRow) => (await described([row]))[0]!

  /** Writes the events of a session together with the status that its open questions give it. */
  async function writeWithStatus(
    trx: Db,
    row: LockedSession,
    write: Write,
    event: ReturnType<typeof requestEvent>,
  ) {
    const next = statusWith(row, await rows.hasOpenQuestion(trx, row.id))
    await write(next === row.status ? [event] : [event, status(next)])
  }

  /** The closed row; undefined if it was not open any more. */
  async function close(asked: ApprovalRow, closing: Closing): Promise<ApprovalRow | undefined> {
    const { id, kind, session_id } = asked
    const done =
      session_id === null
        ? await store.transact(async (trx) => {
            const row = await rows.closeApproval(trx, id, closing)
            if (row) await effects.get(kind)?.(trx, decided(row))
            return row
          })
        : await change(session_id, async (trx, session, write) => {
            const row = await rows.closeApproval(trx, id, closing)
            if (!row) return undefined
            if (kind !== 'permission') {
              await writeWithStatus(trx, session, write, decisionEvent(row))
              return row
            }
            await write([decisionEvent(row)])
            await insertCommand(trx, {
              session_id,
              project_id: session.project_id,
              kind: 'permission_answer',
              payload: {
                request_id: row.request_id,
                outcome: { outcome: row.status === 'allowed' ? 'allow' : 'deny' },
              },
            })
            return row
          })
    if (!done) return undefined
    waiting.tell(done)
    if (kind === 'permission' && done.project_id) deps.requestDispatch(done.project_id)
    return done
  }

  const expire = (row: ApprovalRow) =>
    close(row, {
      status: 'expired',
      reason: `no decision was made before ${row.expires_at}`,
      decided_by: null,
    })

  async function requireRoom(trx: Db, { session_id, project_id }: Question): Promise<void> {
    const open = await rows.countOpen(trx, { session_id, project_id })
    const full = (what: string, limit: number) =>
      new Fault('exhausted', `${what} has ${limit} open approvals`, {
        hint: 'wait until some of them are decided (approval list)',
      })
    if (session_id !== null && open.session >= limits.open_per_session)
      throw full('the session', limits.open_per_session)
    if (open.project >= limits.open_per_project)
      throw full(project_id === null ? 'the server' : 'the project', limits.open_per_project)
  }

  /** An earlier question about the same call that nothing waits for. */
  async function abandoned(receipt: rows.ReceiptBinding): Promise<ApprovalRow | undefined> {
    const unused = await rows.unusedQuestions(db, receipt, limits.open_per_session + 1)
    return unused.find(({ id }) => !waiting.isWaiting(id))
  }

  async function insert(question: Question, made: rows.NewApproval): Promise<ApprovalRow | undefined> {
    if (question.session_id === null) return await rows.insertQuestion(db, made)
    return await change(question.session_id, async (trx, session, write) => {
      if (actsNoMore(session)) throw new Fault('conflict', `session ${session.id} is over`)
      await requireRoom(trx, question)
      const row = await rows.insertQuestion(trx, made)
      if (row) await writeWithStatus(trx, session, write, requestEvent(row))
      return row
    })
  }

  /** The row of the question, new or of an earlier one. */
  async function place(question: Question): Promise<ApprovalRow> {
    const wanted = question.kind === 'elicitation' ? requestedSchema(question.request) : undefined
    if (wanted) await schema.declare(tenantOf(question), wanted)
    const same = () => rows.sameQuestion(db, identityOf(question))
    return await serial(tenantOf(question), async () => {
      const repeated = await same()
      if (repeated) return repeated
      // Before the arguments are hashed, which costs as much as they are large.
      await requireRoom(db, question)
      const receipt = question.kind === 'tool' ? receiptOf(question) : undefined
      const left = receipt && (await abandoned(receipt))
      if (left) return left
      const made = rowOf(question, receipt?.arguments_hash ?? null, limits.expire_hours * 3600)
      const row = (await insert(question, made)) ?? (await same())
      if (!row)
        throw new Fault('conflict', 'the question was closed while it was asked', { hint: 'try again' })
      return row
    })
  }

  const receiptOf = (
    of: Pick<ToolQuestion, 'session_id' | 'server_id' | 'arguments'> & { tool: string | null },
  ): rows.ReceiptBinding => ({
    session_id: of.session_id,
    server_id: of.server_id,
    tool: of.tool ?? '',
    arguments_hash: hashOf(of.arguments),
  })

  /** A denial counts before a permission; what an admin wants asked is allowed only by what an admin allowed. */
  async function remembered(question: ToolQuestion): Promise<Decision | undefined> {
    const found = await rows.rememberedDecisions(db, { ...question, tool: question.tool })
    const denied = found.find((row) => row.status === 'denied')
    if (denied)
      return {
        decision: 'deny',
        status: 'denied',
        approval_id: denied.id,
        reason: denied.reason ?? 'it was denied for all calls of this tool',
      }
    const allowed = found.find(
      (row) => row.status === 'allowed' && (row.decided_by_admin || !question.set_by_admin),
    )
    return allowed && { decision: 'allow', by: 'rule', approval_id: allowed.id, content: null }
  }

  const ask: Approvals['ask'] = async (question, how) => {
    const known = question.kind === 'tool' ? await remembered(question) : undefined
    if (known) return known
    how.signal.throwIfAborted()
    const row = await place(question)
    if (row.status === 'open') how.onAsked?.(row.id)
    return decisionOf(await waiting.wait(row, how))
  }

  async function decide(caller: Caller, id: string, answer: Answer) {
    const asked = await require(id)
    await requireMayDecide(db, caller, asked, answer)
    if (asked.status === 'open') await checkAnswer(schema, asked, answer)
    const done = await close(asked, {
      status: answer.decision === 'allow' ? 'allowed' : 'denied',
      reason: answer.reason ?? null,
      decided_by: caller.id,
      decided_by_admin: isAdmin(caller),
      ...(asked.kind === 'permission'
        ? {}
        : { scope: answer.scope ?? 'once', content: answer.content ?? null }),
    })
    if (done) return await describe(done)
    const now = await require(id)
    if (now.status === 'open') await expire(now)
    throw new Fault('conflict', `approval ${id} is already ${now.status === 'open' ? 'expired' : now.status}`)
  }

  async function closeAll(found: ApprovalRow[], closing: Closing): Promise<string[]> {
    const closed: string[] = []
    for (const row of found) if (await close(row, closing)) closed.push(row.id)
    return closed
  }

  return {
    ask,
    post: async (question: Question & { session_id: null }) => ({ approval_id: (await place(question)).id }),
    use: async (trx: Db, id: string, binding: Parameters<Approvals['use']>[2]) =>
      await rows.useReceipt(trx, id, receiptOf(binding), binding.call_id),
    /** The call that used the receipt; null if none has. */
    usedBy: async (id: string) => (await rows.approvalById(db, id))?.used_by ?? null,
    onDecided: (kind: ApprovalRow['kind'], effect: Effect) => void effects.set(kind, effect),
    resolve: async (
      { kind, server_id, tool, key }: Parameters<Approvals['resolve']>[0],
      outcome: Parameters<Approvals['resolve']>[1],
    ) => {
      const of = {
        kind,
        server_id,
        ...(tool === undefined ? {} : { tool }),
        ...(key ? { ask_key: key } : {}),
      }
      return await closeAll(await rows.openAbout(db, of), outcome)
    },
    async forgetServer(server_id: string, reason: string) {
      await closeAll(await rows.openAbout(db, { server_id }), cancelled(reason))
      await rows.revokeRemembered(db, { server_id }, null)
    },
    decide,
    async revoke(caller: Caller, id: string) {
      const asked = await require(id)
      requireMayRevoke(caller, asked)
      const done = await rows.revokeRemembered(db, { id }, caller.id)
      if (done) return await describe(done)
      throw new Fault('conflict', `approval ${id} is not a remembered decision`, {
        hint: 'approval list with scope returns those that can be revoked',
      })
    },
    get: async (id: string) => await describe(await require(id)),
    /** Null: of no project, undefined: unknown. */
    projectOf: async (id: string) => (await rows.approvalById(db, id))?.project_id,
    async list(filter: rows.ApprovalFilter & PageRequest) {
      const { items, next_cursor } = await rows.listApprovals(db, filter)
      return { approvals: await described(items), next_cursor }
    },
    /** By session: the ids that it waits for. */
    openOf: (session_ids: string[]) => rows.openQuestions(db, session_ids),
    /** For questions that nothing waits for: their deadlines are in the rows. */
    async expireOverdue() {
      for (const row of await rows.overdueApprovals(db, sweepAtOnce))
        await expire(row).catch((error: unknown) =>
          log.warn('failed to expire an approval', { approval_id: row.id, title: titleOf(row), error }),
        )
    },
    deleteOld: async (days: number) =>
      await rows.deleteClosedApprovals(db, new Date(Date.now() - days * 86_400_000)),
    onCommit: waiting.onCommit,
    stop: waiting.stop,
  }
}
