// Checks Host and Origin headers. A page of another site can make a browser send requests here, with DNS rebinding even under
// its own name that resolves to this machine; it cannot choose these two headers freely.
import { isIP } from 'node:net'
import { parseAddress } from '../config/place.ts'
import { Fault } from '../fault.ts'

const loopback = ['localhost', '127.0.0.1', '[::1]']
const wildcards = ['0.0.0.0', '::']

export type Guard = (
  headers: { host?: string | undefined; origin?: string | undefined },
  local_address: string | undefined,
) => void

/** Lower case, without a default port; undefined unless it is `name`, `name:port` or `[v6]:port`. */
function parseHost(host: string): { name: string; full: string } | undefined {
  if (!/^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i.test(host) || !URL.canParse(`http://${host}`))
    return undefined
  const url = new URL(`http://${host}`)
  return { name: url.hostname, full: url.host }
}

const bracketed = (address: string) => (isIP(address) === 6 ? `[${address}]` : address)

export function createGuard(config: {
  address: string
  allowed_hosts: readonly string[]
  allowed_origins: readonly string[]
}): Guard {
  const { host: bound } = parseAddress(config.address)
  const everywhere = wildcards.includes(bound)
  const hosts = new Set([...loopback, ...config.allowed_hosts.map((host) => host.toLowerCase())])
  if (!everywhere) hosts.add(bracketed(bound).toLowerCase())
  const origins = new Set(config.allowed_origins)

  return ({ host, origin }, local_address) => {
    const asked = host === undefined ? undefined : parseHost(host)
    // Bound to all addresses, the server accepts the address that was dialled, but not a name that resolves to it.
    const dialled =
      everywhere &&
      local_address !== undefined &&
      asked?.name === bracketed(local_address.replace(/^::ffff:/, ''))
    if (!asked || !(hosts.has(asked.name) || hosts.has(asked.full) || dialled))
      throw new Fault('forbidden', `the Host "${(host ?? '').slice(0, 200)}" is not allowed`, {
        hint: 'add it to allowed_hosts in oubliette.jsonc',
      })
    if (origin === undefined || origins.has(origin)) return
    if (origin === `http://${asked.full}` || origin === `https://${asked.full}`) return
    throw new Fault('forbidden', `the Origin "${origin.slice(0, 200)}" is not allowed`, {
      hint: 'add it to allowed_origins in oubliette.jsonc',
    })
  }
}
