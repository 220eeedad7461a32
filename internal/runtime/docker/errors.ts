// The one place where what the engine says becomes a Fault.
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

/** `address` is what a reader needs to know to look after an engine that does not answer. */
export function engineFault(thrown: unknown, address: string): unknown {
  if (thrown instanceof Fault) return thrown
  // Given up by us, with a reason.
  if (thrown instanceof Error && thrown.cause instanceof Fault) return thrown.cause
  const status = statusOf(thrown)
  if (status !== undefined)
    return new Fault(kinds[status] ?? 'internal', `the engine refused: ${reasonOf(thrown)}`, {
      cause: thrown,
    })
  const code = property(thrown, 'code')
  if (code === 'ABORT_ERR' || (thrown instanceof Error && /^(Abort|Timeout)Error$/.test(thrown.name)))
    return new Fault('timeout', `the engine at ${address} did not answer in time, or the call was given up`, {
      cause: thrown,
    })
  if (typeof code === 'string' && unreachable.has(code) && property(thrown, 'syscall') !== 'open')
    return new Fault('unavailable', `the container engine at ${address} does not answer (${code})`, {
      hint: 'is Docker running, and may this user reach it? DOCKER_HOST names another one',
      cause: thrown,
    })
  return thrown
}

export const isStatus = (thrown: unknown, ...statuses: number[]): boolean =>
  statuses.includes(statusOf(thrown) ?? 0)

/** For what may be gone already. */
export async function unlessMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (isStatus(error, 404)) return undefined
    throw error
  }
}
