// Which /28 of our range a project's network gets. The engine's own pools run out at about thirty networks, so we choose;
// pure, with the overlaps that only the engine knows of left to the caller, who asks for the next one.
import { createHash } from 'node:crypto'
import { Fault } from '../fault.ts'

type Range = { first: number; last: number }

const prefix = 28
const step = 2 ** (32 - prefix)

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

const format = (address: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.')

/**
 * Free subnets in the order in which to try them. Each project begins at a place of its own, so that two servers on one
 * engine seldom ask for the same one at the same moment.
 */
export function* freeSubnets(pool: string, used: string[], project_id: string): Generator<string> {
  const range = parseRange(pool)
  const count = range ? Math.floor((range.last - range.first + 1) / step) : 0
  if (!range || count === 0)
    throw new Fault('invalid', `network_pool "${pool}" is not an IPv4 range of at least a /${prefix}`)
  const taken = used.map(parseRange).filter((other) => other !== undefined)
  const offset = createHash('sha256').update(project_id).digest().readUInt32BE(0)
  for (let index = 0; index < count; index++) {
    const first = range.first + ((offset + index) % count) * step
    const last = first + step - 1
    if (!taken.some((other) => other.first <= last && other.last >= first)) yield `${format(first)}/${prefix}`
  }
}
