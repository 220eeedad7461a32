import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, describe, expect, it } from 'vitest'
import { faultWithin } from '../faults.ts'
import { type ClosableFetch, createGuardedFetch, type GuardedFetchOptions } from './guarded-fetch.ts'

const servers: Server[] = []
const fetches: ClosableFetch[] = []
afterAll(async () => {
  await Promise.all(fetches.map((one) => one.close()))
  for (const server of servers) {
    server.closeAllConnections()
    server.close()
  }
})

async function listen(handler: RequestListener, host = '127.0.0.1') {
  const seen: IncomingMessage[] = []
  const server = createServer((request, response) => {
    seen.push(request)
    handler(request, response)
  }).listen(0, host)
  servers.push(server)
  await once(server, 'listening')
  return { seen, port: (server.address() as AddressInfo).port }
}

const hello: RequestListener = (_, response) => void response.end('hello')

function guarded(
  options: Partial<GuardedFetchOptions> & { names?: Record<string, string[]> },
): ClosableFetch {
  const { names = {}, ...rest } = options
  const fetch = createGuardedFetch({
    allow: () => true,
    resolve: async (name) => names[name] ?? [],
    ...rest,
  })
  fetches.push(fetch)
  return fetch
}

const refusalOf = (work: Promise<unknown>) =>
  work.then(
    () => 'no error',
    (error: unknown) => faultWithin(error)?.kind ?? error,
  )

describe('addresses', () => {
  it.each([
    ['a literal', '127.0.0.1', {}],
    ['a number', '2130706433', {}],
    ['a mapped literal', '[::ffff:127.0.0.1]', {}],
    ['a NAT64 literal', '[64:ff9b::7f00:1]', {}],
    ['a name', 'inside.test', { 'inside.test': ['127.0.0.1'] }],
    ['a name with one address that is allowed', 'mixed.test', { 'mixed.test': ['1.1.1.1', '127.0.0.1'] }],
  ])('%s is refused before anything is sent', async (_, host, names) => {
    const server = await listen(hello)
    const url = `http://${host}:${server.port}/`
    const denying = guarded({ allow: (address) => address !== '127.0.0.1', names })
    expect(await refusalOf(denying(url))).toBe('forbidden')
    expect(server.seen).toHaveLength(0)
    // The same address answers where it is allowed.
    if (host.includes('64:ff9b') || host === 'mixed.test') return
    const allowing = guarded({ names })
    expect(await (await allowing(url)).text()).toBe('hello')
  })

  it('of a name are those that were checked, not those of a second lookup', async () => {
    const server = await listen(hello)
    const secret = await listen(hello, '127.0.0.2')
    let lookups = 0
    const fetch = guarded({
      allow: (address) => address === '127.0.0.1',
      resolve: async () => [lookups++ === 0 ? '127.0.0.1' : '127.0.0.2'],
    })
    expect(await (await fetch(`http://rebind.test:${server.port}/`)).text()).toBe('hello')
    expect(lookups).toBe(1)
    expect(await refusalOf(fetch(`http://rebind.test:${secret.port}/`))).toBe('forbidden')
    expect(secret.seen).toHaveLength(0)
  })

  it('are tried in turn', async () => {
    const server = await listen(hello)
    const fetch = guarded({ names: { 'two.test': ['127.0.0.3', '127.0.0.1'] } })
    expect(await (await fetch(`http://two.test:${server.port}/`)).text()).toBe('hello')
  })

  it('of an unknown name are an error that names it', async () => {
    await expect(guarded({})('http://nowhere.test/')).rejects.toMatchObject({
      cause: { kind: 'unavailable', message: '"nowhere.test" has no address' },
    })
  })

  it.each(['file:///etc/passwd', 'data:text/plain,x', 'ftp://127.0.0.1/'])(
    'other protocols: %s',
    async (url) => {
      await expect(guarded({})(url)).rejects.toMatchObject({ kind: 'invalid' })
    },
  )
})

describe('redirects', () => {
  const to =
    (location: string, status = 302): RequestListener =>
    (_, response) =>
      void response.writeHead(status, { location }).end()

  it('to an address that is not allowed are refused; to one that is allowed they are followed', async () => {
    const secret = await listen(hello, '127.0.0.2')
    const open = await listen(to(`http://127.0.0.2:${secret.port}/latest/meta-data`))
    const denying = guarded({ allow: (address) => address === '127.0.0.1' })
    expect(await refusalOf(denying(`http://127.0.0.1:${open.port}/`))).toBe('forbidden')
    expect(secret.seen).toHaveLength(0)
    expect(await (await guarded({})(`http://127.0.0.1:${open.port}/`)).text()).toBe('hello')
  })

  it('take no secret to another origin, and all headers to the same', async () => {
    const headers = {
      authorization: 'Bearer secret',
      'x-api-key': 'secret',
      cookie: 'a=b',
      accept: 'text/plain',
    }
    const other = await listen(hello, '127.0.0.2')
    const away = await listen(to(`http://127.0.0.2:${other.port}/`))
    await guarded({})(`http://127.0.0.1:${away.port}/`, { headers })
    expect(away.seen[0]?.headers).toMatchObject(headers)
    expect(other.seen[0]?.headers.accept).toBe('text/plain')
    for (const name of ['authorization', 'x-api-key', 'cookie'])
      expect(other.seen[0]?.headers[name]).toBeUndefined()

    const same = await listen((request, response) =>
      request.url === '/' ? to('/next')(request, response) : hello(request, response),
    )
    await guarded({})(`http://127.0.0.1:${same.port}/`, { headers })
    expect(same.seen[1]?.headers).toMatchObject(headers)
  })

  it('of a request with a body are not followed', async () => {
    const other = await listen(hello, '127.0.0.2')
    const away = await listen(to(`http://127.0.0.2:${other.port}/`, 307))
    const response = await guarded({})(`http://127.0.0.1:${away.port}/`, {
      method: 'POST',
      body: 'client_secret=x',
    })
    expect(response.status).toBe(307)
    expect(other.seen).toHaveLength(0)
  })

  it('without end are an error', async () => {
    const server = await listen(to('/again'))
    await expect(guarded({})(`http://127.0.0.1:${server.port}/`)).rejects.toMatchObject({
      kind: 'unavailable',
    })
    expect(server.seen).toHaveLength(6)
  })

  it('are left alone on request', async () => {
    const server = await listen(to('/next'))
    const response = await guarded({})(`http://127.0.0.1:${server.port}/`, { redirect: 'manual' })
    expect([response.status, response.headers.get('location')]).toEqual([302, '/next'])
  })
})

describe('limits', () => {
  it('a server that says nothing', async () => {
    const server = await listen(() => undefined)
    const fetch = guarded({ silence_timeout_ms: 300 })
    await expect(fetch(`http://127.0.0.1:${server.port}/`)).rejects.toThrow()
  })

  it('a response that is too large', async () => {
    const server = await listen((_, response) => void response.end(Buffer.alloc(100_000)))
    const fetch = guarded({ max_response_bytes: 10_000 })
    await expect(
      fetch(`http://127.0.0.1:${server.port}/`).then((response) => response.text()),
    ).rejects.toThrow()
    const enough = guarded({ max_response_bytes: 200_000 })
    expect((await (await enough(`http://127.0.0.1:${server.port}/`)).text()).length).toBe(100_000)
  })

  it('a request that is aborted', async () => {
    const server = await listen(() => undefined)
    const signal = AbortSignal.timeout(100)
    await expect(guarded({})(`http://127.0.0.1:${server.port}/`, { signal })).rejects.toThrow()
  })
})
