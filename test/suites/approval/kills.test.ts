// Calls that were asked before the server was killed and decided after it: each one that was allowed runs exactly once, each one
// that was denied never, whenever the server dies in between.
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import { callingDroid } from '../../fixtures/agents/caller-tool-droid.ts'
import { list, openApprovals } from '../../fixtures/approvals.ts'
import { expectGapFree, history, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { seeded } from '../../harness/random.ts'
import { until } from '../../harness/wait.ts'

const calls = 20
let booted: Booted
let project_id: string
let workspace: string
beforeAll(async () => {
  booted = await boot({ config: { log: { level: 'warn' }, approvals: { open_per_session: calls } } })
  project_id = await booted.project()
  workspace = layoutOf(booted.server.home).workspace(project_id, 'default')
  await booted.ok('container', { action: 'start', project_id })
  await writeFile(join(workspace, 'work.mjs'), await callingDroid())
})
afterAll(() => booted?.stop())

const tryCall = async (tool: string, args: Record<string, unknown>): Promise<Answer | undefined> =>
  await booted
    .client()
    .call(tool, args)
    .catch(() => undefined)

test(`${calls} calls, killed while they are asked, decided and answered`, { timeout: 240_000 }, async () => {
  const random = seeded('decisions and kills')
  const allowed = Array.from({ length: calls }, () => random.below(3) > 0)
  const { session_id } = await booted.ok('session', {
    action: 'spawn',
    project_id,
    prompt: `/opt/oubliette/node work.mjs ${calls} answers.json`,
    caller_id: 'app',
    caller_tools: [
      { name: 'work', inputSchema: { type: 'object' }, timeout_seconds: 600, requires_approval: true },
    ],
  })
  const open = await openApprovals(booted, session_id, calls)
  expect((await booted.ok('session', { action: 'get', session_id })).requires).toHaveLength(calls)
  await booted.server.restart('SIGKILL')
  await booted.reconnect()

  /** Answers what is open with the number of the call, so that a second run of a call would be seen. */
  const answered: number[] = []
  let stopped = false
  const answering = (async () => {
    while (!stopped) {
      const got = await tryCall('session', { action: 'get', session_id })
      for (const { request_id, arguments: args } of (got?.structured?.open_requests ?? []) as Answer[]) {
        const { n } = args
        const sent = await tryCall('caller_tool_response', { session_id, request_id, result: { n } })
        if (sent && !sent.is_error) answered.push(n)
      }
      await new Promise((done) => setTimeout(done, 20))
    }
  })()

  for (const [at, { approval_id, arguments: args }] of open.entries()) {
    const decision = allowed[args.n] ? 'allow' : 'deny'
    const deciding = tryCall('approval', { action: 'decide', approval_id, decision, reason: 'as drawn' })
    if (at % 7 === 3) {
      // Before, during or after the decision is committed.
      await new Promise((done) => setTimeout(done, random.below(6)))
      await booted.server.restart('SIGKILL')
      await booted.reconnect()
    }
    await deciding
    await until(
      async () => {
        const { status } = await booted.ok('approval', { action: 'get', approval_id })
        if (status === 'open')
          await tryCall('approval', { action: 'decide', approval_id, decision, reason: 'as drawn' })
        return status !== 'open'
      },
      { what: 'it is decided', deadline_ms: 20_000 },
    )
  }

  const text = await until(() => readFile(join(workspace, 'answers.json'), 'utf8'), {
    what: 'the droid has all its answers',
    deadline_ms: 90_000,
  })
  stopped = true
  await answering
  await untilStatus(booted, session_id, 'idle', 60_000)
  const answers = JSON.parse(text) as { n: number; answer: unknown; failed: boolean }[]
  for (const { n, answer, failed } of answers)
    expect({ n, failed, answer }).toMatchObject(
      allowed[n]
        ? { failed: false, answer: { n } }
        : { failed: true, answer: { error: { kind: 'forbidden' } } },
    )
  const events = await history(booted, session_id)
  expectGapFree(events, session_id)
  const ran = events
    .filter(({ type }) => type === 'caller_tool_request')
    .map((event) => (event.arguments as Answer).n)
  const expected = answers.filter(({ n }) => allowed[n]).map(({ n }) => n)
  expect(ran.sort((a, b) => a - b)).toEqual(expected)
  expect(events.filter(({ type }) => type === 'tool_approval_request')).toHaveLength(calls)
  expect(events.filter(({ type }) => type === 'tool_approval_decision')).toHaveLength(calls)
  expect(await list(booted, { session_id, status: 'open' })).toEqual([])
  const used = await booted.query<{ n: number }>(
    'select count(*)::int as n from approvals where session_id = $1 and used_at is not null',
    [session_id],
  )
  expect(used[0]!.n).toBe(expected.length)
  process.stdout.write(`${expected.length} of ${calls} allowed, ${answered.length} answers accepted\n`)
})
