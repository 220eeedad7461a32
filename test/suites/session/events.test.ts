import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type EventStream, openStream } from '../../fixtures/event-stream.ts'
import {
  type Event,
  end,
  expectGapFree,
  history,
  say,
  spawn,
  textOf,
  untilSaid,
} from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
const streams: EventStream[] = []

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 300, max_spawns_per_minute: 1000 } } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(async () => {
  for (const stream of streams) stream.close()
  await booted?.stop()
})

async function follow(path: string, headers: Record<string, string> = {}, token = booted.server.admin_token) {
  const stream = await openStream(booted.server, path, token, headers)
  streams.push(stream)
  return stream
}
const page = (session_id: string, since_index: number, more: object = {}) =>
  booted.ok('session', { action: 'events', session_id, since_index, ...more })
/** Told one by one, because a pause lies between them. */
const slowly = (n: number, pause = 0.04) => `for i in $(seq ${n}); do echo line$i; sleep ${pause}; done`
const isDone = (events: { event: string }[]) => events.some(({ event }) => event === 'completion')

describe('events', () => {
  test('can be paged from any index, and every page shows whether there is more', async () => {
    const { session_id } = await spawn(booted, project_id, slowly(40))
    const all = await history(booted, session_id)
    expectGapFree(all, session_id)
    expect(all.length).toBeGreaterThan(30)
    for (const since of [-1, 0, 7, all.length - 2, all.length - 1, all.length + 5])
      for (const max_events of [1, 10, 1000]) {
        const got = await page(session_id, since, { max_events })
        const wanted = all.slice(Math.max(0, since + 1), since + 1 + max_events)
        expect(got.events).toEqual(wanted)
        expect(got.last_index).toBe(wanted.at(-1)?.index ?? since)
        expect(got.has_more).toBe(since + 1 + max_events < all.length)
      }
  })

  test('are waited for when there is none yet', async () => {
    const session = await spawn(booted, project_id, 'echo first')
    const began = performance.now()
    expect(await page(session.session_id, session.last_index, { wait_seconds: 1 })).toMatchObject({
      events: [],
      has_more: false,
    })
    expect(performance.now() - began).toBeGreaterThan(900)
    const asked = page(session.session_id, session.last_index, { wait_seconds: 30 })
    const from = performance.now()
    await say(booted, session.session_id, 'echo second', { wait_seconds: 0 })
    const got = await asked
    expect(performance.now() - from).toBeLessThan(5000)
    expect(got.events[0]).toMatchObject({
      index: session.last_index + 1,
      type: 'message',
      text: 'echo second',
    })
  })

  test('of 100,000 lines are few, and hold every line once and in order', async () => {
    const { session_id } = await spawn(booted, project_id, 'seq 100000', { wait_seconds: 60 })
    const events = await history(booted, session_id)
    expectGapFree(events, session_id)
    expect(textOf(events)).toBe(Array.from({ length: 100_000 }, (_, i) => `${i + 1}\n`).join(''))
    expect(events.length).toBeLessThan(1000)
  })
})

describe('a stream of a session', () => {
  test('has the whole history, then what comes, the same as a poll', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo before')
    const stream = await follow(`/sessions/${session_id}/events`)
    await stream.until(isDone, 'the history is there')
    await say(booted, session_id, 'echo after')
    const all = await history(booted, session_id)
    await stream.until((events) => events.length >= all.length, 'the new events are there')
    expect(stream.events.map((sent) => sent.data)).toEqual(all)
    expect(stream.events.map((sent) => [sent.id, sent.event])).toEqual(
      all.map((event) => [String(event.index), event.type]),
    )
  })

  test('continues from any point, by Last-Event-ID or since_index, without a gap or a duplicate', async () => {
    const { session_id } = await spawn(booted, project_id, slowly(60), { wait_seconds: 0 })
    const seen: Event[] = []
    // A reader that loses its connection again and again while events come.
    for (let last = -1; !seen.some((event) => event.type === 'completion'); last = seen.length - 1) {
      const path = `/sessions/${session_id}/events`
      const stream =
        seen.length % 2 === 0
          ? await follow(path, { 'last-event-id': String(last) })
          : await follow(`${path}?since_index=${last}`)
      await stream.until((events) => events.length >= 7 || isDone(events), 'some events came')
      seen.push(...(stream.events.map((sent) => sent.data) as Event[]))
      stream.close()
    }
    expectGapFree(seen, session_id)
    expect(seen).toEqual((await history(booted, session_id)).slice(0, seen.length))
    const beyond = await follow(`/sessions/${session_id}/events`, { 'last-event-id': 'x' })
    expect(beyond.status).toBe(400)
  })

  test('reaches many subscribers, whenever they connect', async () => {
    const { session_id } = await spawn(booted, project_id, slowly(50, 0.02), { wait_seconds: 0 })
    const many: EventStream[] = []
    for (let group = 0; group < 5; group++) {
      many.push(
        ...(await Promise.all(Array.from({ length: 10 }, () => follow(`/sessions/${session_id}/events`)))),
      )
      await untilSaid(booted, session_id, `line${group * 8 + 1}\n`)
    }
    await Promise.all(many.map((stream) => stream.until(isDone, 'each has seen the end')))
    const all = await history(booted, session_id)
    for (const stream of many)
      expect(stream.events.slice(0, all.length - 1).map((sent) => sent.data)).toEqual(all.slice(0, -1))
  })

  test('ends when its token is revoked, and is refused to a token that may not see it', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo x')
    const { token, token_id } = await booted.ok('token', {
      action: 'create',
      name: 'reader',
      scope: `project:${project_id}:ro`,
    })
    const stream = await follow(`/sessions/${session_id}/events`, {}, token)
    await stream.until(isDone, 'the history is there')
    await booted.ok('token', { action: 'revoke', token_id })
    await until(() => stream.over, { what: 'the stream ends' })
    expect((await follow(`/sessions/${session_id}/events`, {}, token)).status).toBe(401)
    const other = await booted.project()
    const foreign = await booted.ok('token', { action: 'create', name: 'other', scope: `project:${other}` })
    expect((await follow(`/sessions/${session_id}/events`, {}, foreign.token)).status).toBe(404)
    expect((await follow(`/projects/${project_id}/events`, {}, foreign.token)).status).toBe(404)
    const rows = await until(
      async () => {
        const found = await booted.query(
          `select tool, action, via, project_id, outcome from audit where token_id = $1 order by id`,
          [foreign.token_id],
        )
        return found.length === 2 && found
      },
      { what: 'an audit row of each refused stream' },
    )
    const refused = { action: 'stream', via: 'http', project_id: null, outcome: 'not_found' }
    expect(rows).toEqual([
      { tool: 'session', ...refused },
      { tool: 'project', ...refused },
    ])
    const opened = await booted.query(
      `select tool, action, project_id, outcome from audit where token_id = $1 and action = 'stream' order by id`,
      [token_id],
    )
    expect(opened).toEqual([{ tool: 'session', action: 'stream', project_id, outcome: 'ok' }])
  })

  test('sends a heartbeat while there are no events', { timeout: 40_000 }, async () => {
    const { session_id } = await spawn(booted, project_id, 'echo x')
    const stream = await follow(`/sessions/${session_id}/events`)
    await until(() => stream.comments >= 1, { deadline_ms: 30_000, what: 'a heartbeat came' })
    expect(stream.over).toBe(false)
  })
})

describe('a stream of a project', () => {
  test('holds all its sessions in one order, and continues from any point', async () => {
    const own = await booted.project()
    await booted.ok('container', { action: 'start', project_id: own })
    const stream = await follow(`/projects/${own}/events`)
    const sessions = await Promise.all([1, 2, 3, 4].map(() => spawn(booted, own, slowly(15))))
    for (const { session_id } of sessions) await end(booted, session_id)
    const total = sessions.length
    const ended = (events: { data: Record<string, unknown> }[]) =>
      events.filter(({ data }) => data.status === 'completed').length === total
    await stream.until(ended, 'all sessions are over')
    for (const { session_id } of sessions) {
      const mine = stream.events.filter(({ data }) => data.session_id === session_id).map(({ data }) => data)
      expect(mine).toEqual(await history(booted, session_id))
    }
    const positions = stream.events.map(({ id }) => Number(id))
    expect(positions).toEqual([...positions].sort((a, b) => a - b))
    const middle = Math.floor(positions.length / 2)
    const rest = await follow(`/projects/${own}/events`, { 'last-event-id': String(positions[middle]) })
    await rest.until((events) => events.length >= positions.length - middle - 1, 'the rest came')
    expect(rest.events).toEqual(stream.events.slice(middle + 1))
  })
})
