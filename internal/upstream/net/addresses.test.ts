import { describe, expect, it } from 'vitest'
import { isInternet, parseRanges, plainAddress } from './addresses.ts'

it.each([
  '1.1.1.1',
  '93.184.216.34',
  '172.32.0.1',
  '100.128.0.1',
  '2606:4700:4700::1111',
  '2a00:1450:4001:80b::200e',
  '::ffff:1.1.1.1',
  '64:ff9b::101:101',
])('%s is the internet', (address) => expect(isInternet(address)).toBe(true))

it.each([
  ['loopback', '127.0.0.1'],
  ['loopback', '127.255.255.254'],
  ['this host', '0.0.0.0'],
  ['private', '10.1.2.3'],
  ['private', '172.16.0.1'],
  ['private', '172.31.255.255'],
  ['private', '192.168.1.1'],
  ['metadata', '169.254.169.254'],
  ['shared', '100.64.0.1'],
  ['benchmark', '198.18.0.1'],
  ['documentation', '203.0.113.9'],
  ['multicast', '224.0.0.1'],
  ['reserved', '240.0.0.1'],
  ['broadcast', '255.255.255.255'],
  ['loopback', '::1'],
  ['unspecified', '::'],
  ['mapped loopback', '::ffff:127.0.0.1'],
  ['mapped loopback in hex', '::ffff:7f00:1'],
  ['mapped in full', '0:0:0:0:0:ffff:a9fe:a9fe'],
  ['compatible', '::127.0.0.1'],
  ['NAT64 of a private address', '64:ff9b::10.0.0.1'],
  ['NAT64 of metadata', '64:ff9b::a9fe:a9fe'],
  ['local NAT64', '64:ff9b:1::1'],
  ['6to4', '2002:7f00:1::'],
  ['Teredo', '2001:0:4136:e378:8000:63bf:3fff:fdd2'],
  ['unique local', 'fd00::1'],
  ['metadata of a cloud', 'fd00:ec2::254'],
  ['link-local', 'fe80::1'],
  ['link-local with a zone', 'fe80::1%eth0'],
  ['site-local', 'fec0::1'],
  ['multicast', 'ff02::1'],
  ['documentation', '2001:db8::1'],
  ['discard', '100::1'],
  ['no address', 'localhost'],
  ['no address', ''],
])('%s %s is not', (_, address) => expect(isInternet(address)).toBe(false))

it.each([
  ['[::1]', '::1'],
  ['[::ffff:7f00:1]', '127.0.0.1'],
  ['64:ff9b::7f00:1', '127.0.0.1'],
  ['::ffff:10.0.0.1', '10.0.0.1'],
  ['example.com', undefined],
  ['127.1', undefined],
])('%s is taken as %s', (text, address) => expect(plainAddress(text)).toBe(address))

describe('ranges', () => {
  it('include addresses of both versions, in any form', () => {
    const ranges = parseRanges(['10.0.0.0/8', 'fd00::/8', '127.0.0.1'])
    expect(['10.2.3.4', '::ffff:10.2.3.4', 'fd12::1', '127.0.0.1'].every(ranges.includes)).toBe(true)
    expect(['11.0.0.1', '127.0.0.2', 'fe80::1', 'name'].some(ranges.includes)).toBe(false)
  })

  it.each(['10.0.0.0/33', 'fd00::/129', 'example.com/8', '10.0.0.0/', '10.0.0.0/x'])('refuse %s', (text) =>
    expect(() => parseRanges([text])).toThrow('is not a range'),
  )
})
