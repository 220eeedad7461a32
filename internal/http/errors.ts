// The one table that turns kinds into statuses, and the one shape of an error over HTTP.
import { type Fault, type FaultShape, type Kind, toFault } from '../fault.ts'
import type { Fields, Log } from '../log.ts'

const statuses: Record<Kind, number> = {
  invalid: 400,
  unauthenticated: 401,
  forbidden: 403,
  not_found: 404,
  conflict: 409,
  exhausted: 429,
  unavailable: 503,
  timeout: 504,
  internal: 500,
}

const json = (shape: FaultShape, fields?: Record<string, unknown>) =>
  JSON.stringify({ error: shape, ...fields })

/** `status` only where HTTP is more specific than the kind: 405, 413. `fields` are placed next to `error`. */
export function errorResponse(
  fault: Fault,
  more: { status?: number; headers?: Record<string, string>; fields?: Record<string, unknown> } = {},
): Response {
  const headers: Record<string, string> = { 'Content-Type': 'application/json', ...more.headers }
  if (fault.retry_after_seconds !== undefined)
    headers['Retry-After'] = String(Math.max(1, Math.ceil(fault.retry_after_seconds)))
  return new Response(json(fault.shape(), more.fields), {
    status: more.status ?? statuses[fault.kind],
    headers,
  })
}

/** The edge: a failure is logged here, once; only a bug is logged with its cause and stack. */
export function logged(thrown: unknown, log: Log, fields: Fields): Fault {
  const fault = toFault(thrown)
  const all = { ...fields, id: fault.id, kind: fault.kind, reason: fault.message }
  if (fault.kind === 'internal') log.error('request failed', { ...all, error: fault.cause ?? fault })
  else if (fault.kind === 'unavailable' || fault.kind === 'timeout')
    log.warn('request failed', { ...all, ...(fault.cause === undefined ? {} : { cause: fault.cause }) })
  else log.info('request refused', all)
  return fault
}
