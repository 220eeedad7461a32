// The server of this home as seen from outside: is one running, where does it answer, is it ready.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseAddress, type Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'

export function baseUrl(settings: Settings): string {
  const { host, port } = parseAddress(settings.config.address)
  // What listens on every address is reached at the nearest one.
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

/** `up`: it serves, though perhaps with a full disk, which refuses some calls. */
export type Readiness = { ready: boolean; up: boolean; body: Record<string, unknown> }

const onlyDisk = ({ missing }: { missing?: unknown }): boolean =>
  Array.isArray(missing) && missing.every((name) => name === 'disk')

/** What `/readyz` says; undefined when nobody of ours answers there. */
export async function readiness(url: string): Promise<Readiness | undefined> {
  try {
    const response = await fetch(new URL('/readyz', url), { signal: AbortSignal.timeout(5000) })
    const body: unknown = await response.json()
    if (typeof body !== 'object' || body === null || (!response.ok && response.status !== 503))
      return undefined
    return { ready: response.ok, up: response.ok || onlyDisk(body), body: body as Record<string, unknown> }
  } catch {
    return undefined
  }
}

/** Until it is up; false when the time is over or `gone` says that there is nothing left to wait for. */
export async function untilReady(url: string, deadline_ms: number, gone: () => boolean): Promise<boolean> {
  const deadline = performance.now() + deadline_ms
  while (performance.now() < deadline && !gone()) {
    if ((await readiness(url))?.up) return true
    await sleep(50)
  }
  return false
}

/**
 * Signals go only to a process that is a server of ours: seen from another pid namespace (a server in a container
 * that shares its home), the recorded number belongs to a stranger.
 */
export function assertOurs(pid: number, home: string): void {
  let line: string
  try {
    line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch (error) {
    // There is no /proc to ask on macOS, and nothing shares a home across pid namespaces there.
    if (process.platform !== 'linux') return
    throw elsewhere(pid, home, error)
  }
  if (!line.includes('oubliette-server')) throw elsewhere(pid, home)
}

const elsewhere = (pid: number, home: string, cause?: unknown) =>
  new Fault(
    'unavailable',
    `the server of ${home} runs where its process (${pid}) cannot be reached from here`,
    {
      hint: 'if it runs in a container, stop that container',
      cause,
    },
  )
