// Which /28 of our range a project's network gets. The engine's own pools run out at about thirty networks, so we choose;
// pure, with the overlaps that only the engine knows of left to the caller, who asks for the next one.
import { createHash } from 'node:crypto'
import { Fault } from '../../../fault.ts'
import { formatAddress, parseRange } from '../../../lib/ipv4.ts'

const prefix = 28
const step = 2 ** (32 - prefix)

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
    if (!taken.some((other) => other.first <= last && other.last >= first))
      yield `${formatAddress(first)}/${prefix}`
  }
}
