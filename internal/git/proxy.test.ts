import { once } from 'node:events'
import { expect, test } from 'vitest'
import { createThrottle } from './proxy.ts'

test('the streams of one container share its rate, another has its own', async () => {
  const throttle = createThrottle(1_000_000)
  const move = async (project_id: string) => {
    const from = performance.now()
    const stream = throttle(project_id).resume()
    for (let at = 0; at < 4; at += 1) stream.write(Buffer.alloc(50_000))
    stream.end()
    await once(stream, 'end')
    return performance.now() - from
  }
  // 400 kB of one container at 1 MB/s, the first 100 ms of it at once, are longer than 200 kB of another.
  const [one, two, other] = await Promise.all([move('a'), move('a'), move('b')])
  expect(Math.max(one, two)).toBeGreaterThan(200)
  expect(other).toBeLessThan(Math.max(one, two))
})
