// The container's listener and a server that comes and goes.
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createLog } from '../../../internal/log.ts'
import { listenForModels, type ModelsListener } from './models.ts'

let directory: string
let path: string
let listener: ModelsListener
let servers: Server[]

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'oub-models-'))
  path = join(directory, 'relay.sock')
  servers = []
  listener = await listenForModels(path, createLog({ level: 'error' }))
})
afterEach(() => {
  listener.close()
  for (const server of servers) server.closeAllConnections()
  for (const server of servers) server.close()
  rmSync(directory, { recursive: true, force: true })
})

async function serve(answer: (response: ServerResponse) => void): Promise<Server> {
  const server = createServer((request, response) => {
    if (request.method === 'HEAD') return void response.writeHead(204).end()
    request.resume()
    answer(response)
  })
  servers.push(server)
  server.listen(path)
  await once(server, 'listening')
  return server
}

test('a request waits for a server that is not there yet', async () => {
  const asking = fetch(`${listener.url}/x`, { method: 'POST', body: 'hello' })
  await serve((response) => response.end('here I am'))
  expect(await (await asking).text()).toBe('here I am')
})

test('a server that ends the connection after its answer is no broken one', async () => {
  await serve((response) => response.writeHead(200, { connection: 'close' }).end('x'.repeat(500_000)))
  for (let time = 0; time < 5; time++) expect((await (await fetch(listener.url)).text()).length).toBe(500_000)
})

test('a server that goes away in the middle of an answer is a connection that was reset', async () => {
  const server = await serve((response) => void response.writeHead(200).write('the beginning'))
  const answer = await fetch(listener.url)
  server.close()
  rmSync(path, { force: true })
  server.closeAllConnections()
  const error = await answer.text().catch((error: Error) => error)
  expect((error as Error & { cause?: { code?: string } }).cause?.code).toBe('ECONNRESET')
})

test('a droid that hangs up is told to the server', async () => {
  const gone = Promise.withResolvers<void>()
  await serve((response) => {
    response.once('close', () => gone.resolve())
    response.writeHead(200).write('the beginning')
  })
  const leave = new AbortController()
  const answer = await fetch(listener.url, { signal: leave.signal })
  leave.abort()
  await expect(answer.text()).rejects.toThrow()
  await gone.promise
})
