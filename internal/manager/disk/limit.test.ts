import { describe, expect, it } from 'vitest'
import { configSchema } from '../../config/schema.ts'
import {
  diskLimit,
  mebibyte,
  nextState,
  requireDiskSpace,
  requireStartable,
  shownDisk,
  usedBytes,
} from './limit.ts'

const config = configSchema.parse({ limits: { disk_mb: 100 } })
const tree = (bytes: number, entries = 1, complete = true) => ({ bytes, entries, complete })
const own = { limits: { disk_mb: 1000 } }

describe('the limit', () => {
  it("is the project's own, or the config's, with room to clean up above it", () => {
    expect(diskLimit(config, { limits: {} }).limit).toBe(100 * mebibyte)
    const { limit, ceiling } = diskLimit(config, own)
    expect({ limit, ceiling }).toEqual({ limit: 1000 * mebibyte, ceiling: 1356 * mebibyte })
  })
  it('counts bytes, or entries where they are tiny, and the layer', () => {
    const limit = diskLimit(config, own)
    expect(usedBytes([tree(5 * mebibyte), tree(2 * mebibyte)], mebibyte, limit)).toBe(8 * mebibyte)
    expect(usedBytes([tree(mebibyte, 1024)], 0, limit)).toBe(8 * mebibyte)
  })
  it('holds what could not be walked to its end for too much', () => {
    const limit = diskLimit(config, own)
    expect(usedBytes([tree(5), tree(6, 1, false)], 0, limit)).toBeGreaterThan(limit.limit)
  })
})

it('a project is stopped once, may clean up below the ceiling, and is let go below the limit', () => {
  const limit = diskLimit(config, own)
  const at = (mb: number) => mb * mebibyte
  expect(nextState('ok', true, at(1000), limit)).toBe('ok')
  expect(nextState('ok', false, at(1001), limit)).toBe('stopping')
  expect(nextState('stopping', true, at(1), limit)).toBe('stopping')
  expect(nextState('over', true, at(1300), limit)).toBe('over')
  expect(nextState('over', true, at(1400), limit)).toBe('stopping')
  expect(nextState('over', false, at(1400), limit)).toBe('over')
  expect(nextState('over', true, at(1000), limit)).toBe('ok')
})

it('refuses by the row, so that a raised limit counts at once', () => {
  const row = (mb: number, disk_mb = 1000) => ({
    limits: { disk_mb },
    disk_state: 'over' as const,
    disk_used_bytes: mb * mebibyte,
    disk_measured_at: null,
  })
  expect(() => requireDiskSpace(config, row(1001))).toThrow('uses 1,001 MiB of disk, the limit is 1,000 MiB')
  expect(() => requireDiskSpace(config, row(1001, 2000))).not.toThrow()
  expect(() => requireStartable(config, row(1300))).not.toThrow()
  expect(() => requireStartable(config, row(1400))).toThrow('limits.disk_mb')
  expect(shownDisk(config, row(1001))).toEqual({
    used_mb: 1001,
    limit_mb: 1000,
    over: true,
    measured_at: null,
  })
  expect(shownDisk(config, { ...row(1), disk_used_bytes: null, disk_state: 'ok' as const })).toMatchObject({
    used_mb: null,
    over: false,
  })
})
