// IPv4 addresses and ranges in CIDR notation, as numbers.

export type Range = { first: number; last: number }

export function parseRange(cidr: string): Range | undefined {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(cidr)
  if (!match) return undefined
  const [a, b, c, d, bits] = match.slice(1).map(Number) as [number, number, number, number, number]
  if (Math.max(a, b, c, d) > 255 || bits > 32) return undefined
  const size = 2 ** (32 - bits)
  const address = ((a * 256 + b) * 256 + c) * 256 + d
  const first = address - (address % size)
  return { first, last: first + size - 1 }
}

export const formatAddress = (address: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.')

/** Whether it is a range with its first address: `10.1.2.3/8` is more likely a mistake than `10.0.0.0/8`. */
export function isRange(cidr: string): boolean {
  const range = parseRange(cidr)
  return range !== undefined && cidr.startsWith(`${formatAddress(range.first)}/`) && !/\/0\d/.test(cidr)
}

/** A single address to which packets can be sent: not 0/8, loopback, multicast or reserved. */
export function isUnicast(address: string): boolean {
  const range = parseRange(`${address}/32`)
  if (!range || formatAddress(range.first) !== address) return false
  const top = Math.floor(range.first / 2 ** 24)
  return top > 0 && top !== 127 && top < 224
}
