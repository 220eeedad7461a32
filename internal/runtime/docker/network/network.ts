// One bridge network per project. The engine keeps bridges apart from each other; `firewall.ts` keeps them away from
// the host.
import { createHash } from 'node:crypto'
import { networkInterfaces } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type Docker from 'dockerode'
import { Fault } from '../../../fault.ts'
import { formatAddress, parseRange } from '../../../lib/net/ipv4.ts'
import type { NetworkMode } from '../../runtime.ts'
import { isStatus, reasonOf, unlessMissing } from '../errors.ts'
import type { Names } from '../names.ts'

export type Networks = {
  /** The network mode to create the container with. The key is a project, unless labels are given. */
  ensure(key: string, mode: NetworkMode, labels?: Record<string, string>): Promise<string>
  remove(key: string): Promise<void>
}

const prefix = 28
const step = 2 ** (32 - prefix)

/**
 * Free subnets of the pool in the order in which to try them. The engine's default pools run out at about thirty networks. Each
 * project starts at its own offset, so that two servers on one engine rarely try the same subnet at the same time.
 */
export function* freeSubnets(pool: string, used: string[], project_id: string): Generator<string> {
  const range = parseRange(pool)
  const count = range ? Math.floor((range.last - range.first + 1) / step) : 0
  if (!range || count === 0)
    throw new Fault('invalid', `network_pool "${pool}" must be an IPv4 range of at least a /${prefix}`)
  const taken = used.map(parseRange).filter((other) => other !== undefined)
  const offset = createHash('sha256').update(project_id).digest().readUInt32BE(0)
  for (let index = 0; index < count; index++) {
    const first = range.first + ((offset + index) % count) * step
    const last = first + step - 1
    if (!taken.some((other) => other.first <= last && other.last >= first))
      yield `${formatAddress(first)}/${prefix}`
  }
}

export function createNetworks(docker: Docker, names: Names, pool: string): Networks {
  async function usedSubnets(): Promise<string[]> {
    const networks = await docker.listNetworks()
    const engine = networks.flatMap((network) => network.IPAM?.Config ?? []).map(({ Subnet }) => Subnet)
    const host = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
    return [...engine, ...host.map(({ cidr }) => cidr)].filter((cidr) => typeof cidr === 'string')
  }

  async function create(
    project_id: string,
    mode: Exclude<NetworkMode, 'none'>,
    labels = names.labels(project_id),
  ): Promise<void> {
    for (const subnet of freeSubnets(pool, await usedSubnets(), project_id)) {
      try {
        await docker.createNetwork({
          Name: names.of(project_id),
          // Names alone are not unique in the engine.
          CheckDuplicate: true,
          Driver: 'bridge',
          Internal: mode === 'internal',
          Attachable: false,
          EnableIPv6: false,
          IPAM: { Driver: 'default', Config: [{ Subnet: subnet }] },
          Options: { 'com.docker.network.bridge.name': names.bridge(project_id, mode) },
          Labels: labels,
        })
        return
      } catch (error) {
        // Another server created it first.
        if (isStatus(error, 409) || /bridge name|already exists/i.test(reasonOf(error))) {
          if (await find(project_id)) return
          throw error
        }
        if (!/overlap/i.test(reasonOf(error))) throw error
      }
    }
    throw new Fault('exhausted', `network_pool ${pool} has no free /28 subnet`, {
      hint: 'delete projects, or set network_pool to a larger range',
    })
  }

  const find = (project_id: string) => unlessMissing(docker.getNetwork(names.of(project_id)).inspect())

  async function remove(project_id: string): Promise<void> {
    const network = docker.getNetwork(names.of(project_id))
    for (let attempt = 0; ; attempt++) {
      const state = await unlessMissing(network.inspect())
      if (!state) return
      for (const endpoint of Object.keys(state.Containers ?? {}))
        await unlessMissing(network.disconnect({ Container: endpoint, Force: true }))
      try {
        await unlessMissing(network.remove())
        return
      } catch (error) {
        // A container on its way out holds its endpoint a moment longer.
        if (attempt === 20 || !/active endpoints/i.test(reasonOf(error))) throw error
        await sleep(100)
      }
    }
  }

  return {
    async ensure(project_id, mode, labels) {
      if (mode === 'none') return 'none'
      const existing = await find(project_id)
      const fits =
        existing?.Internal === (mode === 'internal') &&
        existing.Options?.['com.docker.network.bridge.name'] === names.bridge(project_id, mode)
      if (existing && !fits) await remove(project_id)
      if (!fits) await create(project_id, mode, labels)
      return names.of(project_id)
    },
    remove,
  }
}
