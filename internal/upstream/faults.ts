// Errors of upstreams as faults. Whoever made the call has to know whether it may have taken effect: `outcome` says so.
import {
  InsufficientScopeError,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  UnauthorizedError,
} from '@modelcontextprotocol/client'
import { Fault, type Kind } from '../fault.ts'
import { clip, reasonOf } from './reason.ts'
import { lostCode, refusedCode } from './transport/messages.ts'

/**
 * `not_sent`: the request did not leave this process. `answered`: the upstream answered, with an error or with a result that is
 * refused here. `unknown`: it was sent, and no answer arrived.
 */
export type Outcome = 'not_sent' | 'answered' | 'unknown'

export class UpstreamFault extends Fault {
  readonly outcome: Outcome
  /** Of a JSON-RPC error that the upstream answered with. */
  readonly code: number | undefined
  readonly data: unknown
  /** The upstream refuses the stored credentials, or there are none. */
  readonly needs_authorization: boolean
  /** The upstream does not know the session: it was restarted, and the request did not run. */
  readonly session_lost: boolean

  constructor(
    kind: Kind,
    message: string,
    more: {
      outcome: Outcome
      hint?: string
      cause?: unknown
      retry_after_seconds?: number
      code?: number
      data?: unknown
      needs_authorization?: boolean
      session_lost?: boolean
    },
  ) {
    super(kind, message, more)
    this.outcome = more.outcome
    this.code = more.code
    this.data = more.data
    this.needs_authorization = more.needs_authorization ?? false
    this.session_lost = more.session_lost ?? false
  }
}

/** The fault below an error of the SDK, which wraps what transports throw. */
export function faultWithin(thrown: unknown): Fault | undefined {
  for (let at = thrown, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++)
    if (at instanceof Fault) return at
  return undefined
}

const isUnauthorized = (thrown: unknown): boolean =>
  thrown instanceof UnauthorizedError ||
  thrown instanceof InsufficientScopeError ||
  (thrown instanceof SdkError && thrown.code === SdkErrorCode.ClientHttpAuthentication)

const rejectedAsInvalid = new Set([-32600, -32601, -32602])

/** `sent` tells whether the request had left this process when the error occurred. */
export function upstreamFault(name: string, thrown: unknown, sent: boolean): UpstreamFault {
  if (thrown instanceof UpstreamFault) return thrown
  const outcome: Outcome = sent && !wasNotSent(thrown) ? 'unknown' : 'not_sent'
  const inner = faultWithin(thrown)
  if (inner)
    return inner instanceof UpstreamFault
      ? inner
      : new UpstreamFault(inner.kind, inner.message, { outcome, cause: thrown, ...definedHint(inner) })
  if (thrown instanceof ProtocolError && thrown.code === refusedCode)
    return new UpstreamFault('exhausted', `upstream "${name}" sent too much: ${thrown.message}`, {
      outcome: 'answered',
      hint: 'ask for less, or raise max_result_bytes of the upstream',
    })
  if (thrown instanceof ProtocolError && thrown.code === lostCode)
    return new UpstreamFault('unavailable', `upstream "${name}" failed: ${thrown.message}`, { outcome })
  if (thrown instanceof ProtocolError)
    return new UpstreamFault(
      rejectedAsInvalid.has(thrown.code) ? 'invalid' : 'unavailable',
      `upstream "${name}" answered with an error: ${clip(thrown.message)} (${thrown.code})`,
      { outcome: 'answered', cause: thrown, code: thrown.code, data: thrown.data },
    )
  if (isUnauthorized(thrown))
    return new UpstreamFault('unavailable', `upstream "${name}" requires authorization`, {
      outcome: 'answered',
      hint: 'authorize it with mcp_server auth',
      cause: thrown,
      needs_authorization: true,
    })
  if (thrown instanceof SdkError && thrown.code === SdkErrorCode.RequestTimeout)
    return new UpstreamFault('timeout', `upstream "${name}" did not answer in time`, {
      outcome,
      cause: thrown,
    })
  const session_lost = thrown instanceof SdkHttpError && thrown.data.status === 404
  return new UpstreamFault('unavailable', `upstream "${name}" failed: ${reasonOf(thrown)}`, {
    outcome: session_lost ? 'answered' : outcome,
    cause: thrown,
    session_lost,
  })
}

const beforeSending = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
])

/** The connection was not made. */
function wasNotSent(thrown: unknown): boolean {
  for (let at = thrown, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if (beforeSending.has((at as NodeJS.ErrnoException).code ?? '')) return true
    // All addresses of a name were tried.
    if (at instanceof AggregateError) return at.errors.every(wasNotSent)
  }
  return faultWithin(thrown)?.kind === 'forbidden'
}

const definedHint = ({ hint }: Fault) => (hint === undefined ? {} : { hint })
