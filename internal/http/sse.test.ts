import { expect, test } from 'vitest'
import { createLifetimes } from '../auth/lifetimes.ts'
import { createOpenStreams } from '../auth/open-streams.ts'
import { createLog } from '../log.ts'
import { createStreams, type ServerSentEvent, sse } from './sse.ts'

const lines: string[] = []
const log = createLog({ write: (line) => lines.push(line) })
const caller = {
  kind: 'token' as const,
  id: 'tok_1',
  name: 'test',
  scope: { kind: 'admin' as const, read_only: false },
  token_id: 'tok_1',
  expires_at: null,
}
const options = (more = {}) => ({
  heartbeat_seconds: 60,
  stalled_seconds: 60,
  signal: new AbortController().signal,
  log,
  ...more,
})
const decoder = new TextDecoder()

/** Counts what is taken from it, and notices when it is stopped. */
function counter(limit = Number.POSITIVE_INFINITY) {
  const state = { taken: 0, stopped: false }
  async function* events(): AsyncGenerator<ServerSentEvent[]> {
    try {
      while (state.taken < limit) {
        state.taken++
        yield [{ id: String(state.taken), event: 'count', data: `${state.taken}` }]
      }
    } finally {
      state.stopped = true
    }
  }
  return { state, events: events() }
}
/** A source that has nothing to say until it is told to stop. */
async function* silence(signal: AbortSignal): AsyncGenerator<ServerSentEvent[]> {
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

test('writes events, with data of several lines, to the end of the source', async () => {
  async function* events() {
    yield [{ id: '1', event: 'status', data: '{"a":1}' }, { data: 'one' }]
    yield [{ data: 'two\r\nlines\n' }]
  }
  const response = sse(events(), options())
  expect(response.headers.get('content-type')).toBe('text/event-stream')
  expect(await response.text()).toBe(
    ': open\n\nid: 1\nevent: status\ndata: {"a":1}\n\ndata: one\n\ndata: two\ndata: lines\ndata: \n\n',
  )
})

test('takes from the source only what is read, and stops it when the reader leaves', async () => {
  const { state, events } = counter()
  const reader = sse(events, options()).body!.getReader()
  for (let read = 0; read < 3; read++) await reader.read()
  await new Promise((resolve) => setImmediate(resolve))
  expect(state.taken).toBeLessThan(6)
  await reader.cancel()
  await expect.poll(() => state.stopped).toBe(true)
})

test('sends comments while the source is silent, and loses no event that comes after them', async () => {
  const later = Promise.withResolvers<void>()
  async function* events() {
    await later.promise
    yield [{ data: 'late' }]
    yield [{ data: 'later' }]
  }
  const reader = sse(events(), options({ heartbeat_seconds: 0.005 })).body!.getReader()
  const read = async () => decoder.decode((await reader.read()).value)
  expect(await read()).toBe(': open\n\n')
  expect(await read()).toBe(': \n\n')
  expect(await read()).toBe(': \n\n')
  later.resolve()
  const rest: string[] = []
  while (!rest.includes('data: later\n\n')) rest.push(await read())
  expect(rest.filter((text) => text.startsWith('data'))).toEqual(['data: late\n\n', 'data: later\n\n'])
  await reader.cancel()
})

test('ends when its signal says so, also before it began', async () => {
  const ending = new AbortController()
  const response = sse(silence(ending.signal), options({ signal: ending.signal }))
  const text = response.text()
  ending.abort()
  expect(await text).toBe(': open\n\n')
  expect(await sse(counter().events, options({ signal: AbortSignal.abort() })).text()).toBe(': open\n\n')
})

test('a source that fails ends the stream with an error event, without its text', async () => {
  // biome-ignore lint/correctness/useYield: it fails before its first event.
  async function* events(): AsyncGenerator<ServerSentEvent[]> {
    throw new Error('secret detail')
  }
  const text = await sse(events(), options()).text()
  expect(text).toContain('event: error\ndata: {"error":{"kind":"internal"')
  expect(text).not.toContain('secret detail')
  expect(lines.join()).toContain('secret detail')
})

test('cuts off a reader that takes nothing of what was written', async () => {
  const { state, events } = counter()
  const reader = sse(events, options({ stalled_seconds: 0.02 })).body!.getReader()
  await reader.read()
  await expect.poll(() => state.stopped).toBe(true)
  await expect(reader.closed).rejects.toThrow('read nothing')
  // One that is only silent has a reader that waits.
  const quiet = new AbortController()
  const patient = sse(
    silence(quiet.signal),
    options({ stalled_seconds: 0.02, heartbeat_seconds: 0.01, signal: quiet.signal }),
  )
  const comments = patient.body!.getReader()
  for (let read = 0; read < 8; read++) expect((await comments.read()).done).toBe(false)
  quiet.abort()
})

test('streams end with their token, give their place back, and are bounded', async () => {
  const lifetimes = createLifetimes()
  const open = createOpenStreams({ per_token: 2, per_server: 10, lifetimes })
  const streams = createStreams({ open, heartbeat_seconds: 60, stalled_seconds: 60, log })
  const left = new AbortController().signal
  const mine = streams.open(caller, left, silence).text()
  const other = streams.open({ ...caller, token_id: 'tok_2' }, left, silence)
  for (let again = 0; again < 3; again++)
    expect(await streams.open(caller, left, () => counter(1).events).text()).toContain('data: 1')
  const left_at_once = streams.open(caller, left, silence)
  expect(() => streams.open(caller, left, silence)).toThrow('this token has 2 open streams')
  await left_at_once.body!.cancel()
  lifetimes.revoke(['tok_1'])
  expect(await mine).toBe(': open\n\n')
  const reader = other.body!.getReader()
  await reader.read()
  const next = reader.read()
  open.endAll()
  expect((await next).done).toBe(true)
})
