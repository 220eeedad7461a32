// Thousands of bad requests: none of them hurts the server, and each gets a kind and a sentence.
import { once } from 'node:events'
import { connect as dial } from 'node:net'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { uniqueName } from '../../harness/booted.ts'
import {
  badArguments,
  badBodies,
  badHeaders,
  badParams,
  badRequests,
  type Target,
} from '../../harness/fuzz/calls.ts'
import { problemOf } from '../../harness/fuzz/verdict.ts'
import { seeded } from '../../harness/random.ts'
import { openSession, resultIn, rpc, type Send, send } from '../../harness/rpc.ts'
import { bootServer, type TestServer } from '../../harness/server.ts'

const atOnce = 20
const max_body_bytes = 256 * 1024
let server: TestServer
const random = seeded('bad requests')

beforeAll(async () => {
  const rate = {
    per_token_per_second: 1_000_000,
    per_token_burst: 1_000_000,
    failures_per_address_per_minute: 1_000_000,
  }
  server = await bootServer({ config: { rate, max_body_bytes, log: { level: 'warn' } } })
})
afterAll(() => server?.stop())

/** A project and an MCP session of its own for each test: a request may change them, and tests run in any order. */
async function makeTarget(): Promise<Target> {
  const token = server.admin_token
  const args = { action: 'create', name: uniqueName() }
  const made = resultIn(await rpc(server.url, token, 'tools/call', { name: 'project', arguments: args }))
  const { project_id } = made.structuredContent as { project_id: string }
  return { token, session: await openSession(server.url, token), project_id, max_body_bytes }
}

/** The server may answer a body that is too large before it has all of it, and cut the connection. */
const cutOff = (error: NodeJS.ErrnoException, { body }: Send) =>
  (body?.length ?? 0) > max_body_bytes && ['EPIPE', 'ECONNRESET'].includes(error.code ?? '')

const shown = ({ method = 'POST', path = '/mcp', headers, body }: Send) =>
  `${method} ${path} ${JSON.stringify(headers)} ${String(body).slice(0, 1000)} (${body?.length ?? 0} long)`

async function check(request: Send): Promise<void> {
  const unanswered = AbortSignal.timeout(20_000)
  const reply = await Promise.race([
    send(server.url, request),
    once(unanswered, 'abort').then(() => Promise.reject(new Error('no answer within 20 s'))),
  ]).catch((error: NodeJS.ErrnoException) => {
    if (!cutOff(error, request)) throw new Error(`${error.message}: ${shown(request)}`, { cause: error })
  })
  const problem = reply && problemOf(request, reply)
  if (problem) throw new Error(`${problem}: ${reply.status} ${reply.text.slice(0, 1000)}: ${shown(request)}`)
}

async function fuzz(requests: (to: Target) => fc.Arbitrary<Send>, calls: number): Promise<void> {
  const target = await makeTarget()
  const batch = fc.array(requests(target), { minLength: atOnce, maxLength: atOnce })
  let sent = 0
  const property = fc.asyncProperty(batch, async (some) => {
    sent += some.length
    await Promise.all(some.map(check))
  })
  await fc.assert(property, {
    seed: random.seed,
    numRuns: Math.ceil(calls / atOnce),
    // To look for a smaller batch that fails takes longer than the test may, and the error names the request.
    endOnFailure: true,
    interruptAfterTimeLimit: 80_000,
  })
  // A slow machine may not send all of them in time.
  expect(sent).toBeGreaterThanOrEqual(calls * 0.75)
  await expectWell(target)
}

async function expectWell({ token, project_id }: Target): Promise<void> {
  for (const path of ['/healthz', '/readyz'])
    expect(await send(server.url, { method: 'GET', path })).toMatchObject({ status: 200 })
  const args = { action: 'get', project_id }
  const got = resultIn(await rpc(server.url, token, 'tools/call', { name: 'project', arguments: args }))
  expect(got.isError).toBe(false)
  expect(server.log()).not.toMatch(/"level":"error"/)
}

describe('bad input', () => {
  it(
    'with wrong arguments of every action, in both eras, gets an answer with a kind',
    () => fuzz(badArguments, 3000),
    90_000,
  )
  it('with wrong methods and parameters gets an answer with a kind', () => fuzz(badParams, 800))
  it('with bodies that are not JSON, too deep, or too large gets an answer with a kind', () =>
    fuzz(badBodies, 600))
  it('with wrong headers gets an answer with a kind', () => fuzz(badHeaders, 600))
  it('with wrong HTTP methods and paths gets an answer with a kind', () => fuzz(badRequests, 400))

  it.each([
    ['a word', 'hello\r\n\r\n'],
    ['an unknown version', 'GET /mcp HTTP/9.9\r\n\r\n'],
    ['a negative length', 'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n'],
    [
      'two lengths',
      'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc',
    ],
    ['a huge header', `GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ${'y'.repeat(40_000)}\r\n\r\n`],
    ['a broken address', 'GET http://[::1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n'],
    ['TLS', '\0\x16\x03\x01\x02\0\x01'],
  ])('that is not HTTP gets a 4xx answer with a kind: %s', async (_, bytes) => {
    const { hostname, port } = new URL(server.url)
    const socket = dial(Number(port), hostname)
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk
    })
    socket.on('error', () => undefined)
    socket.end(bytes)
    await once(socket, 'close')
    expect(text).toMatch(/^HTTP\/1\.1 4\d\d /)
    expect(text).toMatch(/"kind":"invalid","message":"[^"]{5,}"/)
  })

  it('of all kinds at the same time leaves the server healthy', async () => {
    await Promise.all(
      [badArguments, badParams, badBodies, badHeaders, badRequests].map((requests) => fuzz(requests, atOnce)),
    )
  })
})
