// Questions that only an upstream asks: definitions, elicitations and consents; receipts; and who may decide what.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { DecidedApproval, Decision, Question } from '../../../internal/manager/approval/approval.ts'
import type { SessionStatus } from '../../../internal/protocol/session-status.ts'
import {
  admin,
  type Inbox,
  openInbox,
  scheduleCaller,
  sessionCaller,
  toolQuestion,
  waiter,
  writer,
} from '../../fixtures/approval-inbox.ts'
import { openSessionRows, type SessionRows, statusEvent } from '../../fixtures/session-rows.ts'
import { until } from '../../harness/wait.ts'

let rows: SessionRows
let inbox: Inbox
let project_id: string
let session_id: string
beforeAll(async () => {
  rows = await openSessionRows()
  project_id = rows.project_id
  inbox = await openInbox(rows, { open_per_project: 5_000, open_per_session: 1_000 })
  session_id = await rows.insertSession('running')
})
afterAll(async () => {
  await inbox?.close()
  await rows?.close()
})

const allow = { decision: 'allow' } as const
const deny = { decision: 'deny' } as const
/** An open question, and how it ends. */
async function open(question: Question, at: Inbox = inbox) {
  const held = waiter()
  const decision = at.approvals.ask(question, held.how)
  decision.catch(() => undefined)
  const approval_id = await Promise.race([held.asked, decision.then(() => '')])
  return { approval_id, decision, ...held }
}
const kindOf = (doing: Promise<unknown>): Promise<string> =>
  doing.then(
    () => 'ok',
    (error: { kind?: string }) => error.kind ?? String(error),
  )

describe('a receipt', () => {
  const question = () => toolQuestion(session_id, project_id, { arguments: { b: 1, a: [{ y: 1, x: 2 }] } })
  const use = (approval_id: string, asked: ReturnType<typeof question>, more: object = {}) =>
    inbox.approvals.use(rows.store.db, approval_id, { ...asked, tool: asked.tool!, ...more })

  test('is used once, by the same session, server, tool and arguments', async () => {
    const asked = question()
    const { approval_id, decision } = await open(asked)
    expect(await use(approval_id, asked)).toBe(false)
    await inbox.approvals.decide(admin, approval_id, allow)
    expect(await decision).toEqual({ decision: 'allow', by: 'decision', approval_id, content: null })
    const foreign = await rows.insertSession('running')
    for (const other of [
      { session_id: foreign },
      { server_id: 'mcp_other' },
      { tool: 'delete_files' },
      { arguments: { b: 1, a: [{ y: 1, x: 3 }] } },
      { arguments: {} },
    ])
      expect(await use(approval_id, asked, other)).toBe(false)
    // The order of the members is not part of the arguments.
    const used = await Promise.all(
      Array.from({ length: 8 }, () => use(approval_id, asked, { arguments: { a: [{ x: 2, y: 1 }], b: 1 } })),
    )
    expect(used.filter(Boolean)).toHaveLength(1)
    expect(await inbox.approvals.usedBy(approval_id)).toBe(asked.call_id)
  })

  test('of a denied question does not exist, and one that is old has expired', async () => {
    const denied = question()
    const first = await open(denied)
    await inbox.approvals.decide(admin, first.approval_id, deny)
    expect(await use(first.approval_id, denied)).toBe(false)
    const old = question()
    const second = await open(old)
    await inbox.approvals.decide(admin, second.approval_id, allow)
    await rows.store.db
      .updateTable('approvals')
      .set({ expires_at: new Date(Date.now() - 1).toISOString() })
      .where('id', '=', second.approval_id)
      .execute()
    expect(await use(second.approval_id, old)).toBe(false)
  })

  test('is rolled back with the transaction of its call', async () => {
    const asked = question()
    const { approval_id } = await open(asked)
    await inbox.approvals.decide(admin, approval_id, allow)
    const failing = rows.store.transact(async (trx) => {
      expect(await inbox.approvals.use(trx, approval_id, { ...asked, tool: asked.tool! })).toBe(true)
      throw new Error('the server is killed')
    })
    await expect(failing).rejects.toThrow('killed')
    expect(await use(approval_id, asked)).toBe(true)
  })

  test('of arguments that differ only where they are clipped is not the same', async () => {
    const large = (end: string) => ({ text: `${'x'.repeat(100_000)}${end}` })
    const asked = toolQuestion(session_id, project_id, { arguments: large('1') })
    const { approval_id } = await open(asked)
    const shown = await inbox.approvals.get(approval_id)
    expect(JSON.stringify(shown.arguments).length).toBeLessThan(20_000)
    await inbox.approvals.decide(admin, approval_id, allow)
    expect(await use(approval_id, asked, { arguments: large('2') })).toBe(false)
    expect(await use(approval_id, asked)).toBe(true)
  })
})

describe('a question', () => {
  test('is joined by a repeat of its call after a restart, whatever became of it', async () => {
    const asked = toolQuestion(session_id, project_id)
    const before = await open(asked)
    before.lose()
    await expect(before.decision).rejects.toThrow('connection was lost')
    const restarted = await openInbox(rows)
    const after = await open(asked, restarted)
    expect(after.approval_id).toBe(before.approval_id)
    await restarted.approvals.decide(admin, before.approval_id, { ...deny, reason: 'no' })
    const denied: Decision = {
      decision: 'deny',
      status: 'denied',
      approval_id: before.approval_id,
      reason: 'no',
    }
    expect(await after.decision).toEqual(denied)
    expect(await inbox.approvals.ask(asked, waiter().how)).toEqual(denied)
    await restarted.close()
  })

  test('that another server decided is answered', async () => {
    const asked = toolQuestion(session_id, project_id)
    const here = await open(asked)
    const other = await openInbox(rows)
    await other.approvals.decide(admin, here.approval_id, allow)
    expect(await here.decision).toMatchObject({ decision: 'allow' })
    await other.close()
  })

  test('of arguments with characters that are not shown shows them escaped', async () => {
    const path = 'safe.txt\u001b[2K\r\u202egnp.exe\u200b\u0085\u{e0041}'
    const { approval_id } = await open(
      toolQuestion(session_id, project_id, { arguments: { path, 'k\u202ey': '\n' } }),
    )
    const { arguments: shown } = await inbox.approvals.get(approval_id)
    expect(shown).toEqual({
      path: 'safe.txt\\u{1b}[2K\\u{d}\\u{202e}gnp.exe\\u{200b}\\u{85}\\u{e0041}',
      'k\\u{202e}y': '\n',
    })
  })

  test('stays open while its droid reports that it runs, and ends when it is idle', async () => {
    const one = await rows.insertSession('running')
    const { decision, approval_id } = await open(toolQuestion(one, project_id))
    const report = (seq: number, status: SessionStatus) =>
      inbox.receive(project_id, one, [{ ...statusEvent(status), seq }])
    expect((await rows.rowOf(one)).status).toBe('waiting')
    await report(0, 'running')
    await report(1, 'waiting')
    expect((await inbox.approvals.get(approval_id)).status).toBe('open')
    await report(2, 'idle')
    expect(await decision).toMatchObject({ decision: 'deny', status: 'cancelled' })
  })

  test('ends with its session', async () => {
    for (const status of ['failed', 'cancelled', 'completed'] as const) {
      const ending = await rows.insertSession('running')
      const { decision, approval_id } = await open(toolQuestion(ending, project_id))
      await inbox.change(ending, async (_, __, write) => await write([statusEvent(status)]))
      const reason = `is ${status}`
      expect(await decision).toEqual({ decision: 'deny', status: 'cancelled', approval_id, reason })
      expect(await kindOf(inbox.approvals.ask(toolQuestion(ending, project_id), waiter().how))).toBe(
        'conflict',
      )
    }
  })

  test('has a deadline of its own, at most that of the config', async () => {
    const short = await open(toolQuestion(session_id, project_id, { expires_in_seconds: 0.2 }))
    expect(await short.decision).toMatchObject({ decision: 'deny', status: 'expired' })
    const long = await open(toolQuestion(session_id, project_id, { expires_in_seconds: 1e9 }))
    const { created_at, expires_at } = await inbox.approvals.get(long.approval_id)
    expect(Date.parse(expires_at!) - Date.parse(created_at)).toBe(7 * 86_400_000)
  })

  test('is decided, expired or cancelled once, when all happen together', async () => {
    const outcomes = new Set<string>()
    for (let round = 0; round < 30; round++) {
      const ending = await rows.insertSession('running')
      const held = await open(
        toolQuestion(ending, project_id, { expires_in_seconds: 0.02 + (round % 5) / 100 }),
      )
      const [first] = await Promise.allSettled([
        held.decision,
        inbox.approvals.decide(admin, held.approval_id, allow),
        inbox.approvals.decide(admin, held.approval_id, deny),
        inbox.approvals.expireOverdue(),
        round % 3 === 0
          ? inbox.change(ending, async (_, __, write) => await write([statusEvent('failed')]))
          : undefined,
      ])
      if (first.status !== 'fulfilled') throw first.reason
      const { status } = await inbox.approvals.get(held.approval_id)
      const told = first.value.decision === 'allow' ? 'allowed' : first.value.status
      expect(told).toBe(status)
      outcomes.add(status)
      const decisions = await rows.store.db
        .selectFrom('events')
        .select('index')
        .where('session_id', '=', ending)
        .where('type', '=', 'tool_approval_decision')
        .execute()
      expect(decisions).toHaveLength(status === 'cancelled' ? 0 : 1)
    }
    expect(outcomes.size).toBeGreaterThan(1)
  })
})

describe('a thousand questions at once', () => {
  test('of one session and of one project stop at their limits, and others still ask', async () => {
    const limited = await openInbox(rows, { open_per_session: 5, open_per_project: 1_000 })
    const flooding = await rows.insertSession('running')
    const asks = Array.from({ length: 1_000 }, () => {
      const held = waiter()
      const asking = limited.approvals.ask(toolQuestion(flooding, project_id), held.how)
      return { held, asking, outcome: Promise.race([held.asked.then(() => 'open'), kindOf(asking)]) }
    })
    const outcomes = await Promise.all(asks.map(({ outcome }) => outcome))
    expect(outcomes.filter((one) => one === 'open')).toHaveLength(5)
    expect(outcomes.filter((one) => one === 'exhausted')).toHaveLength(995)
    const other = await rows.insertSession('running')
    const fine = await open(toolQuestion(other, project_id), limited)
    await limited.approvals.decide(admin, fine.approval_id, allow)
    expect(await fine.decision).toMatchObject({ decision: 'allow' })
    for (const { held } of asks) held.cancel()
    await until(async () => (await limited.approvals.openOf([flooding])).length === 0, {
      what: 'all are cancelled',
    })
    const tight = await openInbox(rows, { open_per_session: 5, open_per_project: 1 })
    expect(await kindOf(tight.approvals.ask(toolQuestion(other, project_id), waiter().how))).toBe('exhausted')
    await Promise.all([limited.close(), tight.close()])
  })
})

describe('a session', () => {
  test('never allows its own call, nor through a child, a stranger, a schedule, or a token that it created', async () => {
    const asking = await rows.insertSession('running', { autonomy: 'high' })
    const child = await rows.insertSession('running', { parent: asking })
    const stranger = await rows.insertSession('running')
    const { approval_id } = await open(toolQuestion(asking, project_id, { allowed_at: 'high' }))
    for (const caller of [
      sessionCaller(asking, project_id),
      sessionCaller(child, project_id),
      sessionCaller(stranger, project_id),
      sessionCaller(asking, project_id, 'token'),
      scheduleCaller(project_id),
    ])
      for (const answer of [allow, deny])
        expect(await kindOf(inbox.approvals.decide(caller, approval_id, answer))).toBe('forbidden')
    expect(await kindOf(inbox.approvals.decide(writer(project_id), approval_id, allow))).toBe('ok')
  })

  test('does not allow for its child what it would be asked itself', async () => {
    const cases = [
      { own: 'high', allowed_at: null, kind: 'forbidden' },
      { own: 'low', allowed_at: 'high', kind: 'forbidden' },
      { own: 'high', allowed_at: 'high', kind: 'ok' },
      { own: 'medium', allowed_at: 'low', kind: 'ok' },
    ] as const
    for (const { own, allowed_at, kind } of cases) {
      const parent = await rows.insertSession('running', { autonomy: own })
      const child = await rows.insertSession('running', { parent, autonomy: 'off' })
      const { approval_id } = await open(toolQuestion(child, project_id, { allowed_at }))
      const decider = sessionCaller(parent, project_id)
      for (const scope of ['session', 'always'] as const)
        expect(await kindOf(inbox.approvals.decide(decider, approval_id, { ...allow, scope }))).toBe(
          'forbidden',
        )
      expect(await kindOf(inbox.approvals.decide(decider, approval_id, allow))).toBe(kind)
      // It may deny in any case.
      const second = await open(toolQuestion(child, project_id, { allowed_at }))
      expect(await kindOf(inbox.approvals.decide(decider, second.approval_id, deny))).toBe('ok')
    }
  })

  test('revokes nothing, and answers no elicitation of its child', async () => {
    const parent = await rows.insertSession('running')
    const child = await rows.insertSession('running', { parent })
    const asked = toolQuestion(child, project_id, { allowed_at: 'off' })
    const { approval_id } = await open(asked)
    await inbox.approvals.decide(writer(project_id), approval_id, { ...deny, scope: 'session' })
    const decider = sessionCaller(parent, project_id)
    expect(await kindOf(inbox.approvals.revoke(decider, approval_id))).toBe('forbidden')
    const form = await open(elicitation(child))
    expect(
      await kindOf(inbox.approvals.decide(decider, form.approval_id, { ...allow, content: { age: 1 } })),
    ).toBe('forbidden')
  })
})

describe('what an admin wants asked', () => {
  test('is allowed for longer than once only by an admin, and by no rule of the project', async () => {
    const asked = (more: object = {}) =>
      toolQuestion(session_id, project_id, { server_id: 'mcp_strict', arguments: { same: 1 }, ...more })
    const loose = await open(asked())
    await inbox.approvals.decide(writer(project_id), loose.approval_id, { ...allow, scope: 'always' })
    expect(await inbox.approvals.ask(asked(), waiter().how)).toMatchObject({ decision: 'allow', by: 'rule' })
    const strict = await open(asked({ set_by_admin: true }))
    const always = { ...allow, scope: 'always' } as const
    expect(await kindOf(inbox.approvals.decide(writer(project_id), strict.approval_id, always))).toBe(
      'forbidden',
    )
    expect(await kindOf(inbox.approvals.decide(admin, strict.approval_id, always))).toBe('ok')
    expect(await inbox.approvals.ask(asked({ set_by_admin: true }), waiter().how)).toMatchObject({
      by: 'rule',
    })
  })

  test('a denial of an admin is revoked only by an admin, and counts before what is allowed', async () => {
    const asked = () =>
      toolQuestion(session_id, project_id, { server_id: 'mcp_denied', arguments: { same: 1 } })
    const [one, two] = [await open(asked()), await open(asked())]
    await inbox.approvals.decide(writer(project_id), one.approval_id, { ...allow, scope: 'always' })
    await inbox.approvals.decide(admin, two.approval_id, { ...deny, scope: 'always', reason: 'never' })
    expect(await inbox.approvals.ask(asked(), waiter().how)).toMatchObject({
      decision: 'deny',
      reason: 'never',
    })
    expect(await kindOf(inbox.approvals.revoke(writer(project_id), two.approval_id))).toBe('forbidden')
    expect(await kindOf(inbox.approvals.revoke(admin, two.approval_id))).toBe('ok')
    expect(await inbox.approvals.ask(asked(), waiter().how)).toMatchObject({ by: 'rule' })
    await inbox.approvals.forgetServer('mcp_denied', 'the server was removed')
    const again = await open(asked())
    expect(again.approval_id).not.toBe('')
  })
})

const schema = {
  type: 'object',
  properties: {
    age: { type: 'integer', minimum: 0, maximum: 150 },
    mail: { type: 'string', format: 'email' },
  },
  required: ['age'],
}
const form = { message: 'How old?', requestedSchema: schema }
const elicitation = (of: string, request: Record<string, unknown> = form): Question => ({
  kind: 'elicitation',
  session_id: of,
  project_id,
  server: 'survey',
  server_id: 'mcp_survey',
  tool: 'ask',
  call_id: randomUUID(),
  request,
})

describe('an elicitation', () => {
  test('is answered with content that its schema allows, which is not shown afterwards', async () => {
    const { approval_id, decision } = await open(elicitation(session_id))
    expect(await inbox.approvals.get(approval_id)).toMatchObject({
      kind: 'elicitation',
      detail: { mode: 'form', message: 'How old?', requested_schema: schema },
    })
    for (const content of [undefined, {}, { age: 'x' }, { age: 151 }, { age: 1, mail: 'x'.repeat(70_000) }])
      expect(
        await kindOf(
          inbox.approvals.decide(admin, approval_id, { ...allow, ...(content ? { content } : {}) }),
        ),
      ).toBe('invalid')
    expect(
      await kindOf(
        inbox.approvals.decide(admin, approval_id, { ...allow, scope: 'session', content: { age: 1 } }),
      ),
    ).toBe('invalid')
    expect(await kindOf(inbox.approvals.decide(admin, approval_id, { ...deny, content: { age: 1 } }))).toBe(
      'invalid',
    )
    const content = { age: 42, mail: 'ada@private.example' }
    const answered = await inbox.approvals.decide(admin, approval_id, { ...allow, content })
    expect(JSON.stringify(answered)).not.toContain('private.example')
    expect(await decision).toMatchObject({ decision: 'allow', content })
  })

  test('is declined, and cancelled', async () => {
    const declined = await open(elicitation(session_id))
    await inbox.approvals.decide(admin, declined.approval_id, { ...deny, reason: 'private' })
    expect(await declined.decision).toMatchObject({ decision: 'deny', status: 'denied', reason: 'private' })
    const cancelled = await open(elicitation(session_id))
    cancelled.cancel()
    await expect(cancelled.decision).rejects.toThrow('cancelled')
    await until(async () => (await inbox.approvals.get(cancelled.approval_id)).status === 'cancelled', {
      what: 'it is cancelled',
    })
  })

  test('in URL mode shows the host, and takes no content', async () => {
    const url = 'https://xn--pypal-4ve.example/pay?id=1'
    const { approval_id, decision } = await open(
      elicitation(session_id, { mode: 'url', message: 'Pay', url }),
    )
    expect((await inbox.approvals.get(approval_id)).detail).toMatchObject({
      mode: 'url',
      url,
      host: 'xn--pypal-4ve.example',
    })
    expect(await kindOf(inbox.approvals.decide(admin, approval_id, { ...allow, content: {} }))).toBe(
      'invalid',
    )
    await inbox.approvals.decide(admin, approval_id, allow)
    expect(await decision).toMatchObject({ decision: 'allow', content: null })
    const bad = [
      'javascript:alert(1)',
      'https://paypal.com@evil.example/',
      'file:///etc/passwd',
      'x',
      undefined,
    ]
    for (const url of bad)
      expect(
        await kindOf(inbox.approvals.ask(elicitation(session_id, { mode: 'url', url }), waiter().how)),
      ).toBe('invalid')
  })

  test('of a hostile server is refused when it is asked', async () => {
    for (const request of [
      { message: 'x'.repeat(100_000) },
      { message: 'a\0b' },
      { message: '', requestedSchema: { type: 'object', $ref: 'https://evil.example/schema' } },
      { message: '', requestedSchema: { type: 'object', properties: 'x' } },
      { message: '', requestedSchema: 'x' },
    ])
      expect(await kindOf(inbox.approvals.ask(elicitation(session_id, request), waiter().how))).toBe(
        'invalid',
      )
  })
})

const definition = (tool: string): Question & { session_id: null } => ({
  kind: 'definition',
  session_id: null,
  project_id: null,
  server: 'files',
  server_id: 'mcp_pins',
  tool,
  key: `definition mcp_pins ${tool}`,
  change: { status: 'changed', pin: 'abc', before: { description: 'a' }, after: { description: 'b\u202e' } },
})

describe('a definition', () => {
  test('waits without a session, is decided with its effect in one transaction, and only while that succeeds', async () => {
    const told: DecidedApproval[] = []
    let fails = true
    inbox.approvals.onDecided('definition', async (_, approval) => {
      if (fails) throw new Error('no pin')
      told.push(approval)
    })
    const { approval_id } = await inbox.approvals.post(definition('write'))
    expect(await inbox.approvals.post(definition('write'))).toEqual({ approval_id })
    expect(await inbox.approvals.get(approval_id)).toMatchObject({
      session_id: null,
      project_id: null,
      detail: { status: 'changed', pin: 'abc', after: { description: 'b\\u{202e}' } },
    })
    await expect(inbox.approvals.decide(admin, approval_id, allow)).rejects.toThrow('no pin')
    expect((await inbox.approvals.get(approval_id)).status).toBe('open')
    fails = false
    await inbox.approvals.decide(admin, approval_id, allow)
    expect(told).toMatchObject([{ approval_id, status: 'allowed', tool: 'write', detail: { pin: 'abc' } }])
    const next = await inbox.approvals.post(definition('write'))
    expect(next.approval_id).not.toBe(approval_id)
    const closed = await inbox.approvals.resolve(
      { kind: 'definition', server_id: 'mcp_pins', tool: 'write' },
      { status: 'cancelled', reason: 'approved with its server', decided_by: admin.id },
    )
    expect(closed).toEqual([next.approval_id])
    expect(told.at(-1)).toMatchObject({ status: 'cancelled' })
  })
})

describe('a consent', () => {
  test('is allowed by its callback and not by a decision, for all who wait', async () => {
    const consent = (): Question => ({
      kind: 'consent',
      session_id,
      project_id,
      server: 'mail',
      server_id: 'mcp_mail',
      tool: null,
      call_id: randomUUID(),
      url: 'https://login.example/authorize?x=1',
    })
    const [one, two] = [await open(consent()), await open(consent())]
    expect(await kindOf(inbox.approvals.decide(admin, one.approval_id, allow))).toBe('conflict')
    const closed = await inbox.approvals.resolve(
      { kind: 'consent', server_id: 'mcp_mail' },
      { status: 'allowed', reason: null, decided_by: 'tok' },
    )
    expect(closed.sort()).toEqual([one.approval_id, two.approval_id].sort())
    for (const { decision } of [one, two]) expect(await decision).toMatchObject({ decision: 'allow' })
    const declined = await open(consent())
    await inbox.approvals.decide(writer(project_id), declined.approval_id, deny)
    expect(await declined.decision).toMatchObject({ status: 'denied' })
  })
})
