import { describe, expect, it } from 'vitest'
import { isRange, isUnicast, parseRange } from './ipv4.ts'

describe('ranges', () => {
  it('are parsed with their borders', () => {
    expect(parseRange('255.255.255.255/32')).toEqual({ first: 4_294_967_295, last: 4_294_967_295 })
    expect(parseRange('192.168.7.9/16')).toEqual({ first: 3_232_235_520, last: 3_232_301_055 })
    expect(['1.2.3.4', 'a/8', '1.2.3.4/33', ''].map(parseRange)).toEqual(Array(4).fill(undefined))
  })

  it('are written from their first address', () => {
    for (const good of ['10.0.0.0/8', '0.0.0.0/0', '10.1.2.3/32', '100.64.0.0/10'])
      expect(isRange(good), good).toBe(true)
    for (const bad of [
      '10.1.2.3/8',
      '010.0.0.0/8',
      '10.0.0.0/08',
      '10.0.0.0',
      '256.0.0.0/8',
      'fd00::/8',
      '10.0.0.0/8 ',
    ])
      expect(isRange(bad), bad).toBe(false)
  })
})

it('an address that packets can be sent to is neither loopback nor multicast nor a range', () => {
  for (const good of ['10.0.0.53', '1.1.1.1', '223.0.0.1']) expect(isUnicast(good), good).toBe(true)
  for (const bad of [
    '127.0.0.53',
    '0.0.0.0',
    '224.0.0.1',
    '255.255.255.255',
    '10.0.0.0/8',
    '01.1.1.1',
    '::1',
  ])
    expect(isUnicast(bad), bad).toBe(false)
})
