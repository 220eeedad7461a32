import { describe, expect, it } from 'vitest'
import { freeSubnets } from './network.ts'

describe('subnets', () => {
  it('gives every /28 of the pool once', () => {
    const all = [...freeSubnets('10.213.0.0/24', [], 'a')]
    expect(all).toHaveLength(16)
    expect(new Set(all).size).toBe(16)
    expect(all.every((subnet) => /^10\.213\.0\.\d+\/28$/.test(subnet))).toBe(true)
  })

  it('skips what overlaps, whatever its size', () => {
    const all = [...freeSubnets('10.213.0.0/24', ['10.213.0.0/25', '10.213.0.130/32', 'fd00::/64'], 'a')]
    expect(all.toSorted()).toEqual(
      ['144', '160', '176', '192', '208', '224', '240'].map((last) => `10.213.0.${last}/28`),
    )
    expect([...freeSubnets('10.213.0.0/24', ['10.0.0.0/8'], 'a')]).toEqual([])
  })

  it('begins at a place of its own for each project, and always the same one', () => {
    const first = (project: string) => freeSubnets('10.213.0.0/16', [], project).next().value
    expect(first('a')).toBe(first('a'))
    expect(new Set(['a', 'b', 'c', 'd', 'e'].map(first)).size).toBeGreaterThan(3)
  })

  it('refuses a pool that is none', () => {
    expect(() => [...freeSubnets('10.0.0.0/29', [], 'a')]).toThrow('network_pool')
    expect(() => [...freeSubnets('10.0.0.300/16', [], 'a')]).toThrow('network_pool')
  })
})
