// What PostgreSQL and its driver throw, as Faults. Everything that the pool does goes through `translate`, so that no
// room above knows an SQLSTATE. What is in no table here is a bug of ours and stays as it was thrown.
import { Fault, type Kind } from '../fault.ts'

type DatabaseError = Error & { code?: string; table?: string; constraint?: string; detail?: string }

/** By SQLSTATE, or by its first two characters. The server's own text is shown only where it names no values. */
const states: Record<string, { kind: Kind; say: string }> = {
  '08': { kind: 'unavailable', say: 'the connection to the database was lost' },
  '22': { kind: 'invalid', say: 'a value is not acceptable to the database' },
  '22001': { kind: 'invalid', say: 'a text is too long' },
  '22003': { kind: 'invalid', say: 'a number is out of range' },
  '22021': { kind: 'invalid', say: 'a text has a NUL character or is not Unicode' },
  '22P05': { kind: 'invalid', say: 'a text has a NUL character or is not Unicode' },
  '23502': { kind: 'invalid', say: 'a required value is missing' },
  '23514': { kind: 'invalid', say: 'a value is not allowed' },
  '25P03': { kind: 'timeout', say: 'a transaction was left open for too long' },
  '28': { kind: 'unavailable', say: 'the database refused our user name or password' },
  '3D000': { kind: 'unavailable', say: 'the database of this name does not exist' },
  '40001': { kind: 'conflict', say: 'somebody changed the same things at the same moment' },
  '40P01': { kind: 'conflict', say: 'somebody changed the same things at the same moment' },
  '42501': { kind: 'unavailable', say: 'our database user lacks a permission' },
  '53': { kind: 'unavailable', say: 'the database is out of connections, memory or disk' },
  '55P03': { kind: 'timeout', say: 'something else holds a lock in the database for too long' },
  '57014': { kind: 'timeout', say: 'the database took too long' },
  '57P': { kind: 'unavailable', say: 'the database is stopping or starting' },
  '58': { kind: 'unavailable', say: 'the database has trouble with its disk' },
}

const network = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ENOENT', 'EACCES', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'],
  ...['EHOSTUNREACH', 'ENETUNREACH', 'ECONNABORTED'],
])
/** The driver gives these no code. */
const driver =
  /^(Connection terminated|timeout expired|Query read timeout|Client (was|has)|Cannot use a pool)/
/** All connections of the pool were in use: the database hangs, or does not keep up. */
const noneFree = /^timeout exceeded when trying to connect/

function constraintFault(error: DatabaseError): Fault | undefined {
  const { code, table, constraint } = error
  const about = { cause: error, ...(constraint ? { hint: `rule ${constraint}` } : {}) }
  if (code === '23505') return new Fault('conflict', `there is one like this already in ${table}`, about)
  if (code !== '23503') return undefined
  // One state for both directions: what is pointed at is missing, or is still pointed at.
  return error.detail?.includes('still referenced')
    ? new Fault('conflict', `something still refers to this in ${table}`, about)
    : new Fault('not_found', `what ${table} refers to does not exist`, about)
}

export function sqlState(thrown: unknown): string | undefined {
  if (thrown instanceof Fault) return sqlState(thrown.cause)
  const code = (thrown as DatabaseError | undefined)?.code
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && !network.has(code) ? code : undefined
}

/** Which rule of the schema was broken, for those who answer some of them in their own words. */
export function brokenRule(thrown: unknown): string | undefined {
  return thrown instanceof Fault ? (thrown.cause as DatabaseError | undefined)?.constraint : undefined
}

export function translate(thrown: unknown): unknown {
  if (thrown instanceof Fault || !(thrown instanceof Error)) return thrown
  const error = thrown as DatabaseError
  const state = sqlState(error)
  if (state !== undefined) {
    const known = states[state] ?? states[state.slice(0, 3)] ?? states[state.slice(0, 2)]
    return constraintFault(error) ?? (known ? new Fault(known.kind, known.say, { cause: error }) : error)
  }
  if (noneFree.test(error.message))
    return new Fault('unavailable', 'no connection to the database was free in time', { cause: error })
  if (network.has(error.code ?? '') || driver.test(error.message))
    return new Fault('unavailable', 'the database cannot be reached', { cause: error })
  return error
}

/** The database cannot do it now, whatever was asked: the same may succeed later, and nothing is wrong with its values. */
export const isOutage = (thrown: unknown): boolean =>
  thrown instanceof Fault && (thrown.kind === 'unavailable' || thrown.kind === 'timeout')
