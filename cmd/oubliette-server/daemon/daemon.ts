// The server of a home, seen from another process: its URL, whether it is ready, whether its process is ours.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Place, parseAddress } from '../../../internal/config/place.ts'
import { Fault } from '../../../internal/fault.ts'
import { send, textOf } from '../client/http.ts'

export function baseUrl(settings: Pick<Place, 'config'>): string {
  const { host, port } = parseAddress(settings.config.address)
  // A wildcard address is not a valid destination.
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

/** `up` is also true when the disk is full: the server then refuses only some calls. */
export type Readiness = { ready: boolean; up: boolean; body: Record<string, unknown> }

const onlyDisk = ({ missing }: { missing?: unknown }): boolean =>
  Array.isArray(missing) && missing.every((name) => name === 'disk')

/** The response of `/readyz`; undefined if no Oubliette server answers. */
export async function readiness(url: string): Promise<Readiness | undefined> {
  try {
    const response = await send(new URL('/readyz', url), { signal: AbortSignal.timeout(5000) })
    const body: unknown = JSON.parse(await textOf(response))
    const ready = response.statusCode === 200
    if (typeof body !== 'object' || body === null || (!ready && response.statusCode !== 503)) return undefined
    return { ready, up: ready || onlyDisk(body), body: body as Record<string, unknown> }
  } catch {
    return undefined
  }
}

/** Waits until the server is up. Returns false at the deadline, or when `gone` returns true. */
export async function untilReady(url: string, deadline_ms: number, gone: () => boolean): Promise<boolean> {
  const deadline = performance.now() + deadline_ms
  while (performance.now() < deadline && !gone()) {
    if ((await readiness(url))?.up) return true
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
