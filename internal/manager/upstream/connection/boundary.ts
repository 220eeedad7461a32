// What an upstream that a project added may reach: addresses that the project's own network allows, and containers with the
// project's limits. What an admin or mcp-servers.json added is not bounded.
import { networkInterfaces } from 'node:os'
import type { Config } from '../../../config/load.ts'
import type { ServerEntry } from '../../../config/mcp-servers.ts'
import { Fault } from '../../../fault.ts'
import type { Store } from '../../../store/open.ts'
import type { UpstreamRow } from '../../../store/rows/upstream/upstreams.ts'
import { isInternet, parseRanges, plainAddress } from '../../../upstream/net/addresses.ts'
import { createGuardedFetch } from '../../../upstream/net/guarded-fetch.ts'
import { requireProject } from '../../project/require.ts'

const networks = ['none', 'internal', 'open']

export function createBoundary(deps: { store: Store; config: Pick<Config, 'allowed_networks'> }) {
  const { db } = deps.store
  const listed = parseRanges(deps.config.allowed_networks)
  const loopback = parseRanges(['127.0.0.0/8', '::1'])
  const isOfHost = (address: string) =>
    Object.values(networkInterfaces()).some((addresses) =>
      addresses?.some((one) => plainAddress(one.address) === address),
    )
  /** The addresses of the host stay blocked, unless the config lists loopback addresses. */
  const isReachable = (address: string): boolean => {
    if (loopback.includes(address)) return listed.includes(address)
    return !isOfHost(address) && (isInternet(address) || listed.includes(address))
  }
  const free = createGuardedFetch({ allow: () => true })
  const bounded = createGuardedFetch({ allow: isReachable })

  const refuseNetwork = (network: string) =>
    new Fault('forbidden', `the project has network ${network}: it cannot use an MCP server by HTTP`, {
      hint: 'an admin can add the server, or set the network of the project to open',
    })

  return {
    async fetchFor({ trusted, project_id }: Pick<UpstreamRow, 'trusted' | 'project_id'>) {
      if (trusted) return free
      if (project_id !== null) {
        const { network } = await requireProject(db, project_id)
        if (network !== 'open') throw refuseNetwork(network)
      }
      return bounded
    },
    /** Refuses at once what would be refused at every connection. Names are checked when they are connected. */
    async permit(project_id: string | null, trusted: boolean, entry: ServerEntry): Promise<void> {
      if (trusted) return
      const network = project_id === null ? 'open' : (await requireProject(db, project_id)).network
      if (entry.transport === 'stdio') {
        if (entry.image !== undefined)
          throw new Fault('forbidden', 'image: only an admin may choose the image of an MCP server')
        if (entry.network !== undefined && networks.indexOf(entry.network) > networks.indexOf(network))
          throw new Fault('forbidden', `network: the project has network ${network}`)
        return
      }
      if (network !== 'open') throw refuseNetwork(network)
      const address = entry.url === undefined ? undefined : plainAddress(new URL(entry.url).hostname)
      if (address !== undefined && !isReachable(address))
        throw new Fault('forbidden', `url: the address ${address} cannot be reached from the project`, {
          hint: 'only addresses of the internet and of allowed_networks of the config can',
        })
    },
    async close(): Promise<void> {
      await free.close()
      await bounded.close()
    },
  }
}
