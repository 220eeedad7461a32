// More real agents than a container has memory for, with the server killed under them: none is killed by the kernel, each
// gets its turns. Slow, and in need of the agents' images: `./oubliette test --chaos`.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type AgentWorld, agentWorld } from '../../fixtures/agents/agents.ts'
import { allEvents, call, expectTurnsEnded, insist } from '../../fixtures/chaos/chaos.ts'
import { docker } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'
import { prompt } from '../../models/script.ts'

const enabled = Boolean(process.env.OUBLIETTE_TEST_CHAOS)
const sessions = 10
const turns = 3
const kills = 5
const droid = 'opencode'
let world: AgentWorld
let project_id: string

describe.runIf(enabled)('more agents than there is memory for', () => {
  beforeAll(async () => {
    world = await agentWorld()
    project_id = await world.booted.project({ droid, model: 'test-model', limits: { memory_mb: 1536 } })
    await world.booted.ok('container', { action: 'start', project_id })
  }, 600_000)
  afterAll(() => world?.stop())

  test(`${sessions} of them get ${turns} turns each through ${kills} kills of the server, and none is lost`, {
    timeout: 1_200_000,
  }, async () => {
    const { booted } = world
    const killed: string[] = []
    const watch = await docker.getEvents({
      filters: { event: ['oom', 'die'], label: [`oubliette.project=${project_id}`] },
    })
    watch.on('data', (chunk: Buffer) => killed.push(chunk.toString()))
    const ids: string[] = []
    for (let at = 0; at < sessions; at++) {
      const { session_id } = await insist(booted, 'session', {
        action: 'spawn',
        project_id,
        prompt: prompt([{ say: `First answer of ${at}.` }], `Session ${at}.`),
        new_session: true,
        idempotency_key: `memory-${at}`,
      })
      ids.push(session_id)
    }
    for (let turn = 2; turn <= turns; turn++)
      for (const [at, session_id] of ids.entries())
        await insist(booted, 'session', {
          action: 'message',
          session_id,
          message: prompt([{ say: `Answer ${turn} of ${at}.` }], `Turn ${turn}.`),
        })
    let most_queued = 0
    let ended = 0
    const progress = async (): Promise<boolean> => {
      const { sessions: all } = await call(booted, 'session', { action: 'list', project_id, limit: 100 })
      const status = (wanted: string) => all.filter((it: { status: string }) => it.status === wanted).length
      most_queued = Math.max(most_queued, status('queued'))
      expect(status('failed')).toBe(0)
      const events = await Promise.all(ids.map((id) => allEvents(booted, id)))
      ended = events.flat().filter(({ type }) => type === 'completion').length
      return ended === sessions * turns
    }
    for (let kill = 1; kill <= kills; kill++) {
      const enough = Math.round((sessions * turns * kill) / (kills + 1))
      await until(async () => (await progress()) || ended >= enough, {
        deadline_ms: 300_000,
        every_ms: 250,
        what: `${enough} turns are over`,
      })
      await booted.server.restart('SIGKILL')
    }
    await until(progress, { deadline_ms: 600_000, every_ms: 250, what: 'all turns are over' })
    for (const [at, id] of ids.entries()) {
      const events = await allEvents(booted, id)
      expect(expectTurnsEnded(events)).toBe(turns)
      const answers = events.filter(({ type }) => type === 'completion')
      expect(answers.map(({ final_text }) => final_text)).toEqual([
        `First answer of ${at}.`,
        ...Array.from({ length: turns - 1 }, (_, i) => `Answer ${i + 2} of ${at}.`),
      ])
    }
    ;(watch as unknown as { destroy(): void }).destroy()
    console.info(
      `memory: ${sessions} ${droid} sessions in 1,536 MiB, ${sessions * turns} turns, ${kills} kills; at most ${most_queued} queued; killed for memory: ${killed.length}`,
    )
    // The control: they did not all fit at once.
    expect(most_queued).toBeGreaterThan(0)
    expect(killed).toEqual([])
  })
})
