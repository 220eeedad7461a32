// A provider, what passes its answer on, and a droid: three ends of real connections.
import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Secret } from '../log.ts'
import { type Answered, createForward } from './forward.ts'
import { createScrubber } from './scrub.ts'

const key = 'sk-a-key-of-ours-0123456789'
const reader = {
  scrubber: createScrubber({ provider: 'anthropic', key: new Secret(key) }),
  elsewhere: async () => [],
}
let servers: Server[]
let forwarding: ReturnType<typeof createForward>
beforeEach(() => {
  servers = []
  forwarding = createForward({ allow_proxy: false })
})
afterEach(() => {
  forwarding.close()
  for (const server of servers) server.closeAllConnections()
  for (const server of servers) server.close()
})

async function serve(answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  servers.push(server)
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** The address for droids of this provider, and what came of their request. */
async function between(provider: RequestListener) {
  const url = new URL(await serve(provider))
  const { promise: answered, resolve, reject } = Promise.withResolvers<Answered>()
  const droid_url = await serve((_request, response) => {
    forwarding
      .begin({ url, method: 'GET', headers: {} }, Buffer.alloc(0), response)
      .then((incoming) => forwarding.passOn(incoming, response, reader))
      .then(resolve, reject)
  })
  return { droid_url, answered }
}

const line = (number: number) => `data: {"number":${number},"text":"${'word '.repeat(10)}"}\n\n`
const stream = { 'content-type': 'text/event-stream' }

test('many small pieces arrive whole and in order, and what they say of tokens is read', async () => {
  const numbers = Array.from({ length: 5000 }, (_, number) => number)
  const { droid_url, answered } = await between((_request, response) => {
    response.writeHead(200, stream)
    for (const number of numbers) response.write(line(number))
    response.end('data: {"model":"m","usage":{"input_tokens":5,"output_tokens":6}}\n\n')
  })
  const text = await (await fetch(droid_url)).text()
  expect([...text.matchAll(/"number":(\d+)/g)].map((match) => Number(match[1]))).toEqual(numbers)
  expect(await answered).toMatchObject({
    status: 200,
    whole: true,
    usage: { model: 'm', input: 5, output: 6 },
  })
})

test('a piece is passed on before there is another', async () => {
  const heard = Promise.withResolvers<void>()
  const { droid_url } = await between((_request, response) => {
    response.writeHead(200, stream).write(line(1))
    void heard.promise.then(() => response.end(line(2)))
  })
  const reader = (await fetch(droid_url)).body!.getReader()
  expect(Buffer.from((await reader.read()).value!).toString()).toBe(line(1))
  heard.resolve()
  expect(Buffer.from((await reader.read()).value!).toString()).toBe(line(2))
})

test('an answer that broke is not told as one that ended', async () => {
  const { droid_url, answered } = await between((_request, response) => {
    response.writeHead(200, stream)
    response.write(line(1), () => response.destroy())
  })
  const answer = await fetch(droid_url)
  await expect(answer.text()).rejects.toThrow()
  expect(await answered).toMatchObject({ whole: false })
})

test('a droid that reads slowly holds its provider back', { timeout: 30_000 }, async () => {
  const total = 96 * 1024 * 1024
  const piece = Buffer.alloc(64 * 1024, 'x')
  let sent = 0
  const { droid_url, answered } = await between(async (_request, response) => {
    response.writeHead(200, stream)
    while (sent < total) {
      sent += piece.length
      if (!response.write(piece)) await once(response, 'drain')
    }
    response.end()
  })
  let got = 0
  let ahead = 0
  for await (const chunk of (await fetch(droid_url)).body!) {
    got += chunk.length
    ahead = Math.max(ahead, sent - got)
    await setTimeout(1)
  }
  expect(got).toBe(total)
  // What fits into the buffers of the sockets on the way, and no more.
  expect(ahead).toBeLessThan(total / 2)
  expect(await answered).toMatchObject({ whole: true })
})

test('a key that comes back in headers or body is masked, wherever the network cuts it', async () => {
  for (const status of [200, 401])
    for (let cut = 1; cut < key.length; cut += 5) {
      const { droid_url } = await between(async (_request, response) => {
        response.writeHead(status, {
          'content-type': 'application/json',
          'x-echo': `Bearer ${key}`,
          'x-kept': 'yes',
        })
        response.write(`{"message":"not ${key.slice(0, cut)}`)
        await setTimeout(5)
        response.end(`${key.slice(cut)} please"}`)
      })
      const answer = await fetch(droid_url)
      expect(await answer.text()).toBe(`{"message":"not ${'*'.repeat(key.length)} please"}`)
      expect(answer.headers.get('x-echo')).toBeNull()
      expect(answer.headers.get('x-kept')).toBe('yes')
    }
})

test('an answer that is compressed against our wish is not passed on', async () => {
  const { droid_url, answered } = await between((_request, response) => {
    response.writeHead(200, { ...stream, 'content-encoding': 'gzip' }).end('whatever')
  })
  const asked = fetch(droid_url).catch(() => undefined)
  await expect(answered).rejects.toThrow('content-encoding gzip')
  for (const server of servers) server.closeAllConnections()
  await asked
})
