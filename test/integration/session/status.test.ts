// The states of a session in SQL, compared with the table in internal/protocol/session-status.ts on a real database.
import { randomUUID } from 'node:crypto'
import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import fc from 'fast-check'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  finalStatuses,
  isBeforeStart,
  isFinal,
  mayFollow,
  type SessionStatus,
  sessionStatuses,
} from '../../../internal/protocol/session-status.ts'
import { readFunctions } from '../../../internal/store/migrate.ts'
import type { Store } from '../../../internal/store/open.ts'
import {
  type Close,
  type NewRequest,
  type RequestEnd,
  writeCalls,
} from '../../../internal/store/rows/callers.ts'
import { updateSession } from '../../../internal/store/rows/session/sessions.ts'
import {
  changeOf,
  openSessionRows,
  type SessionRows,
  stateOf,
  statusEvent,
} from '../../fixtures/session-rows.ts'
import { seeded } from '../../harness/random.ts'

const checkout = resolve(import.meta.dirname, '../../..')
let database: SessionRows
let store: Store
const insertSession: SessionRows['insertSession'] = (status) => database.insertSession(status)
const enter: SessionRows['enter'] = (id, event) => database.enter(id, event)
const rowOf: SessionRows['rowOf'] = (id) => database.rowOf(id)

beforeAll(async () => {
  database = await openSessionRows()
  store = database.store
})
afterAll(() => database?.close())

const auditOf = (session_id: string, request_id: string) => ({
  at: new Date().toISOString(),
  caller_kind: 'session',
  caller_id: session_id,
  token_id: null,
  session_id,
  via: 'socket',
  tool: 'caller_tool',
  action: 'app_tool',
  project_id: null,
  request_id,
})

describe('the statuses in SQL', () => {
  test('the constraint of the table allows the statuses of the table of states', async () => {
    const { rows } = await sql<{ text: string }>`
      select pg_get_constraintdef(oid) as text from pg_constraint where conname = 'sessions_status_check'`.execute(
      store.db,
    )
    const allowed = [...rows[0]!.text.matchAll(/'(\w+)'/g)].map(([, status]) => status)
    expect(allowed.sort()).toEqual([...sessionStatuses].sort())
  })

  test('every list of final statuses in a function or trigger is the one of the table of states', () => {
    const lists = Object.entries(readFunctions()).flatMap(([file, text]) =>
      [...text.matchAll(/\(((?:\s*'\w+'\s*,?)+)\)/g)]
        .map(([, list]) => [...list!.matchAll(/'(\w+)'/g)].map(([, status]) => status!))
        .filter((list) => list.some(isFinal))
        .map((list) => ({ file, list: list.sort() })),
    )
    expect(lists.length).toBeGreaterThan(2)
    const expected = [...finalStatuses].sort()
    expect(lists.filter(({ list }) => list.join() !== expected.join())).toEqual([])
  })

  test('no other source file has a list of the final statuses', () => {
    const list = /(?:'(?:completed|failed|cancelled)'\s*[,|]\s*){2}'(?:completed|failed|cancelled)'/
    const found = globSync('{cmd,internal}/**/*.ts', { cwd: checkout }).filter((file) =>
      list.test(readFileSync(resolve(checkout, file), 'utf8')),
    )
    const earlier = found.filter((file) => !/^internal\/store\/migrations\/00(0\d|1[0-58])-/.test(file))
    expect(earlier).toEqual(['internal/protocol/session-status.ts'])
  })
})

describe('triggers on sessions', () => {
  test.each(
    sessionStatuses.flatMap((status) => [
      { status, end_requested: false },
      { status, end_requested: true },
    ]),
  )('$status, end requested: $end_requested', async ({ status, end_requested }) => {
    const id = await insertSession('running')
    await sql`insert into tokens (id, name, scope, hash, created_by, parent_session_id)
      values (${`tok ${id}`}, 't', 'admin', ${Buffer.from(id)}, ${id}, ${id})`.execute(store.db)
    await sql`insert into schedules (id, name, cron_expr, time_zone, prompt, enabled, overlap_behavior, session_behavior,
        catch_up, scope, created_by, session_id, next_run_at, created_at, updated_at)
      values (${`sch ${id}`}, 's', '@daily', 'UTC', 'true', true, 'skip', 'new', 'skip', 'admin', ${id}, ${id}, now(),
        now(), now())`.execute(store.db)
    await updateSession(store.db, id, {
      status,
      ...(end_requested ? { end_requested_at: new Date().toISOString() } : {}),
    })
    const { rows } = await sql<{ revoked: boolean; disabled: boolean; reason: string | null }>`
      select (select revoked_at is not null from tokens where parent_session_id = ${id}) as revoked,
        not enabled as disabled, disabled_reason as reason from schedules where session_id = ${id}`.execute(
      store.db,
    )
    const ended = isFinal(status) || end_requested
    const reason = ended ? `session ${id} has ended` : null
    expect(rows).toEqual([{ revoked: ended, disabled: ended, reason }])
  })
})

describe('requests for caller tools', () => {
  const requests = 3
  // The statuses that requests change come more often.
  const anyStatus = fc.oneof(
    fc.constantFrom(...sessionStatuses),
    fc.constantFrom<SessionStatus>('running', 'waiting'),
  )
  const step = fc.oneof(
    fc.record({
      status: anyStatus,
      requires: fc.constantFrom<string[]>([], ['r1']),
    }),
    fc.record({
      asks: fc.uniqueArray(fc.record({ request: fc.nat(requests - 1), overdue: fc.boolean() }), {
        maxLength: 3,
        selector: ({ request }) => request,
      }),
      closes: fc.array(
        fc.record({
          request: fc.nat(requests - 1),
          status: fc.constantFrom<RequestEnd>('answered', 'timed_out', 'cancelled'),
        }),
        { maxLength: 3 },
      ),
    }),
  )

  type Known = { id: string; open: boolean; overdue: boolean }

  /** What a batch does to the requests; true if it opened or closed one. */
  function apply(
    known: Map<number, Known>,
    ids: string[],
    final: boolean,
    {
      asks,
      closes,
    }: { asks: { request: number; overdue: boolean }[]; closes: { request: number; status: RequestEnd }[] },
  ): boolean {
    let changed = false
    for (const { request, overdue } of final ? [] : asks)
      if (!known.has(request)) {
        known.set(request, { id: ids[request]!, open: true, overdue })
        changed = true
      }
    for (const { request, status } of closes) {
      const one = known.get(request)
      if (!one?.open || (status === 'answered' && one.overdue)) continue
      one.open = false
      changed = true
    }
    return changed
  }

  test('change the status of their session as the table of states and the events say', async () => {
    const { seed } = seeded('statuses after requests for caller tools')
    const reached = new Set<string>()
    const property = fc.asyncProperty(
      anyStatus,
      fc.array(step, { minLength: 1, maxLength: 12 }),
      async (first, steps) => {
        const id = await insertSession(first)
        const ids = Array.from({ length: requests }, () => randomUUID())
        const known = new Map<number, Known>()
        for (const one of steps) {
          if ('status' in one) {
            await enter(id, statusEvent(one.status, one.requires))
            continue
          }
          const before = await rowOf(id)
          const now = Date.now()
          const asks = one.asks.map(
            ({ request, overdue }): NewRequest => ({
              id: ids[request]!,
              session_id: id,
              caller_id: 'app',
              tool: 'tool',
              arguments: {},
              call_id: `call ${request}`,
              created_at: new Date(now).toISOString(),
              deadline_at: new Date(now + (overdue ? -1_000 : 600_000)).toISOString(),
              audit: auditOf(id, ids[request]!),
            }),
          )
          const closes = one.closes.map(({ request, status }): Close & { session_id: string } => ({
            id: ids[request]!,
            session_id: id,
            status,
            answer: status === 'answered' ? { result: 'ok' } : null,
            answered_by: null,
          }))
          const written = await writeCalls(store.db, asks, closes)
          const after = await rowOf(id)

          const changed = apply(known, ids, isFinal(before.status), one)
          const follows =
            before.status === 'running' || (before.status === 'waiting' && before.requires.length === 0)
          const open = [...known.values()].some((request) => request.open)
          const expected = changed && follows ? (open ? 'waiting' : 'running') : before.status
          expect(after.status).toBe(expected)
          if (after.status !== before.status) {
            expect(mayFollow('server', before.status, after.status)).toBe(true)
            reached.add(`${before.status} → ${after.status}`)
          }
          expect(stateOf(after)).toEqual(stateOf({ ...before, ...changeOf(before, written.events) }))
          expect(after.next_index).toBe(before.next_index + written.events.length)
          expect(written.rows.map(({ status }) => status)).toEqual(changed ? [after.status] : [])
        }
      },
    )
    await fc.assert(property, { seed, numRuns: 100 })
    expect([...reached].sort()).toEqual(['running → waiting', 'waiting → running'])
  })
})

describe('the table of states', () => {
  test('containers neither queue nor start a session, and report nothing of one that has no droid', () => {
    for (const from of sessionStatuses) {
      expect(mayFollow('container', from, 'queued')).toBe(false)
      expect(mayFollow('container', from, 'preparing')).toBe(false)
      expect(mayFollow('container', from, 'starting')).toBe(false)
      const reports = sessionStatuses.some((to) => mayFollow('container', from, to))
      expect(reports).toBe(!isFinal(from) && !isBeforeStart(from))
    }
  })

  test('every session that is not final can be ended, and a cancelled one stays cancelled', () => {
    for (const from of sessionStatuses)
      for (const to of finalStatuses) expect(mayFollow('server', from, to)).toBe(!isFinal(from))
    for (const to of sessionStatuses) expect(mayFollow('server', 'cancelled', to)).toBe(false)
  })
})
