// The server of a home, seen from another process: its URL, whether it is ready, whether its process is ours.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Place, parseAddress } from '../../../internal/config/place.ts'
import { Fault } from '../../../internal/fault.ts'
import { type Holder, homeHolder } from '../../../internal/home-lock.ts'
import { send, textOf } from '../client/http.ts'

export function baseUrl(settings: Pick<Place, 'config'>): string {
  const { host, port } = parseAddress(settings.config.address)
  // A wildcard address is not a valid destination.
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

/** `up` is also true when the disk is full: the server then refuses only some calls. */
export type Readiness = {
  ready: boolean
  up: boolean
  body: Record<string, unknown>
  server_id: string | undefined
}

const onlyDisk = ({ missing }: { missing?: unknown }): boolean =>
  Array.isArray(missing) && missing.every((name) => name === 'disk')

/** The response of `/readyz`; undefined if no Oubliette server answers. */
export async function readiness(url: string): Promise<Readiness | undefined> {
  try {
    const response = await send(new URL('/readyz', url), { signal: AbortSignal.timeout(5000) })
    const body: unknown = JSON.parse(await textOf(response))
    const ready = response.statusCode === 200
    if (typeof body !== 'object' || body === null || (!ready && response.statusCode !== 503)) return undefined
    const server_id = response.headers['oubliette-server-id'] as string | undefined
    return { ready, up: ready || onlyDisk(body), body: body as Record<string, unknown>, server_id }
  } catch {
    return undefined
  }
}

/** Who holds the home, what answers at its address, and whether that is the same process. */
export type Found = { holder: Holder | undefined; state: Readiness | undefined; is_ours: boolean }

export async function findServer(config: Place): Promise<Found> {
  const state = await readiness(baseUrl(config))
  // After the response: the process that answered has signed the home long before.
  const holder = homeHolder(config.home)
  const is_ours = state !== undefined && holder !== undefined && state.server_id === holder.server_id
  return { holder, state, is_ours }
}

/** Why the address of this home does not lead to its server; undefined if it does, or if nothing is known to be wrong. */
export function misdirected(config: Place, { holder, state, is_ours }: Found): Fault | undefined {
  const { address } = config.config
  if (holder?.address && holder.address !== address)
    return new Fault(
      'conflict',
      `the server of ${config.home} (process ${holder.pid}) listens on ${holder.address}, not on ${address}`,
      {
        hint: `set OUBLIETTE_ADDRESS=${holder.address}, or run "./oubliette down" before a start on ${address}`,
      },
    )
  if (!state || is_ours || holder) return undefined
  return new Fault('conflict', `the server that answers at ${address} is not the server of ${config.home}`, {
    hint: 'set OUBLIETTE_HOME to its home, or OUBLIETTE_ADDRESS to a free address such as 127.0.0.1:8081',
  })
}

/** A token for clients only: the caller means whatever server answers, on this machine or on another one. */
export const isRemote = ({ holder }: Found): boolean => !holder && Boolean(process.env.OUBLIETTE_TOKEN)

/** Waits until the server of this home is up. Returns false at the deadline, or when `gone` returns true. */
export async function untilReady(config: Place, deadline_ms: number, gone: () => boolean): Promise<boolean> {
  const deadline = performance.now() + deadline_ms
  while (performance.now() < deadline && !gone()) {
    const { state, is_ours } = await findServer(config)
    if (state?.up && is_ours) return true
    await sleep(50)
  }
  return false
}

/**
 * Signals are sent only to an Oubliette server: in another pid namespace (a server in a container that shares its home),
 * the recorded pid belongs to an unrelated process.
 */
export function assertOurs(pid: number, home: string): void {
  let line: string
  try {
    line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch (error) {
    // macOS has no /proc, and no pid namespaces that could share a home.
    if (process.platform !== 'linux') return
    throw elsewhere(pid, home, error)
  }
  if (!line.includes('oubliette-server')) throw elsewhere(pid, home)
}

const elsewhere = (pid: number, home: string, cause?: unknown) =>
  new Fault(
    'unavailable',
    `cannot signal the server of ${home}: process ${pid} is not in this pid namespace`,
    {
      hint: 'if the server runs in a container, stop that container',
      cause,
    },
  )
