// /metrics as Prometheus reads it: who may, what is counted, and that no caller can add labels.
import { request } from 'node:http'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'
import { connect } from '../../harness/client.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project()
  await booted.ok('session', { action: 'spawn', project_id, prompt: 'echo hello', wait_seconds: 60 })
})
afterAll(() => booted?.stop())

type Reply = { status: number; text: string; type: string }
const get = (headers: Record<string, string> = {}, server = booted.server) =>
  new Promise<Reply>((done, fail) => {
    const asked = request(`${server.url}/metrics`, { headers }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
      response.on('end', () =>
        done({ status: response.statusCode ?? 0, text, type: String(response.headers['content-type']) }),
      )
    })
    asked.on('error', fail).end()
  })
const read = async () => (await get()).text.split('\n')
async function value(name: string): Promise<number> {
  const line = (await read()).find((one) => one.startsWith(`${name} `))
  return Number(line?.slice(name.length + 1) ?? Number.NaN)
}
/** The text is the same for a second. */
const untilValue = (name: string, is: (value: number) => boolean) =>
  until(async () => is(await value(name)), { what: `${name} has its value` })

test('what the server does is counted', async () => {
  const { status, type } = await get()
  expect([status, type]).toEqual([200, expect.stringContaining('text/plain; version=0.0.4')])
  const calls = 'oubliette_tool_calls_total{tool="project",action="get",outcome="ok"}'
  for (let number = 0; number < 5; number++) await booted.ok('project', { action: 'get', project_id })
  await untilValue(calls, (count) => count === 5)
  await untilValue('oubliette_tool_call_duration_seconds_count{tool="project",action="get"}', (n) => n === 5)
  await untilValue('oubliette_sessions{status="idle"}', (n) => n === 1)
  await untilValue('oubliette_sessions{status="failed"}', (n) => n === 0)
  await untilValue('oubliette_relay{kind="supervisors"}', (n) => n === 1)
  await untilValue('oubliette_queue_depth{queue="commands"}', (n) => n === 0)
  expect(await value('oubliette_events_total')).toBeGreaterThan(2)
  expect(await value('oubliette_database_connections{state="open"}')).toBeGreaterThan(0)
  expect(await value('oubliette_schedules{state="due"}')).toBe(0)
  expect(
    await value('oubliette_http_requests_total{route="/mcp",method="POST",status="200"}'),
  ).toBeGreaterThan(5)
  expect(await value('nodejs_eventloop_lag_p99_seconds')).toBeGreaterThanOrEqual(0)
})

test('an open stream is counted while it is open', async () => {
  const before = await value('oubliette_streams_open')
  const left = new AbortController()
  const headers = { authorization: `Bearer ${booted.server.admin_token}` }
  const stream = await fetch(`${booted.server.url}/projects/${project_id}/events`, {
    headers,
    signal: left.signal,
  })
  expect(stream.ok).toBe(true)
  await untilValue('oubliette_streams_open', (open) => open === before + 1)
  const { streams } = await booted.ok('diagnostics', { action: 'health' })
  expect(streams.open).toBe(before + 1)
  left.abort()
  await untilValue('oubliette_streams_open', (open) => open === before)
})

describe('a token', () => {
  const token = async (scope: string) =>
    (await booted.ok('token', { action: 'create', name: 'metrics', scope })).token as string

  test('is not needed on loopback without a proxy', async () => {
    expect((await get()).status).toBe(200)
  })

  test.each([
    ['a forwarded request', { 'x-forwarded-for': '203.0.113.7' }],
    ['a request through a proxy', { via: '1.1 proxy' }],
    ['a wrong token', { authorization: 'Bearer oub_wrong' }],
  ])('is needed for %s', async (_, headers) => {
    expect((await get(headers)).status).toBe(401)
  })

  test.each([
    ['admin', 200],
    ['admin:ro', 200],
    ['project', 403],
    ['project ro', 403],
  ])('of the scope %s gets %i', async (scope, status) => {
    const exact = { project: `project:${project_id}`, 'project ro': `project:${project_id}:ro` }[scope]
    const authorization = `Bearer ${await token(exact ?? scope)}`
    const reply = await get({ authorization, 'x-forwarded-for': '203.0.113.7' })
    expect(reply.status).toBe(status)
    if (status === 403) expect(reply.text).not.toContain('oubliette_tool_calls_total')
  })
})

test('callers cannot add labels', async () => {
  const series = async () => (await read()).filter((line) => line && !line.startsWith('#')).length
  const client = await connect(booted.server, booted.server.admin_token)
  const strange = async (name: string) => {
    await client.call(name).catch(() => undefined)
    await client.call('project', { action: name }).catch(() => undefined)
    await client.call('project', { action: 'get', project_id: name }).catch(() => undefined)
    await client.call('diagnostics', { action: 'run_tool', tool: name }).catch(() => undefined)
    await fetch(`${booted.server.url}/${name}`, { method: 'GET' })
    await fetch(`${booted.server.url}/sessions/${name}/events`)
    await fetch(`${booted.server.url}/mcp`, { method: 'PROPFIND' })
  }
  await strange('first')
  const unknown = 'oubliette_tool_calls_total{tool="unknown",action="unknown",outcome="not_found"}'
  await untilValue(unknown, (count) => count >= 1)
  const before = await series()
  for (let number = 0; number < 100; number++) await strange(`strange-${number}`)
  await untilValue(unknown, (count) => count >= 101)
  expect(await series()).toBeLessThanOrEqual(before + 5)
  const text = (await read()).join('\n')
  expect(text).not.toContain('strange')
  expect(text).not.toContain(project_id)
  await client.close()
})

test('many scrapes at once cost one reading', async () => {
  const replies = await Promise.all(Array.from({ length: 200 }, () => get()))
  expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]))
  expect(new Set(replies.map(({ text }) => text)).size).toBeLessThan(20)
})

test('without them the path does not exist', async () => {
  const off = await boot({ config: { metrics: false } })
  try {
    expect((await get({}, off.server)).status).toBe(404)
  } finally {
    await off.stop()
  }
})
