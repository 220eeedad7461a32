// Work whose cost a tenant chooses must not stop the server: schemas, arguments, frames, expressions, task lists and events
// that would hold the event loop for seconds or for ever are refused, cut or worked on elsewhere, and everyone else is
// answered meanwhile.
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { asked, attackingCaller, type Schema, tools } from '../../fixtures/attacking-caller.ts'
import { type Droid, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { expectHealthy, latenciesDuring } from '../../fixtures/latency.ts'
import { history } from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { headersFor, resultIn, rpc, send } from '../../harness/rpc.ts'

let booted: Booted
let attacked: string
let other: string
let one: Droid

beforeAll(async () => {
  booted = await boot({
    config: { limits: { max_active_sessions: 200, max_spawns_per_minute: 1000 }, log: { level: 'warn' } },
  })
  attacked = await booted.project()
  other = await booted.project()
  one = await droid(booted, attacked)
})
afterAll(() => booted?.stop())

// Servers are started and deadlines awaited in processor time; a machine may be busy with something else.
vi.setConfig({ testTimeout: 180_000 })

const declare = (schema: Schema, to = one) => attackingCaller(booted).declare(schema, to)
const refusal = (schema: Schema) => attackingCaller(booted).refusal(schema, one)
const call = (args: object, who = one) => attackingCaller(booted).call(args, who)

const attack = `${'a'.repeat(60)}!`
const evil = '^(a+)+$'

describe('a regular expression that never ends', () => {
  test.each<[string, Schema, object, object]>([
    ['pattern', { properties: { a: { pattern: evil } } }, { a: attack }, { a: 'aa' }],
    ['patternProperties', { patternProperties: { [evil]: { type: 'string' } } }, { [attack]: 1 }, { b: 1 }],
    ['propertyNames', { propertyNames: { pattern: evil } }, { [attack]: 1 }, { aa: 1 }],
    [
      'a nested pattern',
      {
        properties: { a: { items: { anyOf: [{ type: 'null' }, { properties: { b: { pattern: evil } } }] } } },
      },
      { a: [null, { b: attack }] },
      { a: [null, { b: 'aa' }] },
    ],
    [
      'a pattern behind a reference',
      { $defs: { x: { pattern: evil } }, additionalProperties: { $ref: '#/$defs/x' } },
      { a: attack },
      { a: 'aa' },
    ],
  ])('in %s ends that call only', async (_where, schema, bad, good) => {
    await declare(schema)
    expect(await call(good)).toBe(asked)
    expect(await call(bad)).toContain('inputSchema of app_t0: it takes longer than 250 ms to check')
    const health = await send(booted.server.url, { method: 'GET', path: '/healthz' })
    expect(health.status).toBe(200)
    expect(await call(good)).toBe(asked)
  })

  test('is not tried again and again: after three times the schema is refused at once, for its project only', async () => {
    const schema = { title: 'thrice', properties: { a: { pattern: evil } } }
    await declare(schema)
    for (let time = 0; time < 3; time++) expect(await call({ a: attack })).toContain('takes longer than')
    expect(await call({ a: 'aa' })).toContain('it took longer than 250 ms 3 times')
    const two = await droid(booted, other, tools(schema))
    expect(await call({ a: 'aa' }, two)).toBe(asked)
  })

  test('hidden in a format costs no more', async () => {
    await declare({
      properties: {
        a: { format: 'email' },
        b: { format: 'uri' },
        c: { format: 'date-time' },
        d: { format: 'url' },
      },
    })
    const web = 'https://example.com/'
    expect(await call({ a: 'a@example.com', b: web, c: '2026-01-01T00:00:00Z', d: web })).toMatch(asked)
    const long = 'a.'.repeat(200_000)
    const latencies = await latenciesDuring(booted, other, async () => {
      for (const args of [
        { a: `${long}@` },
        { b: `http://${long}%` },
        { c: '1'.repeat(400_000) },
        // The check of this one takes time that is more than linear in its length.
        { d: `http://[${'1:'.repeat(30_000)}^` },
      ])
        expect(await call(args)).toMatch(/must match format|takes longer/)
    })
    expectHealthy('formats', latencies)
  })
})

describe('a schema', () => {
  test('of the largest size is accepted, and its checks hold', async () => {
    const names = Array.from({ length: 1600 }, (_, at) => `property_${at}`)
    const properties = Object.fromEntries(names.map((name) => [name, { type: 'integer', minimum: 1 }]))
    await declare({ properties, required: ['property_7'], additionalProperties: false })
    expect(await call({ property_7: 1 })).toBe(asked)
    expect(await call({ property_7: 0 })).toContain('data/property_7 must be >= 1')
    expect(await call({})).toContain("must have required property 'property_7'")
    expect(await call({ property_7: 1, x: 1 })).toContain('must NOT have additional properties')
  })

  test('of 10,000 properties, a huge enum or deep nesting is refused, by its place', async () => {
    const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`p${at}`, {}]))
    expect(await refusal({ properties: many })).toBe(
      'caller_tools[0].inputSchema: it has more than 5000 values',
    )
    expect(
      await refusal({ properties: { a: { enum: Array.from({ length: 6000 }, (_, at) => at) } } }),
    ).toContain('more than 5000 values')
    const nested = (depth: number): Schema => (depth === 0 ? {} : { items: nested(depth - 1) })
    expect(await refusal({ properties: { a: nested(40) } })).toContain('nested more than 32 deep')
    expect(await refusal({ properties: { a: { description: 'x'.repeat(140_000) } } })).toContain(
      'larger than 131072 bytes',
    )
    await declare({ properties: { a: nested(28) } })
    expect(await call({ a: [[[]]] })).toBe(asked)
  })

  test('that reaches beyond itself is refused', async () => {
    expect(await refusal({ properties: { a: { $ref: 'https://example.com/s.json' } } })).toContain(
      '$ref must refer',
    )
    expect(await refusal({ properties: { a: { $id: 'x' } } })).toContain('$id is not supported')
    expect(await refusal({ properties: { a: { $dynamicRef: '#x' } } })).toContain(
      '$dynamicRef is not supported',
    )
    await declare({
      $defs: { x: { type: 'string' } },
      properties: { a: { $ref: '#/$defs/x' }, $id: { type: 'string' } },
    })
    expect(await call({ a: 'a', $id: 'b' })).toBe(asked)
    expect(await call({ a: 1 })).toContain('data/a must be string')
  })

  test('with the $id of another project’s schema does not weaken it', async () => {
    const loose = await droid(booted, other, tools({ $id: 'https://example.com/shared', anyOf: [{}] }))
    expect(await call({}, loose)).toBe(asked)
    await declare({ $id: 'https://example.com/shared', anyOf: [{}], required: ['secret'] })
    expect(await call({})).toContain("must have required property 'secret'")
    expect(await call({ secret: 1 })).toBe(asked)
    expect(await call({}, loose)).toBe(asked)
  })

  test('that branches at every level, refers to itself without end or compares everything ends that call only', async () => {
    const branch = { $ref: '#/$defs/n' }
    const tree = {
      $defs: {
        n: {
          anyOf: [1, 2, 3].map((title) => ({
            title: `${title}`,
            required: ['n'],
            properties: { n: branch },
          })),
        },
      },
      properties: { n: branch },
    }
    const deep = (depth: number): object => (depth === 0 ? {} : { n: deep(depth - 1) })
    await declare(tree)
    const latencies = await latenciesDuring(booted, other, async () => {
      expect(await call({ n: deep(3) })).toContain('must')
      expect(await call({ n: deep(40) })).toContain('takes longer')
      await declare({
        $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } },
        properties: { x: { $ref: '#/$defs/a' } },
      })
        .then(() => call({ x: 1 }))
        .then(
          (message) => expect(message).toMatch(/failed|takes longer/),
          (error: Error) => expect(error.message).toContain('caller_tools[0].inputSchema'),
        )
      await declare({ properties: { a: { uniqueItems: true, items: { type: 'object' } } } })
      expect(await call({ a: [{ x: 1 }, { x: 2 }] })).toBe(asked)
      expect(await call({ a: [{ x: 1 }, { x: 1 }] })).toContain('must NOT have duplicate items')
      expect(await call({ a: Array.from({ length: 12_000 }, (_, at) => ({ x: at })) })).toContain(
        'takes longer',
      )
      const objects = Array.from({ length: 1200 }, (_, at) => ({ value: at }))
      await declare({ properties: { a: { items: { enum: objects } } } })
      expect(await call({ a: [{ value: 7 }] })).toBe(asked)
      expect(await call({ a: Array.from({ length: 12_000 }, () => ({ value: 1199 })) })).toContain(
        'takes longer',
      )
    })
    expectHealthy('branches', latencies)
  })

  test('is one of few: what callers declare is bounded in all', async () => {
    const large = { properties: { a: { description: 'x'.repeat(100_000) } } }
    const fields = { action: 'message', session_id: one.session_id, message: 'true' }
    const { message } = await booted.fault('session', { ...fields, ...tools(...Array(11).fill(large)) })
    expect(message).toBe('caller_tools is larger than 1048576 bytes')
    const host = await droid(booted, attacked)
    const declaring = (caller_id: string) => ({
      ...fields,
      session_id: host.session_id,
      ...tools(...Array(9).fill(large)),
      caller_id,
    })
    for (const caller_id of ['a', 'b', 'c', 'd']) await booted.ok('session', declaring(caller_id))
    expect((await booted.fault('session', declaring('e'))).kind).toBe('exhausted')
  })
})

describe('JSON', () => {
  test('of very many values is refused before it is parsed, on the socket and over HTTP', async () => {
    await declare({})
    const list = (values: number) => Array(values).fill(0)
    expect(await call({ a: list(39_000) })).toBe(asked)
    const frame = (values: number) =>
      `${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'caller_tool', params: { tool: 'app_t0', arguments: { a: list(values) } } })}\n`
    const latencies = await latenciesDuring(booted, other, async () => {
      for (let time = 0; time < 10; time++) {
        const dialled = await dialAs(one)
        dialled.send(frame(3_900_000))
        await dialled.closed
      }
    })
    expectHealthy('frames', latencies)
    const post = async (values: number) => {
      const params = { name: 'project', arguments: { action: 'list', name_contains: list(values) } }
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })
      return await send(booted.server.url, {
        headers: headersFor('2025-11-25', booted.server.admin_token, 'tools/call'),
        body,
      })
    }
    expect((await post(1_500_000)).text).toContain('has more than 40000 values')
    expect((await post(10)).text).not.toContain('has more than')
    // A few such bodies at once are taken, a stream of them is not; texts of the same size are no trouble.
    const statuses = (await Promise.all(Array.from({ length: 12 }, () => post(39_000)))).map(
      ({ status }) => status,
    )
    expect(statuses.some((status) => status !== 429)).toBe(true)
    expect(statuses).toContain(429)
  })

  test('in heavy frames from many connections at once leaves room for others', async () => {
    await declare({ properties: { a: { type: 'object' } }, required: ['b'] })
    const a = Object.fromEntries(Array.from({ length: 20_000 }, (_, at) => [`k${at}`, 1]))
    const dialled = await Promise.all(Array.from({ length: 50 }, () => dialAs(one)))
    const latencies = await latenciesDuring(booted, other, async () => {
      const answers = await Promise.all(
        dialled.map((connection) => connection.ask('caller_tool', { tool: 'app_t0', arguments: { a } })),
      )
      for (const { error } of answers) expect(error?.message).toContain("required property 'b'")
    })
    for (const connection of dialled) connection.close()
    expectHealthy('heavy frames', latencies)
  })
})

describe('a schedule', () => {
  const never = '0 59 * 1 * +0#5,1#5'
  test('that never comes to pass costs nobody else anything to find out', async () => {
    const preview = (cron_expr: string) =>
      rpc(booted.server.url, booted.server.admin_token, 'tools/call', {
        name: 'schedule',
        arguments: { action: 'preview', cron_expr, next: 100 },
      })
    expect(resultIn(await preview('0 0 29 2 +1')).structuredContent).toMatchObject({
      next_runs: expect.arrayContaining(['2044-02-29T00:00:00.000Z']),
    })
    const latencies = await latenciesDuring(booted, other, async () => {
      const answers = await Promise.all(
        Array.from({ length: 6 }, (_, at) => preview(`${at} ${never.slice(2)}`)),
      )
      for (const answer of answers)
        expect(resultIn(answer).structuredContent).toMatchObject({
          error: { kind: 'invalid', message: expect.stringContaining('has no future occurrence') },
        })
    })
    expectHealthy('cron', latencies)
  })

  test('list with many rare times answers, and others are answered meanwhile', async () => {
    const fields = { cron_expr: '0 0 29 2 +1', prompt: 'true', targets: [{ project_id: attacked }] }
    for (let at = 0; at < 30; at++)
      await booted.ok('schedule', { action: 'create', name: `s${at}`, ...fields })
    const latencies = await latenciesDuring(booted, other, async () => {
      const lists = await Promise.all(
        Array.from({ length: 5 }, () => booted.ok('schedule', { action: 'list', next: 100, limit: 100 })),
      )
      for (const { schedules } of lists)
        for (const { next_runs } of schedules) expect(next_runs[0]).toBe('2044-02-29T00:00:00.000Z')
    })
    expectHealthy('schedule list', latencies)
  })
})

test('task lists that are a megabyte of spaces are read like others', async () => {
  const change = 'openspec/changes'
  const spaces = `head -c 1000000 /dev/zero | tr '\\0' ' '`
  const made = await booted.exec(
    attacked,
    `mkdir -p ${change}/a ${change}/b && { printf -- '- [ ] '; ${spaces}; printf '\\n## '; } > ${change}/a/tasks.md &&
     { printf '# '; ${spaces}; } > ${change}/a/proposal.md &&
     printf '## 1. S\\n- [x] 1.1 Done\\n- [ ] Open\\n' > ${change}/b/tasks.md && printf '# T\\n' > ${change}/b/proposal.md`,
  )
  expect(made.exit_code).toBe(0)
  const latencies = await latenciesDuring(booted, other, async () => {
    const { changes } = await booted.ok('project_changes', { project_id: attacked })
    expect(changes).toMatchObject([
      { change: 'a', title: null, tasks_total: 0 },
      { change: 'b', title: 'T', tasks_total: 2, tasks_done: 1 },
    ])
    const { tasks } = await booted.ok('project_tasks', { project_id: attacked })
    expect(tasks).toMatchObject([
      { number: '1.1', section: '1. S', text: 'Done', done: true },
      { number: null, text: 'Open', done: false },
    ])
  })
  expectHealthy('task lists', latencies)
})

test('pages of large events are small, and together they are all events', async () => {
  await declare({})
  const from = (await booted.ok('session', { action: 'get', session_id: one.session_id })).last_index
  const text = 'x'.repeat(700_000)
  await Promise.all(Array.from({ length: 12 }, (_, at) => call({ at, text })))
  const page = { action: 'events', session_id: one.session_id, since_index: from, max_events: 1000 }
  const first = await booted.ok('session', page)
  expect(JSON.stringify(first).length).toBeLessThan(4_000_000)
  expect(first.has_more).toBe(true)
  const events = await history(booted, one.session_id, from)
  expect(events.map(({ index }) => index)).toEqual(events.map((_, at) => from + 1 + at))
  const requests = events.filter(({ type }) => type === 'caller_tool_request')
  expect(requests.map((event) => (event.arguments as { at: number }).at).sort((a, b) => a - b)).toEqual(
    Array.from({ length: 12 }, (_, at) => at),
  )
})

test('all of it at once, from 50 sessions: others are answered', async () => {
  const schema = { properties: { a: { pattern: evil }, b: { type: 'object' } } }
  const sessions = await Promise.all(
    Array.from({ length: 50 }, (_, at) => droid(booted, attacked, tools({ ...schema, title: `${at}` }))),
  )
  const b = Object.fromEntries(Array.from({ length: 5_000 }, (_, at) => [`k${at}`, 1]))
  const latencies = await latenciesDuring(booted, other, async () => {
    const ends = Date.now() + 6_000
    await Promise.all([
      ...sessions.map(async (session) => {
        const dialled = await dialAs(session)
        const params = { tool: 'app_t0', arguments: { a: attack, b } }
        while (Date.now() < ends) {
          const answer = dialled.ask('caller_tool', params)
          // What waits for its turn in the queue of its project is given up when the time is over.
          await Promise.race([answer, pause(Math.max(0, ends - Date.now()))])
        }
        dialled.close()
      }),
      ...Array.from({ length: 4 }, async () => {
        while (Date.now() < ends) {
          await booted.fault('schedule', { action: 'preview', cron_expr: '0 59 * 1 * +0#5,1#5' })
          await booted.ok('project_tasks', { project_id: attacked })
        }
      }),
    ])
  })
  expectHealthy('all at once', latencies)
})
