import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { callTool, type Endpoint } from './call.ts'

let answer: (response: ServerResponse, body: string, request: IncomingMessage) => void
const server = createServer(async (request, response) => {
  let body = ''
  for await (const chunk of request) body += chunk
  answer(response, body, request)
})
let where: Endpoint
beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  where = { url: new URL(`http://127.0.0.1:${port}/mcp`), token: 'oub_x' }
})
afterAll(() => server.close())

const json = (status: number, body: unknown) => {
  answer = (response) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}
const call = (options = {}) => callTool(where, 'project', { action: 'list' }, options)

test('a call is one request of the stateless era, and its result is the structured content', async () => {
  let seen: { body: string; headers: IncomingMessage['headers'] } | undefined
  answer = (response, body, { headers }) => {
    seen = { body, headers }
    response.setHeader('content-type', 'application/json')
    response.end(
      JSON.stringify({ jsonrpc: '2.0', id: 1, result: { structuredContent: { projects: ['é'] } } }),
    )
  }
  expect(await call()).toEqual({ projects: ['é'] })
  expect(JSON.parse(seen!.body)).toMatchObject({
    method: 'tools/call',
    params: { name: 'project', arguments: { action: 'list' } },
  })
  expect(seen!.headers).toMatchObject({
    authorization: 'Bearer oub_x',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'project',
  })
})

test('progress arrives before the result', async () => {
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const send = (message: object) =>
      response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`)
    send({ method: 'notifications/progress', params: { progressToken: 1, progress: 1, message: 'step 1' } })
    response.write(': keepalive\n\n')
    send({ id: 1, result: { structuredContent: { done: true } } })
    response.end()
  }
  const steps: string[] = []
  expect(await call({ progress: (step: string) => steps.push(step) })).toEqual({ done: true })
  expect(steps).toEqual(['step 1'])
})

test('an error of the tool, of a route and of the protocol keep their message and hint', async () => {
  const error = { kind: 'not_found', message: 'no project x', hint: 'try y', id: 'err_1' }
  json(200, { id: 1, result: { isError: true, structuredContent: { error }, content: [] } })
  await expect(call()).rejects.toMatchObject({ kind: 'not_found', message: 'no project x', hint: 'try y' })
  json(429, { error: { kind: 'exhausted', message: 'too many requests', id: 'err_2' } })
  await expect(call()).rejects.toMatchObject({ kind: 'exhausted', message: 'too many requests' })
  json(400, { id: 1, error: { code: -32602, message: 'unknown tool' } })
  await expect(call()).rejects.toMatchObject({ kind: 'invalid', message: 'unknown tool' })
})

test('a rejected token and an unreachable server are named', async () => {
  json(401, { error: { kind: 'unauthenticated', message: 'invalid token', id: 'err_1' } })
  await expect(call()).rejects.toThrow(/rejected the token/)
  json(404, 'no such page')
  await expect(call()).rejects.toThrow(/^cannot connect to the server at .*: HTTP status 404$/)
  const nowhere = { ...where, url: new URL('http://127.0.0.1:1/mcp') }
  await expect(callTool(nowhere, 'project', {})).rejects.toThrow(
    /^cannot connect to the server at http:\/\/127\.0\.0\.1:1: connect ECONNREFUSED/,
  )
  answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end()
  }
  await expect(call()).rejects.toThrow(/closed before the result/)
})

test('cancelling a call closes its connection', async () => {
  const stop = new AbortController()
  const closed = new Promise<void>((resolve) => {
    answer = (response) => {
      response.on('close', resolve)
      stop.abort()
    }
  })
  await expect(call({ signal: stop.signal })).rejects.toThrow()
  await closed
})
