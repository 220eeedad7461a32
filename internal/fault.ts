// The closed set of kinds of errors. Errors of libraries become a Fault where they are understood (a Docker status, an
// SQLSTATE); an error that is not a Fault when it reaches an edge (HTTP, MCP) is a bug.

export const kinds = [
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
export type Kind = (typeof kinds)[number]

/** What a caller gets. `id` is also in the log, so that a report can be matched with its log line. */
export type FaultShape = { kind: Kind; message: string; hint?: string; id: string }

// Loaded with the first error: every command imports this file, and most commands raise none.
const newId = (): string => `err_${process.getBuiltinModule('node:crypto').randomBytes(6).toString('hex')}`

export class Fault extends Error {
  readonly kind: Kind
  readonly hint: string | undefined
  readonly retry_after_seconds: number | undefined
  readonly id = newId()

  constructor(
    kind: Kind,
    message: string,
    more: { hint?: string; cause?: unknown; retry_after_seconds?: number } = {},
  ) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause })
    this.name = 'Fault'
    this.kind = kind
    this.hint = more.hint
    this.retry_after_seconds = more.retry_after_seconds
  }

  shape(): FaultShape {
    return { kind: this.kind, message: this.message, ...(this.hint ? { hint: this.hint } : {}), id: this.id }
  }
}

/** Anything thrown, as a Fault. An error that is not a Fault is a bug: its text is logged, not sent. */
export function toFault(thrown: unknown): Fault {
  if (thrown instanceof Fault) return thrown
  return new Fault('internal', 'internal error', {
    hint: 'the server log has the details under this error id',
    cause: thrown,
  })
}

export const messageOf = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown)

/** The id does not exist, or the caller may not see it: both get the same message. */
export const unknown = (what: string, id: string): Fault => new Fault('not_found', `no ${what} ${id}`)
