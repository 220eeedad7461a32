// The server is killed every second or two while a schedule of every second runs: a run that a dead server had claimed is
// taken over by the next server at once, instead of making the schedule skip until its lease has ended.
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { insist } from '../../fixtures/chaos/chaos.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { seeded } from '../../harness/random.ts'
import { until } from '../../harness/wait.ts'

const rounds = process.env.OUBLIETTE_TEST_CHAOS ? 50 : 8
let booted: Booted
let project_id: string
beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

test(`a schedule that skips goes on running through ${rounds} kills`, {
  timeout: rounds * 20_000,
}, async () => {
  const random = seeded('kills')
  const { schedule_id } = await booted.ok('schedule', {
    action: 'create',
    name: 'every second',
    cron_expr: '* * * * * *',
    prompt: 'echo "$OUBLIETTE_SESSION_ID" >> ran; sleep 0.7',
    targets: [{ project_id }],
    overlap_behavior: 'skip',
  })
  for (let round = 0; round < rounds; round++) {
    // The instant of the kill is what varies, from within one run to between two.
    await pause(700 + random.below(1500))
    await booted.server.restart('SIGKILL')
  }
  await insist(booted, 'schedule', { action: 'update', schedule_id, cron_expr: '@yearly' })
  const runs = await until(
    async () => {
      const all: Answer[] = []
      for (let cursor: string | undefined; ; ) {
        const page = await insist(booted, 'schedule', { action: 'history', schedule_id, limit: 200, cursor })
        all.push(...page.runs)
        if (page.next_cursor === null) break
        cursor = page.next_cursor
      }
      return all.every((run) => run.ended_at) && all
    },
    { what: 'all runs are over', deadline_ms: 30_000, every_ms: 250 },
  )
  const ran = runs.filter(({ status }) => status === 'success')
  const ends = ran.map(({ ended_at }) => Date.parse(ended_at)).sort((a, b) => a - b)
  const longest_ms = Math.max(...ends.slice(1).map((end, at) => end - ends[at]!))
  console.log(`${ran.length} of ${runs.length} runs ran in ${rounds} kills, at most ${longest_ms} ms apart`)
  expect(runs.filter(({ status }) => !['success', 'skipped'].includes(status))).toEqual([])
  // Each run that was taken is executed once.
  await booted.reconnect()
  const { stdout } = await booted.exec(project_id, 'wc -l < ran')
  expect(Number(stdout)).toBe(ran.length)
  // The lease of a run is 15 s: nothing waited for the end of one.
  expect(longest_ms).toBeLessThan(12_000)
  expect(ran.length).toBeGreaterThanOrEqual(rounds)
})
