// A container that asks more than anybody can decide: it is refused, and others do not notice.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { asked, decide, list, openApprovals } from '../../fixtures/approvals.ts'
import {
  callTool,
  type Droid,
  dialAs,
  droid,
  openRequests,
  type WireAnswer,
} from '../../fixtures/droid-socket.ts'
import { end } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const [perSession, perProject] = [10, 25]
let booted: Booted
beforeAll(async () => {
  booted = await boot({
    config: {
      log: { level: 'warn' },
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
      approvals: { open_per_session: perSession, open_per_project: perProject },
    },
  })
})
afterAll(() => booted?.stop())

/** Many calls over several connections; the answers as they come. */
async function flood(one: Droid, calls: number, args: (n: number) => object) {
  const connections = await Promise.all(Array.from({ length: 10 }, () => dialAs(one)))
  const answers: WireAnswer[] = []
  for (let n = 0; n < calls; n++)
    void connections[n % 10]!.ask('caller_tool', {
      tool: 'bank_pay',
      arguments: args(n),
      call_id: `flooding ${n}`,
    }).then((answer) => answers.push(answer))
  const close = () => {
    for (const connection of connections) connection.close()
  }
  return { answers, close }
}
const kinds = (answers: WireAnswer[]) => [...new Set(answers.map(({ error }) => error?.data?.kind))]

async function paid(one: Droid): Promise<number> {
  const began = performance.now()
  const calling = callTool(one, 'bank_pay', { n: Math.random() })
  const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
  await decide(booted, approval.approval_id, 'allow')
  const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
  await booted.ok('caller_tool_response', { session_id: one.session_id, request_id, result: 'paid' })
  expect((await calling).result).toBe('paid')
  return performance.now() - began
}

test('1,000 calls at once of one container stop at the limits of its sessions and its project', async () => {
  const [flooded, quiet] = [await booted.project(), await booted.project()]
  const sessions = await Promise.all(Array.from({ length: 4 }, () => droid(booted, flooded, asked)))
  const other = await droid(booted, quiet, asked)
  const alone_ms = await paid(other)
  const floods = await Promise.all(sessions.map((one) => flood(one, 250, (n) => ({ n }))))
  const busy_ms = await paid(other)
  const refused = () => floods.flatMap(({ answers }) => answers)
  await until(() => refused().length === 1_000 - perProject, {
    what: 'the rest is refused',
    deadline_ms: 30_000,
  })
  expect(kinds(refused())).toEqual(['exhausted'])
  const open = await list(booted, { project_id: flooded, status: 'open' })
  expect(open).toHaveLength(perProject)
  for (const [, ofSession] of Map.groupBy(open, ({ session_id }) => session_id))
    expect(ofSession.length).toBeLessThanOrEqual(perSession)
  process.stdout.write(
    `an approved call of another project: ${alone_ms.toFixed(0)} ms alone, ${busy_ms.toFixed(0)} ms during the flood\n`,
  )
  // One that is decided makes room for the next.
  await decide(booted, open[0]!.approval_id, 'deny')
  const next = callTool(sessions.find(({ session_id }) => session_id === open[0]!.session_id)!, 'bank_pay', {
    next: 1,
  })
  await until(
    async () => (await list(booted, { project_id: flooded, status: 'open' })).length === perProject,
    {
      what: 'the next one is open',
    },
  )
  for (const { close } of floods) close()
  await Promise.all([...sessions, other].map(({ session_id }) => end(booted, session_id)))
  await next
  expect(await list(booted, { project_id: flooded, status: 'open' })).toEqual([])
})

test('the largest arguments are shown clipped, and are part of the receipt as a whole', async () => {
  const one = await droid(booted, await booted.project(), asked)
  const large = (end: string) => ({ text: `${'x'.repeat(6 * 1024 * 1024)}${end}` })
  const gone = await dialAs(one)
  void gone.ask('caller_tool', { tool: 'bank_pay', arguments: large('1') })
  const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
  expect(JSON.stringify(approval).length).toBeLessThan(20_000)
  expect(approval.arguments.text).toMatch(/^x+… \(6,291,457 characters\)$/)
  gone.close()
  await decide(booted, approval.approval_id, 'allow')
  const different = callTool(one, 'bank_pay', large('2'))
  const [second] = (await openApprovals(booted, one.session_id)) as [Answer]
  await decide(booted, second.approval_id, 'deny')
  expect((await different).error?.data?.kind).toBe('forbidden')
  const same = callTool(one, 'bank_pay', large('1'))
  const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
  await booted.ok('caller_tool_response', { session_id: one.session_id, request_id, result: 'paid' })
  expect((await same).result).toBe('paid')
  await end(booted, one.session_id)
})
