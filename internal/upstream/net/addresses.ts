// Which addresses are the internet. Everything that is not known to be it is refused: loopback, private, link-local (with the
// metadata services of clouds), shared, multicast, reserved, and IPv6 addresses that carry one of these.
import { BlockList, isIP, isIPv4 } from 'node:net'

/** What is not the internet, by IANA's registry of special-purpose addresses. */
const special4: [string, number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
]
/** Of 2000::/3, which is all that is assigned for global use. */
const special6: [string, number][] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
]

const internet6 = new BlockList()
internet6.addSubnet('2000::', 3, 'ipv6')
const special = new BlockList()
for (const [address, prefix] of special4) special.addSubnet(address, prefix, 'ipv4')
for (const [address, prefix] of special6) special.addSubnet(address, prefix, 'ipv6')

function groupsOf(address: string): number[] | undefined {
  // The last two groups may be written as an IPv4 address.
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address)
  const [a, b, c, d] = (dotted?.slice(2) ?? []).map(Number) as [number, number, number, number]
  const text = dotted ? `${dotted[1]}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}` : address
  const [head, tail] = text.split('::').map((part) => (part === '' ? [] : part.split(':')))
  const zeros = tail === undefined ? 0 : 8 - head!.length - tail.length
  const groups = [...head!, ...Array<string>(zeros).fill('0'), ...(tail ?? [])].map((group) =>
    Number.parseInt(group, 16),
  )
  return groups.length === 8 ? groups : undefined
}

/**
 * The address without a zone, and the IPv4 address that an IPv6 address stands for (mapped, or behind a NAT64 gateway); undefined
 * if it is no address.
 */
export function plainAddress(text: string): string | undefined {
  const address = text.replace(/^\[|\]$/g, '').replace(/%.*$/, '')
  if (isIP(address) !== 6) return isIPv4(address) ? address : undefined
  const groups = groupsOf(address)
  if (!groups) return undefined
  const starts = (...prefix: number[]) => prefix.every((group, at) => groups[at] === group)
  const carriesIPv4 = starts(0, 0, 0, 0, 0, 0xffff) || starts(0x64, 0xff9b, 0, 0, 0, 0)
  if (!carriesIPv4) return address
  return [groups[6]! >> 8, groups[6]! & 255, groups[7]! >> 8, groups[7]! & 255].join('.')
}

export function isInternet(text: string): boolean {
  const address = plainAddress(text)
  if (address === undefined) return false
  if (isIPv4(address)) return !special.check(address, 'ipv4')
  return internet6.check(address, 'ipv6') && !special.check(address, 'ipv6')
}

export type Ranges = { includes(address: string): boolean }

/** Ranges in CIDR notation, or single addresses, of both versions. Throws a `RangeError` for anything else. */
export function parseRanges(texts: readonly string[]): Ranges {
  const list = new BlockList()
  for (const text of texts) {
    const [address = '', bits] = text.split('/')
    const version = isIP(address)
    const prefix = bits === undefined ? (version === 4 ? 32 : 128) : Number(bits)
    if (version === 0 || !/^\d{1,3}$/.test(bits ?? '0') || prefix > (version === 4 ? 32 : 128))
      throw new RangeError(`"${text}" is not a range of addresses`)
    list.addSubnet(address, prefix, version === 4 ? 'ipv4' : 'ipv6')
  }
  return {
    includes(text) {
      const address = plainAddress(text)
      return address !== undefined && list.check(address, isIPv4(address) ? 'ipv4' : 'ipv6')
    },
  }
}
