// Translates errors of PostgreSQL and its driver into Faults. All queries of the pool go through `translate`, so that only
// the store knows SQLSTATEs. An error that is not listed here is a bug, and is rethrown unchanged.
import { Fault, type Kind } from '../fault.ts'

type DatabaseError = Error & { code?: string; table?: string; constraint?: string; detail?: string }

/** By SQLSTATE, or by its first two or three characters. The message of the server may contain values, and is not shown. */
const states: Record<string, { kind: Kind; message: string }> = {
  '08': { kind: 'unavailable', message: 'the connection to the database was lost' },
  '22': { kind: 'invalid', message: 'the database rejected a value' },
  '22001': { kind: 'invalid', message: 'a string is too long' },
  '22003': { kind: 'invalid', message: 'a number is out of range' },
  '22021': { kind: 'invalid', message: 'a string contains a NUL character or is not valid Unicode' },
  '22P05': { kind: 'invalid', message: 'a string contains a NUL character or is not valid Unicode' },
  '23502': { kind: 'invalid', message: 'a required value is missing' },
  '23514': { kind: 'invalid', message: 'a value is not allowed' },
  '25P03': { kind: 'timeout', message: 'a transaction was idle for too long' },
  '28': { kind: 'unavailable', message: 'the database rejected the user name or password' },
  '3D000': { kind: 'unavailable', message: 'the database does not exist' },
  '40001': { kind: 'conflict', message: 'a concurrent change affected the same data; try again' },
  '40P01': { kind: 'conflict', message: 'a concurrent change affected the same data; try again' },
  '42501': { kind: 'unavailable', message: 'the database user lacks a required permission' },
  '53': { kind: 'unavailable', message: 'the database is out of connections, memory or disk space' },
  '55P03': { kind: 'timeout', message: 'timed out waiting for a lock in the database' },
  '57014': { kind: 'timeout', message: 'the database statement timed out' },
  '57P': { kind: 'unavailable', message: 'the database is starting up or shutting down' },
  '58': { kind: 'unavailable', message: 'the database reports an I/O error' },
}

const network = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ENOENT', 'EACCES', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'],
  ...['EHOSTUNREACH', 'ENETUNREACH', 'ECONNABORTED'],
])
/** Errors of the driver that have no code. */
const driver =
  /^(Connection terminated|timeout expired|Query read timeout|Client (was|has)|Cannot use a pool)/
/** All connections of the pool are in use: the database hangs or is overloaded. */
const noneFree = /^timeout exceeded when trying to connect/

function constraintFault(error: DatabaseError): Fault | undefined {
  const { code, table, constraint } = error
  const about = { cause: error, ...(constraint ? { hint: `constraint ${constraint}` } : {}) }
  if (code === '23505')
    return new Fault('conflict', `a row with the same unique values already exists in ${table}`, about)
  if (code !== '23503') return undefined
  // One SQLSTATE for both directions: the referenced row is missing, or the row is still referenced.
  return error.detail?.includes('still referenced')
    ? new Fault('conflict', `a row in ${table} is still referenced`, about)
    : new Fault('not_found', `a row referenced by ${table} does not exist`, about)
}

export function sqlState(thrown: unknown): string | undefined {
  if (thrown instanceof Fault) return sqlState(thrown.cause)
  const code = (thrown as DatabaseError | undefined)?.code
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && !network.has(code) ? code : undefined
}

/** The violated constraint, for callers that report it in their own words. */
export function brokenRule(thrown: unknown): string | undefined {
  return thrown instanceof Fault ? (thrown.cause as DatabaseError | undefined)?.constraint : undefined
}

export function translate(thrown: unknown): unknown {
  if (thrown instanceof Fault || !(thrown instanceof Error)) return thrown
  const error = thrown as DatabaseError
  const state = sqlState(error)
  if (state !== undefined) {
    const known = states[state] ?? states[state.slice(0, 3)] ?? states[state.slice(0, 2)]
    return constraintFault(error) ?? (known ? new Fault(known.kind, known.message, { cause: error }) : error)
  }
  if (noneFree.test(error.message))
    return new Fault('unavailable', 'timed out waiting for a free database connection', { cause: error })
  if (network.has(error.code ?? '') || driver.test(error.message))
    return new Fault('unavailable', 'the database is unreachable', { cause: error })
  return error
}

/** The database cannot serve any request now: the same request may succeed later, and its values are not the cause. */
export const isOutage = (thrown: unknown): boolean =>
  thrown instanceof Fault && (thrown.kind === 'unavailable' || thrown.kind === 'timeout')
