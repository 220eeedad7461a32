// Kysely on a pool of pg. Owns the connections, the conversion of values (numbers, ISO times, plain JSON) and the translation
// of errors. An unusable database is reported in one line without its password, and no statement waits for a hung database
// longer than its deadline. The queries are in `rows/`, one file per noun.
import { setTimeout as pause } from 'node:timers/promises'
import { Kysely, PostgresDialect, type PostgresPool, sql } from 'kysely'
import pg from 'pg'
import { Fault, messageOf } from '../fault.ts'
import { createDeadlines, type Deadlines } from '../lib/deadlines.ts'
import type { Log, Secret } from '../log.ts'
import { sqlState, translate } from './errors.ts'
import { createDatabaseHeartbeat, noAnswer } from './heartbeat.ts'
import { createListener } from './listen.ts'
import { statementName } from './rows/prepared.ts'
import type { Database } from './schema.ts'

/** The pool or a transaction. */
export type Db = Kysely<Database>

export interface Store {
  db: Db
  /** The connections of the pool; `waiting` are callers that wait for one. */
  pool(): { open: number; idle: number; waiting: number; max: number }
  /** Checks the database on a separate connection; throws `unavailable`. Concurrent calls share one check. */
  ping(): Promise<void>
  /**
   * Runs `work` again from its start after a serialization failure or a deadlock: it must have no other effects. `lock` is
   * an advisory lock, acquired first and held until the end. `long`: its statements may take minutes, as long as the database
   * answers other queries.
   */
  transact<T>(work: (trx: Db) => Promise<T>, options?: TransactOptions): Promise<T>
  /** Sent when the transaction commits. At most 8000 bytes: send ids, not rows. */
  notify(channel: string, payload: string, db?: Db): Promise<void>
  /**
   * Resolves when the subscription is active. `onGap` is called when notifications may have been missed: read the state
   * again. The returned function ends the subscription.
   */
  listen(
    channel: string,
    onPayload: (payload: string) => void,
    onGap?: () => void,
  ): Promise<() => Promise<void>>
  close(): Promise<void>
}
type TransactOptions = {
  isolation?: 'read committed' | 'repeatable read' | 'serializable'
  lock?: number
  long?: boolean
}

const oldest = 15
const closeMilliseconds = 5000
const attempts = 6
const defaultSeconds = 10
const longMilliseconds = 600_000
/** The first statement of a long transaction. The deadline in this process recognises it too. */
const beginLong = `set local statement_timeout = ${longMilliseconds}`
/** The minimum for a statement whose wait for a connection has used up its deadline. */
const leastMilliseconds = 1000

/** Keeps microseconds, so that a time can be a cursor, and always has milliseconds, as `toISOString` does. */
function isoTime(text: string): string {
  const utc = /^(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))?\+00$/.exec(text)
  if (utc) return `${utc[1]}T${utc[2]}.${(utc[3] ?? '').padEnd(3, '0')}Z`
  const time = new Date(text)
  return Number.isNaN(time.getTime()) ? text : time.toISOString()
}

const parsers: Record<number, (text: string) => unknown> = {
  [pg.types.builtins.INT8]: Number,
  [pg.types.builtins.NUMERIC]: Number,
  [pg.types.builtins.TIMESTAMPTZ]: isoTime,
}

const types = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    parsers[oid] ?? pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
}

function poolConfig(database_url: Secret, max_connections: number, timeout_ms: number): pg.PoolConfig {
  return {
    connectionString: database_url.reveal(),
    types,
    max: max_connections,
    application_name: 'oubliette',
    connectionTimeoutMillis: timeout_ms,
    idleTimeoutMillis: 60_000,
    keepAlive: true,
    // Shorter than the deadline in this process: the database cancels the statement, and the connection stays usable.
    statement_timeout: Math.round(timeout_ms * 0.9),
    lock_timeout: Math.round(timeout_ms * 0.8),
    idle_in_transaction_session_timeout: 60_000,
  }
}

/** Host and port, or the socket. Throws if the URL is invalid. */
export function placeOf(database_url: Secret): string {
  const text = database_url.reveal()
  try {
    if (!/^postgres(ql)?:\/\//.test(text)) throw new Error('it must start with postgresql://')
    const { host, port } = new pg.Client({ connectionString: text })
    return host.startsWith('/') ? host : `${host}:${port}`
  } catch (error) {
    // The parser's own message may repeat the URL.
    const reason = text.startsWith('postgres') ? 'it cannot be parsed' : messageOf(error)
    throw new Fault('unavailable', `DATABASE_URL is invalid: ${reason}`, {
      hint: 'use postgresql://user:password@host:5432/name, with special characters percent-encoded',
    })
  }
}

function reasonOf(thrown: unknown): string {
  const error = (thrown instanceof Fault ? thrown.cause : thrown) as AggregateError & { code?: string }
  // A host name with several addresses has one error for each.
  const inner: unknown = error.errors?.[0] ?? error
  return messageOf(inner) || error.code || 'no reason given'
}

type Limits = {
  timeout_ms: number
  deadlines: Deadlines
  hung: () => Fault | undefined
  /** Called for every response. */
  heard: () => void
}

/**
 * All queries of Kysely go through these calls. The wait for a connection counts towards the deadline of its first statement.
 * A statement that timed out here may still be executed when the database recovers: a repeat must be safe.
 */
function translated(pool: pg.Pool, { timeout_ms, deadlines, hung, heard }: Limits): PostgresPool {
  const raise = (error: unknown): never => {
    throw translate(error)
  }
  const connect = async () => {
    const refused = hung()
    if (refused) throw noAnswer(refused)
    const began = performance.now()
    const client = await pool.connect().catch(raise)
    let left = Math.max(leastMilliseconds, timeout_ms - (performance.now() - began))
    let broken = false
    let given_up: Fault | undefined
    let is_long = false
    const giveUp = (since: number) => {
      if (is_long && !hung() && performance.now() - since < longMilliseconds) return undefined
      given_up = noAnswer(new Error(`no answer within ${Math.round(timeout_ms / 1000)} s`))
      return given_up
    }
    const query = (text: string, values: unknown[]) => {
      // The rollback of a transaction whose connection hangs would wait for another deadline.
      if (given_up) return Promise.reject(given_up)
      const name = statementName(text)
      const asked = client.query(name ? { name, text, values } : { text, values })
      const limit = left
      const since = performance.now()
      left = timeout_ms
      is_long ||= text === beginLong
      return deadlines
        .within(asked, limit, () => giveUp(since))
        .catch((error: unknown) => {
          const fault = translate(error)
          // A newer server may have changed a table that a prepared statement of this connection uses.
          const outdated = name !== undefined && sqlState(error) === '0A000'
          broken ||= outdated || (fault instanceof Fault && fault.kind === 'unavailable')
          throw outdated
            ? new Fault('unavailable', 'the schema of the database has changed', { cause: error })
            : fault
        })
    }
    return {
      query: query as never,
      release: (destroy?: boolean) => {
        if (!broken) heard()
        // The error arrives before the connection closes: without this the pool would lend it again.
        client.release(destroy || broken)
      },
      processID: (client as { processID?: number }).processID,
    }
  }
  return {
    Client: pg.Client as unknown as NonNullable<PostgresPool['Client']>,
    options: pool.options,
    end: () => pool.end(),
    connect,
  }
}

export type ServerFacts = { version: number; name: string; encoding: string }

export const askServer = `select current_setting('server_version_num')::int as version,
  current_setting('server_version') as name, current_setting('server_encoding') as encoding`

/** Throws `unavailable` if this release cannot use such a server. */
export function requireSupported({ version, name, encoding }: ServerFacts, place: string): void {
  if (version < oldest * 10_000)
    throw new Fault(
      'unavailable',
      `the database at ${place} is PostgreSQL ${name}; version ${oldest} or newer is required`,
    )
  if (encoding !== 'UTF8')
    throw new Fault('unavailable', `the database at ${place} uses the encoding ${encoding}; UTF8 is required`)
}

export const cannotConnect = (place: string, error: unknown): Fault =>
  new Fault('unavailable', `cannot connect to the database at ${place}: ${reasonOf(error)}`, {
    hint: 'check DATABASE_URL, and that PostgreSQL is running and accepts this user',
    cause: error,
  })

async function examine(pool: pg.Pool, place: string): Promise<void> {
  const facts = await pool.query<ServerFacts>(askServer).catch(async (error: unknown) => {
    // PostgreSQL is recovering from a crash, which usually takes seconds.
    for (let left = 60; left > 0 && sqlState(error) === '57P03'; left--) {
      await pause(500)
      const again = await pool.query<ServerFacts>(askServer).catch(() => undefined)
      if (again) return again
    }
    throw cannotConnect(place, error)
  })
  requireSupported(facts.rows[0]!, place)
}

export async function openStore(options: {
  database_url: Secret
  log: Log
  max_connections?: number
  /** Deadline of each statement, including the wait for a connection. */
  timeout_seconds?: number
}): Promise<Store> {
  const { database_url, log, max_connections = 20 } = options
  const timeout_ms = (options.timeout_seconds ?? defaultSeconds) * 1000
  const place = placeOf(database_url)
  const pool = new pg.Pool(poolConfig(database_url, max_connections, timeout_ms))
  let closing = false
  pool.on('error', (error) => {
    // Connections still report errors after the pool has been closed.
    if (!closing) log.warn('lost a database connection', { place, reason: reasonOf(error) })
  })
  // The pool handles errors of idle connections only. A connection lost in use rejects its query; the event must not end the
  // process.
  pool.on('connect', (client) => client.on('error', () => undefined))
  await examine(pool, place).catch(async (error: unknown) => {
    await pool.end()
    throw error
  })
  const config = poolConfig(database_url, 1, timeout_ms)
  const deadlines = createDeadlines()
  const heartbeat = createDatabaseHeartbeat({ config, deadlines, log })
  const limits = { timeout_ms, deadlines, hung: heartbeat.hung, heard: heartbeat.heard }
  const db = new Kysely<Database>({ dialect: new PostgresDialect({ pool: translated(pool, limits) }) })
  const listener = createListener({ config, log })

  return {
    db,
    pool: () => ({
      open: pool.totalCount,
      idle: pool.idleCount,
      waiting: pool.waitingCount,
      max: max_connections,
    }),
    ping: async () => {
      const hung = heartbeat.hung()
      if (hung) throw hung
      await heartbeat.check()
    },
    transact: (work, options) => transact(db, work, options),
    notify: async (channel, payload, within = db) => {
      await sql`select pg_notify(${channel}, ${payload})`.execute(within)
    },
    listen: listener.listen,
    close: async () => {
      closing = true
      heartbeat.close()
      await listener.close()
      // Kysely closes a pool only if it has used it.
      const ended = db.destroy().then(() => (pool.ending ? undefined : pool.end()))
      await Promise.race([ended, pause(closeMilliseconds, undefined, { ref: false })])
      deadlines.close()
    },
  }
}

async function transact<T>(
  db: Db,
  work: (trx: Db) => Promise<T>,
  { isolation = 'read committed', lock, long = false }: TransactOptions = {},
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await db
        .transaction()
        .setIsolationLevel(isolation)
        .execute(async (trx) => {
          if (long) await sql.raw(beginLong).execute(trx)
          if (lock !== undefined) await sql`select pg_advisory_xact_lock(${sql.lit(lock)})`.execute(trx)
          return await work(trx)
        })
    } catch (error) {
      const again = ['40001', '40P01'].includes(sqlState(error) ?? '') && tries < attempts
      if (!again) throw error
      // Random delays, so that two transactions do not collide again.
      await pause(Math.random() * 10 * 2 ** tries)
    }
  }
}
