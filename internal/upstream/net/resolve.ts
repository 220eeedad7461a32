// Names to addresses. `dns.lookup` occupies a thread of the pool that files need as well, for as long as a name server takes, which
// a tenant can choose: names are looked up in the hosts file and by DNS instead.
import { Resolver } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'

export type Resolve = (hostname: string) => Promise<string[]>

const timeoutMs = 2_000
const tries = 2
const maxAddresses = 16

async function fromHosts(hostname: string, file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch(() => '')
  return text.split('\n').flatMap((line) => {
    const [address, ...names] = line.replace(/#.*$/, '').trim().split(/\s+/)
    return address && names.some((name) => name.toLowerCase() === hostname) ? [address] : []
  })
}

export function createResolve(hosts_file = '/etc/hosts'): Resolve {
  const resolver = new Resolver({ timeout: timeoutMs, tries })
  return async (name) => {
    const hostname = name.toLowerCase().replace(/\.$/, '')
    if (hostname === 'localhost' || hostname.endsWith('.localhost')) return ['127.0.0.1', '::1']
    const known = await fromHosts(hostname, hosts_file)
    if (known.length > 0) return known
    const found = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
    const addresses = found.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
    const [first] = found
    if (addresses.length === 0 && first.status === 'rejected') throw first.reason
    return addresses.slice(0, maxAddresses)
  }
}
