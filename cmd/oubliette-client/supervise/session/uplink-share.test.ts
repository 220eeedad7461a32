import { expect, test } from 'vitest'
import { createUplinkShare, type UplinkShare } from './uplink-share.ts'

const kib = 1024
type Batch = { name: string; bytes: number; commit(): void }

/** A session with so much to send; what it sends waits to be committed. */
function session(share: UplinkShare, under_way: Batch[], name: string, bytes: number) {
  let left = bytes
  const ready = share.join({
    backlog_bytes: () => left,
    send(max_bytes) {
      const size = Math.min(left, max_bytes)
      if (size === 0) return undefined
      left -= size
      const { promise, resolve } = Promise.withResolvers<void>()
      under_way.push({ name, bytes: size, commit: resolve })
      return { bytes: size, settled: promise }
    },
  })
  return {
    ready,
    says(more: number) {
      left += more
      ready()
    },
  }
}
const sum = (batches: Batch[]) => batches.reduce((total, { bytes }) => total + bytes, 0)

test('a session alone has the whole window, and many share it', async () => {
  const share = createUplinkShare(256 * kib)
  const under_way: Batch[] = []
  const sent: Batch[] = []
  const commit = async () => {
    const batch = under_way.shift()!
    sent.push(batch)
    batch.commit()
    await Promise.resolve()
    await Promise.resolve()
  }
  session(share, under_way, 'alone', 10_000 * kib).ready()
  for (let i = 0; i < 5; i++) await commit()
  expect(under_way[0]?.bytes).toBe(256 * kib)
  for (let i = 0; i < 50; i++) session(share, under_way, `s${i}`, 10_000 * kib).ready()
  for (let i = 0; i < 500; i++) {
    await commit()
    expect(sum(under_way)).toBeLessThanOrEqual(256 * kib)
  }
  const last = sent.slice(-255)
  expect(new Set(last.map(({ name }) => name)).size).toBe(51)
  for (const { bytes } of last) expect(bytes).toBe(16 * kib)
})

test('a calm session does not wait for those that send a lot, and they do not become calm by sending little at once', async () => {
  const share = createUplinkShare(256 * kib)
  const under_way: Batch[] = []
  for (let i = 0; i < 50; i++) session(share, under_way, `s${i}`, 10_000 * kib).ready()
  for (let i = 0; i < 200; i++) {
    under_way.shift()!.commit()
    await Promise.resolve()
    await Promise.resolve()
  }
  expect(share.ahead_bytes).toBe(32 * kib)
  const nibbling = session(share, under_way, 'nibbling', 0)
  for (let i = 0; i < 100; i++) {
    nibbling.says(kib)
    await Promise.resolve()
  }
  const before = under_way.length
  session(share, under_way, 'calm', 100).ready()
  expect(under_way.slice(before).map(({ name }) => name)).toEqual(['calm'])
  expect(under_way.filter(({ name }) => name === 'nibbling').length).toBeLessThan(20)
})

test('a calm session sends on while what it sent is not committed, one that sends a lot does not', async () => {
  const share = createUplinkShare(256 * kib)
  const under_way: Batch[] = []
  const calm = session(share, under_way, 'calm', 0)
  for (let i = 0; i < 10; i++) calm.says(100)
  expect(under_way.map(({ bytes }) => bytes)).toEqual([100, 100, 100, 100])
  under_way.shift()!.commit()
  await Promise.resolve()
  await Promise.resolve()
  // What came meanwhile goes together.
  expect(under_way.map(({ bytes }) => bytes)).toEqual([100, 100, 100, 600])
  under_way.length = 0
  const loud = session(share, under_way, 'loud', 100 * kib)
  for (let i = 0; i < 10; i++) loud.says(100 * kib)
  expect(under_way.map(({ name }) => name)).toEqual(['loud'])
})
