// The one error that the client throws, apart from the reason of an aborted signal.

/** The kinds of errors that the server reports. */
export const serverKinds = [
  'invalid',
  'unauthenticated',
  'forbidden',
  'not_found',
  'conflict',
  'exhausted',
  'unavailable',
  'timeout',
  'internal',
] as const
/**
 * A kind that the server reports, or one of the client: `unreachable` (no connection, or it was lost) and `protocol` (the
 * response is not one of an Oubliette server).
 */
export type ErrorKind = (typeof serverKinds)[number] | 'unreachable' | 'protocol'

export type ErrorShape = { kind: ErrorKind; message: string; hint?: string; id?: string }

export class OublietteError extends Error {
  override readonly name = 'OublietteError'
  readonly kind: ErrorKind
  /** What to do next. */
  readonly hint: string | undefined
  /** The id of the error in the server log. */
  readonly id: string | undefined
  readonly retry_after_seconds: number | undefined

  constructor(shape: ErrorShape, more: { cause?: unknown; retry_after_seconds?: number } = {}) {
    super(shape.message, more.cause === undefined ? undefined : { cause: more.cause })
    this.kind = shape.kind
    this.hint = shape.hint
    this.id = shape.id
    this.retry_after_seconds = more.retry_after_seconds
  }
}

/** Whether the same request can succeed later without any change. */
export const isTransient = (error: unknown): error is OublietteError =>
  error instanceof OublietteError &&
  (error.kind === 'unreachable' || error.kind === 'unavailable' || error.kind === 'exhausted')

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null

/** The `error` of a response body, of a tool result or of an event stream. */
export function shapeIn(value: unknown): ErrorShape | undefined {
  const error = isRecord(value) ? value.error : undefined
  if (!isRecord(error) || typeof error.message !== 'string') return undefined
  if (!(serverKinds as readonly unknown[]).includes(error.kind)) return undefined
  return error as ErrorShape
}

/** The deepest cause has the reason: `fetch` reports only that it failed. */
function reasonOf(thrown: unknown): { code: string | undefined; text: string } {
  let last: unknown = thrown
  while (last instanceof Error && last.cause !== undefined) last = last.cause
  const { code } = isRecord(last) ? last : {}
  const text = last instanceof Error && last.message !== '' ? last.message : String(code ?? last)
  return { code: typeof code === 'string' ? code : undefined, text }
}

const neverSent = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'])
const interrupted = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'])

/** Whether there was a connection, which the other side closed: a server that is being restarted. */
export const wasConnected = (thrown: unknown): boolean => interrupted.has(reasonOf(thrown).code ?? '')

export function unreachable(url: string, what: string, thrown: unknown): OublietteError {
  const { code, text } = reasonOf(thrown)
  const sent = code === undefined || !neverSent.has(code)
  return new OublietteError(
    {
      kind: 'unreachable',
      message: sent
        ? `lost the connection to ${url} during ${what}: ${text}`
        : `cannot reach the server at ${url}: ${text}`,
      hint: sent
        ? 'the call may have taken effect: check before you repeat it'
        : 'start the server with "./oubliette up", or correct the url given to createClient',
    },
    { cause: thrown },
  )
}

/** An HTTP response that is not a success. */
export async function errorOf(response: Response, url: string): Promise<OublietteError> {
  const text = await response.text().catch(() => '')
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  const after = Number(response.headers.get('retry-after') ?? Number.NaN)
  const more = Number.isFinite(after) ? { retry_after_seconds: after } : {}
  const rpc = isRecord(body) ? body.error : undefined
  const shape = shapeIn(body) ?? (isRecord(rpc) ? shapeOfRpc(rpc) : undefined)
  if (shape) return new OublietteError(shape, more)
  const status = `HTTP ${response.status}`
  // A proxy in front of the server responds like this while the server restarts.
  if (response.status >= 502 && response.status <= 504)
    return new OublietteError(
      {
        kind: 'unreachable',
        message: `${url} responded with ${status}: a proxy cannot reach the server`,
        hint: 'start the server with "./oubliette up", or check the proxy',
      },
      more,
    )
  return notOubliette(url, `${status} and no error of Oubliette`)
}

export const notOubliette = (url: string, got: string): OublietteError =>
  new OublietteError({
    kind: 'protocol',
    message: `${url} responded with ${got}`,
    hint: 'check that the url given to createClient is the address of an Oubliette server, for example http://127.0.0.1:8080',
  })

const rpcKinds: Record<number, ErrorKind> = {
  [-32601]: 'not_found',
  [-32602]: 'invalid',
  [-32600]: 'invalid',
}

/** A JSON-RPC error: of the server if it carries one in `data`, otherwise of the protocol layer. */
export function shapeOfRpc(error: Record<string, unknown>): ErrorShape {
  const { data } = error
  const own = shapeIn(data) ?? shapeIn({ error: data })
  if (own) return own
  return { kind: rpcKinds[Number(error.code)] ?? 'protocol', message: String(error.message) }
}
