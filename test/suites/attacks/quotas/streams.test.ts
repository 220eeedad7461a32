// No token takes more than its part of the server's streams, requests and connections.
import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { events, getStream, type Held, listen, post } from '../../../fixtures/attacks/held-request.ts'
import { expectHealthy, latenciesDuring } from '../../../fixtures/latency/latency.ts'
import { spawn, untilSaid } from '../../../fixtures/sessions.ts'
import { type Booted, boot, each } from '../../../harness/booted.ts'
import { openSession, rpc } from '../../../harness/rpc.ts'
import { until } from '../../../harness/wait.ts'

const per_token = 200
const per_server = 300
const at_once = 400

let booted: Booted
let url: string
let project_id: string
const open: { close(): void }[] = []

beforeAll(async () => {
  booted = await boot({
    config: {
      streams: { per_token, per_server },
      rate: { per_token_at_once: at_once, per_token_per_second: 5000, per_token_burst: 10_000 },
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
    },
  })
  url = booted.server.url
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(async () => {
  for (const one of open) one.close()
  await booted?.stop()
})

type Token = { token: string; token_id: string }
const mint = async (scope: string): Promise<Token> =>
  (await booted.ok('token', { action: 'create', name: 'attacker', scope })) as Token
const kept = async <T extends { close(): void }>(one: Promise<T>): Promise<T> => {
  const held = await one
  open.push(held)
  return held
}
const tool = (name: string, args: object) => ({ name, arguments: args })

describe('streams', () => {
  let mine: Token
  let other: Token
  let session_id: string
  const path = () => `/sessions/${session_id}/events?since_index=1000000`

  beforeAll(async () => {
    ;[mine, other] = await Promise.all([mint(`project:${project_id}`), mint(`project:${project_id}`)])
    session_id = (await spawn(booted, project_id, 'true')).session_id
  })

  test('of one token are bounded over all kinds, and another token is served', async () => {
    const session = await openSession(url, mine.token)
    const first = await kept(getStream(url, mine.token, session))
    const second = await kept(listen(url, mine.token))
    const rest = await each(Array.from({ length: per_token - 2 }), 20, () =>
      kept(events(url, path(), mine.token)),
    )
    expect([first, second, ...rest].map(({ status }) => status)).toEqual(
      Array.from({ length: per_token }, () => 200),
    )
    const refused = [
      await kept(events(url, path(), mine.token)),
      await kept(events(url, `/projects/${project_id}/events`, mine.token)),
      await kept(listen(url, mine.token)),
      await kept(getStream(url, mine.token, await openSession(url, mine.token))),
    ]
    for (const held of refused) {
      await held.ended
      expect(held.status).toBe(429)
      expect(Number(held.headers['retry-after'])).toBeGreaterThan(0)
      expect(JSON.parse(held.text()).error).toMatchObject({ kind: 'exhausted' })
    }
    expect((await rpc(url, mine.token, 'tools/list')).status).toBe(200)
    const theirs = await kept(events(url, path(), other.token))
    expect(theirs.status).toBe(200)
    rest[0]!.close()
    const again = await until(
      async () => {
        const held = await kept(events(url, path(), mine.token))
        return held.status === 200 && held
      },
      { what: 'a place is free again' },
    )
    for (const held of [first, second, ...rest, theirs, again]) held.close()
  })

  test('of all tokens together are bounded', async () => {
    const wanted = Array.from({ length: per_server + 40 }, (_, at) => [mine, other][at % 2]!)
    const all = await each(wanted, 20, ({ token }) => kept(events(url, path(), token)))
    const taken = all.filter(({ status }) => status === 200)
    const refused = all.filter(({ status }) => status === 429)
    // The client of the suite has a stream of its own.
    expect(taken.length).toBeGreaterThan(per_server - 5)
    expect(taken.length).toBeLessThanOrEqual(per_server)
    expect(taken.length + refused.length).toBe(all.length)
    await refused[0]!.ended
    expect(refused[0]!.text()).toContain('this server has')
    expect((await rpc(url, other.token, 'tools/list')).status).toBe(200)
    for (const held of all) held.close()
    await until(async () => (await kept(events(url, path(), mine.token))).status === 200, {
      what: 'places are free again',
    })
  })

  test('that were opened a thousand times leave the server responsive for other callers', async () => {
    const elsewhere = await booted.project()
    const printing = await spawn(
      booted,
      project_id,
      'for i in $(seq 3000); do echo line $i; sleep 0.003; done',
      {
        wait_seconds: 0,
      },
    )
    await untilSaid(booted, printing.session_id, 'line 1\n')
    const target = `/sessions/${printing.session_id}/events`
    let held: Held[] = []
    const attacked = await latenciesDuring(booted, elsewhere, async () => {
      held = await each(Array.from({ length: 1000 }), 50, () => kept(events(url, target, mine.token)))
      const taken = held.filter(({ status }) => status === 200)
      await until(() => taken.every((one) => one.text().includes('line 600\\n')), {
        what: 'all readers have what was printed',
        deadline_ms: 30_000,
      })
    })
    for (const one of held) one.close()
    const taken = held.filter(({ status }) => status === 200).length
    expect(taken).toBeGreaterThan(per_token / 2)
    expect(taken).toBeLessThanOrEqual(per_token)
    expect(held.filter(({ status }) => status === 429)).toHaveLength(1000 - taken)
    expectHealthy(`1,000 streams of one token, ${taken} taken`, attacked)
  })

  test('that are not read do not make the server buffer what they have not read', async () => {
    const { session_id: loud } = await spawn(
      booted,
      project_id,
      'head -c 30000000 /dev/zero | tr "\\0" x; echo; echo end',
    )
    const deaf = await each(Array.from({ length: 50 }), 10, () =>
      kept(events(url, `/sessions/${loud}/events`, mine.token, false)),
    )
    const reader = await kept(events(url, `/sessions/${loud}/events`, mine.token))
    await until(() => reader.text().includes('end\\n'), {
      what: 'a reader gets all of it',
      deadline_ms: 40_000,
    })
    const rss_kb = async () => {
      return Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${booted.server.pid()}/status`, 'utf8'))?.[1])
    }
    // 50 readers with 30 MB each ahead of them, much more than the kernel takes off the server.
    expect(await rss_kb()).toBeLessThan(700_000)
    for (const one of deaf) one.close()
  })

  test('and waiting calls of one token are bounded together', async () => {
    const waiting = await mint(`project:${project_id}`)
    const poll = tool('session', { action: 'events', session_id, since_index: 1_000_000, wait_seconds: 60 })
    let refused = 0
    const calls = Array.from({ length: at_once + 50 }, async () => {
      // A call that waits answers with its headers only when it is over.
      const held = await post(url, waiting.token, 'tools/call', poll).catch(() => undefined)
      if (held?.status === 429) refused += 1
      return held
    })
    await until(() => refused === 50, { what: 'what is beyond the bound is refused', deadline_ms: 20_000 })
    expect(
      (await rpc(url, other.token, 'tools/call', tool('session', { action: 'get', session_id }))).status,
    ).toBe(200)
    await booted.ok('token', { action: 'revoke', token_id: waiting.token_id })
    expect((await Promise.all(calls)).filter((held) => held?.status === 200)).toHaveLength(at_once)
  })
})
