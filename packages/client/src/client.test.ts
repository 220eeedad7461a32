import { describe, expect, it } from 'vitest'
import type { z } from 'zod'
import { kinds } from '../../../internal/fault.ts'
import * as server from '../../../internal/protocol/session-status.ts'
import { sessionTool } from '../../../internal/tools/declarations/session.ts'
import type {
  addressed,
  attachments,
  session,
  spawning,
} from '../../../internal/tools/declarations/session-fields.ts'
import { serverKinds } from './error.ts'
import {
  type Attachment,
  createClient,
  type SentPrompt,
  type SessionEvent,
  type SessionInfo,
  type SpawnFields,
  tool,
} from './index.ts'
import { finalStatuses, sessionStatuses } from './types.ts'

type Request = { path: string; headers: Headers; body: { id: number; params: Record<string, unknown> } }
type Handler = (request: Request) => Response | Promise<Response>

/** A client whose server is `handler`. */
function clientOf(handler: Handler, more = {}) {
  const fake = async (input: string | URL | globalThis.Request, init?: RequestInit) => {
    const { pathname, search } = new URL(String(input))
    const body = init?.body ? JSON.parse(String(init.body)) : undefined
    return await handler({ path: pathname + search, headers: new Headers(init?.headers), body })
  }
  return createClient({ url: 'http://server:8080', token: 'oub_x', fetch: fake as typeof fetch, ...more })
}
const result = (id: number, structuredContent: object, isError = false) =>
  Response.json({ jsonrpc: '2.0', id, result: { structuredContent, isError, content: [] } })
const refusedConnection = () => {
  throw new TypeError('fetch failed', {
    cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }),
  })
}
const resetConnection = () => {
  throw new TypeError('fetch failed', { cause: Object.assign(new Error('reset'), { code: 'ECONNRESET' }) })
}
const stream = (...chunks: string[]) =>
  new Response(new Blob(chunks).stream(), { headers: { 'content-type': 'text/event-stream' } })
const eventOf = (index: number, fields: object = { type: 'delta', text: 'x' }) =>
  `id: ${index}\ndata: ${JSON.stringify({ index, session_id: 'gogol_1', at: '', ...fields })}\n\n`
const infoOf = (fields: Partial<SessionInfo>) => ({
  session_id: 'gogol_1',
  status: 'running',
  requires: [],
  open_requests: [],
  ...fields,
})
const argsOf = ({ body }: Request) => body.params.arguments as Record<string, unknown>

describe('a call', () => {
  it('is one request of the 2026-07-28 revision', async () => {
    let seen: Request | undefined
    const client = clientOf((request) => {
      seen = request
      return result(request.body.id, { projects: [] })
    })
    expect(await client.call('project', { action: 'list' })).toEqual({ projects: [] })
    expect(seen?.path).toBe('/mcp')
    expect(Object.fromEntries(seen?.headers ?? [])).toMatchObject({
      authorization: 'Bearer oub_x',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'project',
    })
    expect(seen?.body.params).toMatchObject({ name: 'project', arguments: { action: 'list' } })
  })

  it('reports progress before its result', async () => {
    const client = clientOf(({ body }) => {
      const progress = { method: 'notifications/progress', params: { progress: 1, message: 'half' } }
      const last = { id: body.id, result: { structuredContent: { done: true } } }
      return stream(`data: ${JSON.stringify(progress)}\n\n`, `data: ${JSON.stringify(last)}\n\n`)
    })
    const seen: unknown[] = []
    const done = await client.call('x', {}, { onProgress: ({ message }) => seen.push(message) })
    expect([done, seen]).toEqual([{ done: true }, ['half']])
  })

  it.each<[string, Handler, object]>([
    [
      'an error of the tool',
      ({ body }) =>
        result(body.id, { error: { kind: 'not_found', message: 'no project x', id: 'err_1' } }, true),
      { kind: 'not_found', message: 'no project x', id: 'err_1' },
    ],
    [
      'an HTTP error',
      () =>
        Response.json(
          { error: { kind: 'exhausted', message: 'too many', hint: 'wait', id: 'err_2' } },
          { status: 429, headers: { 'retry-after': '7' } },
        ),
      { kind: 'exhausted', hint: 'wait', retry_after_seconds: 7 },
    ],
    [
      'a JSON-RPC error',
      ({ body }) => Response.json({ id: body.id, error: { code: -32602, message: 'Unknown tool: x' } }),
      { kind: 'invalid', message: 'Unknown tool: x' },
    ],
    [
      'another server',
      () => new Response('<html>', { status: 404, headers: { 'content-type': 'text/html' } }),
      { kind: 'protocol', message: expect.stringContaining('http://server:8080/ responded with HTTP 404') },
    ],
    [
      'a proxy without its server',
      () => new Response('bad gateway', { status: 502 }),
      { kind: 'unreachable', message: expect.stringContaining('a proxy cannot reach the server') },
    ],
    [
      'no server',
      refusedConnection,
      {
        kind: 'unreachable',
        message: 'cannot reach the server at http://server:8080/: refused',
        hint: expect.stringContaining('./oubliette up'),
      },
    ],
    [
      'a connection lost on the way',
      () => stream(': open\n\n'),
      { kind: 'unreachable', hint: expect.stringContaining('may have taken effect') },
    ],
  ])('throws one type of error for %s', async (_what, handler, expected) => {
    await expect(clientOf(handler).call('x')).rejects.toMatchObject({ name: 'OublietteError', ...expected })
  })

  it('is repeated after an outage only if asked to, and never as the first contact', async () => {
    let calls = 0
    const handler: Handler = (request) => {
      calls += 1
      return calls % 2 === 0 ? refusedConnection() : result(request.body.id, { calls })
    }
    const client = clientOf(handler)
    await client.call('x')
    await expect(client.call('x')).rejects.toMatchObject({ kind: 'unreachable' })
    await client.call('x')
    expect(await client.call('x', {}, { retry: true })).toEqual({ calls: 5 })
    await expect(clientOf(refusedConnection).call('x', {}, { retry: true })).rejects.toMatchObject({
      kind: 'unreachable',
    })
    const impatient = clientOf(handler, { reconnect_seconds: 0 })
    calls = 0
    await impatient.call('x')
    await expect(impatient.call('x', {}, { retry: true })).rejects.toMatchObject({ kind: 'unreachable' })
  })

  it('is repeated if a server closes the connection at the first contact', async () => {
    let calls = 0
    const handler: Handler = ({ body }) => {
      calls += 1
      if (calls === 1) return resetConnection()
      return calls === 2 ? refusedConnection() : result(body.id, { calls })
    }
    expect(await clientOf(handler).call('x', {}, { retry: true })).toEqual({ calls: 3 })
  })

  it.each([
    ['http://h:1', 'http://h:1/mcp'],
    ['http://h:1/mcp', 'http://h:1/mcp'],
    ['https://h/oubliette', 'https://h/oubliette/mcp'],
    ['https://h/oubliette/mcp/?a#b', 'https://h/oubliette/mcp'],
  ])('to a client of %s goes to %s', async (url, expected) => {
    let asked = ''
    const fake = async (input: unknown) => {
      asked = String(input)
      return result(0, {})
    }
    await createClient({ url, token: 'x', fetch: fake as typeof fetch }).call('x')
    expect(asked).toBe(expected)
  })

  it.each([
    ['localhost', 'x', 'is not a URL'],
    ['ftp://h', 'x', 'is not an http or https URL'],
    ['http://h', '', 'missing token'],
  ])('is not possible with url %j and token %j', (url, token, message) => {
    expect(() => createClient({ url, token })).toThrow(message)
  })
})

describe('events', () => {
  it('resume after the last one, without a gap or a repetition, and end with the session', async () => {
    const since: (string | null)[] = []
    let got = 0
    const client = clientOf((request) => {
      if (request.path === '/mcp') {
        got += 1
        const ended = { status: 'completed', last_index: 5 } as const
        return result(request.body.id, infoOf(got === 1 ? { status: 'running', last_index: 1 } : ended))
      }
      since.push(request.headers.get('last-event-id') ?? request.path)
      if (since.length === 1) return stream(eventOf(0), eventOf(1), eventOf(2).slice(0, 20))
      if (since.length === 2) return refusedConnection()
      if (since.length === 3)
        return stream(eventOf(1), eventOf(2, { type: 'status', status: 'failed' }), eventOf(3))
      return stream(eventOf(4, { type: 'status', status: 'completed' }), eventOf(5), eventOf(6))
    })
    const indexes: number[] = []
    for await (const { index } of client.events('gogol_1')) indexes.push(index)
    expect(indexes).toEqual([0, 1, 2, 3, 4, 5])
    expect(since).toEqual(['/sessions/gogol_1/events?since_index=-1', '1', '1', '3'])
  })

  it('of a session that has ended are none after its last', async () => {
    const client = clientOf(({ body }) => result(body.id, infoOf({ status: 'failed', last_index: 7 })))
    const seen: SessionEvent[] = []
    for await (const event of client.events('gogol_1', { since: 7 })) seen.push(event)
    expect(seen).toEqual([])
  })

  it('end with the error of a session that does not exist', async () => {
    const error = { kind: 'not_found', message: 'no session gogol_1', id: 'err_1' }
    const client = clientOf(({ body }) => result(body.id, { error }, true))
    await expect(client.events('gogol_1').next()).rejects.toMatchObject(error)
  })
})

describe('caller tools', () => {
  const request = (request_id: string, n: number) => ({
    type: 'caller_tool_request',
    request_id,
    caller_id: 'app',
    tool: 'work',
    arguments: { n },
    deadline_at: '',
    session_id: 'gogol_1',
  })

  it('run once for each open request of the history, and not for those with a result', async () => {
    const answers: unknown[] = []
    const open = request('b', 2)
    const client = clientOf((asked) => {
      if (asked.path !== '/mcp')
        return stream(
          eventOf(0, request('a', 1)),
          eventOf(1, { type: 'caller_tool_result', request_id: 'a' }),
          eventOf(2, open),
          eventOf(3, request('c', 3)),
          eventOf(4, { ...request('d', 4), caller_id: 'other' }),
          eventOf(5, request('e', 5)),
          eventOf(6, { type: 'status', status: 'completed' }),
        )
      const { action, request_id, result: given, error } = argsOf(asked)
      if (action !== 'get') answers.push([request_id, given ?? error])
      // `c` is open too, and does not fit into the list.
      const info = { last_index: 4, requires: ['b', 'c'], open_requests: [open] }
      const ended = { status: 'completed', last_index: 6 } as const
      return result(asked.body.id, action === 'get' ? infoOf(answers.length < 3 ? info : ended) : {})
    })
    const work = tool<{ n: number }>({
      run: ({ n }) => {
        if (n === 3) throw new Error('no three')
        return n
      },
    })
    const errors: unknown[] = []
    const session = client.session({ session_id: 'gogol_1', caller_id: 'app', tools: { work } })
    const seen: number[] = []
    const { status } = await session.attend({
      since: 3,
      onEvent: ({ index }) => void seen.push(index),
      onError: (error) => void errors.push(error),
    })
    expect(status).toBe('completed')
    expect(answers.sort()).toEqual([
      ['b', 2],
      ['c', { message: 'no three' }],
      ['e', 5],
    ])
    expect(seen).toEqual([4, 5, 6])
    expect(errors).toEqual([new Error('no three')])
  })
})

describe('many answers', () => {
  it('are sent a few at a time, also through an outage, and each once', async () => {
    const requests = Array.from({ length: 200 }, (_, n) => ({
      type: 'caller_tool_request',
      request_id: `r${n}`,
      caller_id: 'app',
      tool: 'work',
      arguments: { n },
      session_id: 'gogol_1',
    }))
    const answered = new Map<unknown, unknown>()
    let in_flight = 0
    let most = 0
    let failures = 0
    let gets = 0
    const ended = { status: 'completed', last_index: 200 } as const
    const client = clientOf(async (asked) => {
      if (asked.path !== '/mcp')
        return stream(
          ...requests.map((one, at) => eventOf(at, one)),
          eventOf(200, { type: 'status', ...ended }),
        )
      const { action, request_id, result: given } = argsOf(asked)
      if (action === 'get') {
        if (gets++ === 0) return result(asked.body.id, infoOf({ last_index: -1 }))
        while (answered.size < 200) await new Promise((resolve) => setTimeout(resolve, 5))
        return result(asked.body.id, infoOf(ended))
      }
      in_flight += 1
      most = Math.max(most, in_flight)
      // Longer than it takes to read all requests.
      await new Promise((resolve) => setTimeout(resolve, 100))
      in_flight -= 1
      if (answered.size >= 100 && failures++ < 10) return resetConnection()
      expect(answered.has(request_id)).toBe(false)
      answered.set(request_id, given)
      return result(asked.body.id, {})
    })
    const work = tool<{ n: number }>({ run: ({ n }) => n })
    const session = client.session({ session_id: 'gogol_1', caller_id: 'app', tools: { work } })
    const attending = session.attend()
    await expect.poll(() => answered.size, { timeout: 5000 }).toBe(200)
    expect((await attending).status).toBe('completed')
    expect([...answered.values()].sort((a, b) => Number(a) - Number(b))).toEqual(requests.map((_, n) => n))
    expect(most).toBe(32)
    expect(failures).toBeGreaterThanOrEqual(10)
  })
})

describe('what the server declares', () => {
  it('kinds of errors and statuses', () => {
    expect(serverKinds).toEqual(kinds)
    expect(finalStatuses).toEqual(server.finalStatuses)
    expect(sessionStatuses).toEqual(expect.arrayContaining([...server.sessionStatuses]))
  })

  it('sessions and fields of a prompt', () => {
    // These lines do not compile if the types differ.
    const info = (given: z.output<typeof session>): SessionInfo => given
    const sent = (given: z.output<typeof addressed>): SentPrompt => given
    type Spawning = Omit<SpawnFields, 'project_id' | 'workspace_id' | 'new_session'>
    const fields = (given: Spawning): z.input<z.ZodObject<typeof spawning>> => given
    const files = (given: Attachment[]): z.input<typeof attachments> => given
    expect([info, sent, fields, files].map((given) => typeof given)).toEqual(Array(4).fill('function'))
    const known: Record<keyof SpawnFields, true> = {
      project_id: true,
      workspace_id: true,
      create_workspace: true,
      new_session: true,
      droid: true,
      model: true,
      reasoning_level: true,
      autonomy_level: true,
      tools_allowed: true,
      tools_disallowed: true,
      external_id: true,
      source: true,
      api_scope: true,
    }
    const { shape } = sessionTool.actions.spawn!.input as z.ZodObject
    expect(Object.keys(shape)).toEqual(expect.arrayContaining(Object.keys(known)))
  })
})
