// How open questions change the status of their session, together with requests for caller tools, compared with the table of
// states and with what a reader of the events computes.
import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  isFinal,
  mayFollow,
  type SessionStatus,
  sessionStatuses,
} from '../../../internal/protocol/session-status.ts'
import { writeCalls } from '../../../internal/store/rows/callers.ts'
import { eventsAfterIndex } from '../../../internal/store/rows/session/events.ts'
import { admin, type Inbox, openInbox, toolQuestion, waiter } from '../../fixtures/approval-inbox.ts'
import {
  changeOf,
  openSessionRows,
  type SessionRows,
  stateOf,
  statusEvent,
} from '../../fixtures/session-rows.ts'
import { seeded } from '../../harness/random.ts'
import { until } from '../../harness/wait.ts'

let rows: SessionRows
let inbox: Inbox
beforeAll(async () => {
  rows = await openSessionRows()
  inbox = await openInbox(rows)
})
afterAll(async () => {
  await inbox?.close()
  await rows?.close()
})

const questions = 3
const anyStatus = fc.oneof(
  fc.constantFrom(...sessionStatuses),
  fc.constantFrom<SessionStatus>('running', 'running', 'waiting'),
)
const step = fc.oneof(
  fc.record({ status: anyStatus, requires: fc.constantFrom<string[]>([], ['r1']) }),
  fc.record({ ask: fc.nat(questions - 1) }),
  fc.record({ decide: fc.nat(questions - 1), decision: fc.constantFrom('allow', 'deny') }),
  fc.record({ cancel: fc.nat(questions - 1) }),
  fc.record({ call: fc.constantFrom('open', 'close') }),
)

test('open questions and caller requests make a running session wait, and nothing else', async () => {
  const { seed } = seeded('statuses after questions')
  const reached = new Set<string>()
  const property = fc.asyncProperty(
    anyStatus,
    fc.array(step, { minLength: 1, maxLength: 14 }),
    async (first, steps) => {
      const id = await rows.insertSession(first)
      type Known = {
        approval_id: string
        open: boolean
        waiter: ReturnType<typeof waiter>
        done: Promise<unknown>
      }
      const known = new Map<number, Known>()
      let request: { id: string; open: boolean } | undefined
      for (const one of steps) {
        if ('status' in one) {
          await rows.enter(id, statusEvent(one.status, one.requires))
          // The trigger on sessions cancels the questions; requests of callers end by a listener, which does not run here.
          if (isFinal(one.status)) for (const question of known.values()) question.open = false
          continue
        }
        const before = await rows.rowOf(id)
        let changed = false
        if ('ask' in one) {
          if (known.has(one.ask)) continue
          const held = waiter()
          const asking = inbox.approvals.ask(toolQuestion(id, rows.project_id), held.how)
          const answer = await Promise.race([held.asked, asking.catch((error: Error) => error)])
          expect(answer instanceof Error).toBe(isFinal(before.status))
          if (typeof answer !== 'string') continue
          known.set(one.ask, {
            approval_id: answer,
            open: true,
            waiter: held,
            done: asking.catch(() => undefined),
          })
          changed = true
        } else if ('decide' in one || 'cancel' in one) {
          const question = known.get('decide' in one ? one.decide : one.cancel)
          if (!question) continue
          changed = question.open
          if ('decide' in one) {
            const { decision } = one
            const deciding = inbox.approvals.decide(admin, question.approval_id, { decision })
            expect(
              await deciding.then(
                () => true,
                () => false,
              ),
            ).toBe(question.open)
          } else {
            question.waiter.cancel()
            await question.done
            const isClosed = async () => (await inbox.approvals.get(question.approval_id)).status !== 'open'
            await until(isClosed, { what: 'the question is closed', every_ms: 2 })
          }
          question.open = false
        } else {
          const opens = one.call === 'open' && request === undefined
          const closes = one.call === 'close' && request?.open === true
          if (opens && !isFinal(before.status)) request = { id: randomUUID(), open: true }
          if ((!opens || isFinal(before.status)) && !closes) continue
          changed = true
          await writeCalls(
            rows.store.db,
            opens ? [{ ...requestRow(id), id: request!.id }] : [],
            closes
              ? [
                  {
                    id: request!.id,
                    session_id: id,
                    status: 'cancelled' as const,
                    answer: null,
                    answered_by: null,
                  },
                ]
              : [],
          )
          if (closes) request!.open = false
        }
        const after = await rows.rowOf(id)
        const follows =
          before.status === 'running' || (before.status === 'waiting' && before.requires.length === 0)
        const open = [...known.values()].some((question) => question.open) || request?.open === true
        expect(after.status).toBe(changed && follows ? (open ? 'waiting' : 'running') : before.status)
        if (after.status !== before.status) {
          expect(mayFollow('server', before.status, after.status)).toBe(true)
          reached.add(`${before.status} → ${after.status}`)
        }
        const { events } = await eventsAfterIndex(rows.store.db, id, before.next_index - 1, 10)
        expect(events.length).toBe(after.next_index - before.next_index)
        expect(events.length > 0).toBe(changed)
        expect(stateOf(after)).toEqual(stateOf({ ...before, ...changeOf(before, events) }))
      }
      for (const question of known.values()) {
        question.waiter.lose()
        await question.done
      }
    },
  )
  await fc.assert(property, { seed, numRuns: 60 })
  expect([...reached].sort()).toEqual(['running → waiting', 'waiting → running'])
})

const requestRow = (session_id: string) => ({
  session_id,
  caller_id: 'app',
  tool: 'tool',
  arguments: {},
  call_id: randomUUID(),
  created_at: new Date().toISOString(),
  deadline_at: new Date(Date.now() + 600_000).toISOString(),
  audit: {
    ...{
      at: new Date().toISOString(),
      caller_kind: 'session',
      caller_id: session_id,
      token_id: null,
      session_id,
    },
    ...{ via: 'socket', tool: 'caller_tool', action: 'app_tool', project_id: null, request_id: randomUUID() },
  },
})
