import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Fault } from '../fault.ts'
import { createPeer, type Handlers } from './peer.ts'
import type { PeerLimits } from './peer-limits.ts'

let root: string
let cleanup: (() => void)[] = []
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'peer-'))
})
afterEach(() => {
  for (const act of cleanup) act()
  cleanup = []
  rmSync(root, { recursive: true })
})

async function pair(handlers: Handlers, limits: Partial<PeerLimits> = {}) {
  const path = join(root, `s${cleanup.length}`)
  const server = createServer()
  server.listen(path)
  await once(server, 'listening')
  const raw = createConnection(path)
  const [socket] = (await once(server, 'connection')) as [Socket]
  const peer = createPeer(socket, { handlers, limits })
  cleanup.push(() => {
    raw.destroy()
    peer.close()
    server.close()
  })
  return { raw, peer, client: () => createPeer(raw, { handlers: {} }) }
}

describe('a peer', () => {
  test('answers concurrent requests in any order, with progress and errors by kind', async () => {
    const { client } = await pair({
      wait: async (params) => {
        await new Promise((resolve) => setTimeout(resolve, (params as { ms: number }).ms))
        return params
      },
      step: (_params, call) => {
        call.progress({ progress: 1, message: 'half' })
        return 'done'
      },
      fail: () => {
        throw new Fault('forbidden', 'no', { hint: 'ask' })
      },
    })
    const peer = client()
    const answers = await Promise.all([30, 1, 15].map((ms) => peer.request('wait', { ms })))
    expect(answers).toEqual([{ ms: 30 }, { ms: 1 }, { ms: 15 }])
    const steps: unknown[] = []
    expect(await peer.request('step', {}, { on_progress: (update) => steps.push(update) })).toBe('done')
    expect(steps).toMatchObject([{ progress: 1, message: 'half' }])
    await expect(peer.request('fail', {})).rejects.toMatchObject({ kind: 'forbidden', hint: 'ask' })
    await expect(peer.request('nothing', {})).rejects.toThrow('no method "nothing"')
    await expect(peer.request('toString', {})).rejects.toThrow('no method')
  })

  test('passes cancellation and time-outs on, and tells open requests when the connection ends', async () => {
    const aborted: string[] = []
    const { peer: server, client } = await pair({
      hang: (params, call) =>
        new Promise((_, reject) => {
          call.signal.addEventListener('abort', () => {
            aborted.push(String((params as { name: string }).name))
            reject(call.signal.reason)
          })
        }),
    })
    const peer = client()
    const stop = new AbortController()
    const first = peer.request('hang', { name: 'cancelled' }, { signal: stop.signal })
    stop.abort(new Error('enough'))
    await expect(first).rejects.toThrow('enough')
    await expect(peer.request('hang', { name: 'late' }, { timeout_ms: 10 })).rejects.toMatchObject({
      kind: 'timeout',
    })
    const last = peer.request('hang', { name: 'cut' })
    await expect.poll(() => aborted).toEqual(['cancelled', 'late'])
    server.close()
    await expect(last).rejects.toMatchObject({ kind: 'unavailable' })
    expect(aborted).toEqual(['cancelled', 'late', 'cut'])
    await expect(peer.request('hang', {})).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test('does not send what does not fit into a frame', async () => {
    const { client } = await pair({ big: () => 'x'.repeat(2000) }, { frame_bytes: 1000 })
    const peer = client()
    await expect(peer.request('big', {})).rejects.toThrow('frame limit of 1000 bytes')
    expect(peer.open).toBe(true)
  })

  test.each([
    ['text that is no JSON', 'hello\n'],
    ['a batch', '[]\n'],
    ['another version', '{"jsonrpc":"1.0","id":1,"method":"x"}\n'],
    ['a method that is no text', '{"jsonrpc":"2.0","id":1,"method":7}\n'],
    ['an id in use', '{"jsonrpc":"2.0","id":1,"method":"hang"}\n{"jsonrpc":"2.0","id":1,"method":"hang"}\n'],
    ['a frame too long', 'x'.repeat(2000)],
    [
      'too many at once',
      Array.from({ length: 9 }, (_, id) => `{"jsonrpc":"2.0","id":${id},"method":"hang"}\n`).join(''),
    ],
    ['a frame that does not end', '{"jsonrpc"'],
  ])('ends the connection of one who sends %s', async (_what, bytes) => {
    const limits = { frame_bytes: 1000, open_requests: 8, slow_ms: 50 }
    const { raw, peer } = await pair({ hang: () => new Promise(() => {}) }, limits)
    raw.resume()
    raw.write(bytes)
    expect((await peer.closed).kind).toMatch(/invalid|timeout/)
    if (!raw.closed) await once(raw, 'close')
  })

  test('hears what was said before the other side left', async () => {
    let heard = 0
    const { raw, peer } = await pair({
      hear: () => {
        heard += 1
      },
    })
    raw.end(Array.from({ length: 100 }, () => '{"jsonrpc":"2.0","method":"hear"}\n').join(''))
    await peer.closed
    expect(heard).toBe(100)
  })

  test('ends the connection of one who does not read', async () => {
    const { raw, peer } = await pair(
      { big: () => 'x'.repeat(100_000) },
      { held_bytes: 200_000, slow_ms: 100 },
    )
    raw.pause()
    const send = (id: number) => raw.write(`{"jsonrpc":"2.0","id":${id},"method":"big"}\n`)
    for (let id = 0; id < 50; id++) send(id)
    expect(await peer.closed).toMatchObject({ kind: 'timeout' })
  })
})
