// Translates errors of the engine to faults.
import { Fault, type Kind, messageOf } from '../../fault.ts'

const kinds: Record<number, Kind> = {
  400: 'invalid',
  403: 'forbidden',
  404: 'not_found',
  406: 'conflict',
  409: 'conflict',
  500: 'unavailable',
  503: 'unavailable',
}
const unreachable = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'EACCES',
  'EPIPE',
  'ENOTFOUND',
  'ETIMEDOUT',
  'EHOSTUNREACH',
])

const property = (thrown: unknown, name: 'statusCode' | 'code' | 'syscall'): unknown =>
  typeof thrown === 'object' && thrown !== null && name in thrown
    ? (thrown as Record<string, unknown>)[name]
    : undefined

/** The engine's HTTP status, if this is an answer of it. */
export function statusOf(thrown: unknown): number | undefined {
  const status = property(thrown, 'statusCode')
  return typeof status === 'number' ? status : undefined
}

/** What the engine said, without the client library's frame around it. */
export const reasonOf = (thrown: unknown): string =>
  messageOf(thrown)
    .replace(/^\(HTTP code \d+\) .*? - /s, '')
    .trim()

/** `address` is shown in messages about an engine that does not answer. */
export function engineFault(thrown: unknown, address: string): unknown {
  if (thrown instanceof Fault) return thrown
  // Cancelled by the server, with a reason.
  if (thrown instanceof Error && thrown.cause instanceof Fault) return thrown.cause
  const status = statusOf(thrown)
  if (status !== undefined)
    return new Fault(
      kinds[status] ?? 'internal',
      `the container engine returned an error: ${reasonOf(thrown) || `HTTP status ${status}`}`,
      {
        cause: thrown,
      },
    )
  const code = property(thrown, 'code')
  if (code === 'ABORT_ERR' || (thrown instanceof Error && /^(Abort|Timeout)Error$/.test(thrown.name)))
    return new Fault(
      'timeout',
      `the container engine at ${address} did not answer in time, or the call was cancelled`,
      {
        cause: thrown,
      },
    )
  if (typeof code === 'string' && unreachable.has(code) && property(thrown, 'syscall') !== 'open')
    return new Fault('unavailable', `the container engine at ${address} does not answer (${code})`, {
      hint: 'check that Docker is running and that this user may access it, or set DOCKER_HOST',
      cause: thrown,
    })
  return thrown
}

export const isStatus = (thrown: unknown, ...statuses: number[]): boolean =>
  statuses.includes(statusOf(thrown) ?? 0)

/** Undefined if the object does not exist. */
export async function unlessMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (isStatus(error, 404)) return undefined
    throw error
  }
}
