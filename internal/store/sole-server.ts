// One server per database, and the id that marks what this database owns in Docker. The server holds an advisory lock on a
// separate connection; PostgreSQL releases the lock when the connection ends, so a killed server leaves no stale lock. While
// the database hangs, the connection and its lock are kept: they are replaced only when the connection is broken, or when the
// database answers on another one.
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { sql } from 'kysely'
import pg from 'pg'
import { Fault, messageOf } from '../fault.ts'
import { createDeadlines } from '../lib/deadlines.ts'
import type { Log, Secret } from '../log.ts'
import type { Db } from './open.ts'

/** Any number that nothing else in the same database uses. */
const lock = '7305112098114'
/** PostgreSQL releases the lock of a killed server within this time. */
const patience_ms = 5_000
const retry_ms = 200
const probe_ms = 5_000
const answer_ms = 10_000

type HolderRow = { name: string | null }

/** Which connection holds the lock. */
export const askHolder = `select a.application_name as name from pg_locks l join pg_stat_activity a using (pid)
  where l.locktype = 'advisory' and l.granted and l.objsubid = 1
    and l.database = (select oid from pg_database where datname = current_database())
    and (l.classid::bigint << 32) + l.objid::bigint = ${lock}`

/** Host and process id; undefined if no server holds the lock. */
export const nameOfHolder = ([row]: HolderRow[]): string | undefined =>
  row && (row.name?.replace(/^oubliette server /, '') || 'an unknown process')

export type SoleServer = {
  /** Rejects when another server has acquired the lock while this one was disconnected. */
  lost: Promise<never>
  release(): void
}

/** Throws `conflict` when another server holds the lock. */
export async function becomeSoleServer(database_url: Secret, log: Log): Promise<SoleServer> {
  const deadlines = createDeadlines()
  const { promise: lost, reject } = Promise.withResolvers<never>()
  // It may reject before anything awaits it.
  lost.catch(() => undefined)
  let closed = false
  let probing = false
  /** The query of the last probe until it is answered. */
  let asked: Promise<unknown> | undefined

  const inTime = <T>(answer: Promise<T>): Promise<T> =>
    deadlines.within(answer, answer_ms, () => new Error(`no answer within ${answer_ms / 1000} s`))
  const ask = async <Row extends pg.QueryResultRow>(of: pg.Client, text: string): Promise<Row[]> =>
    (await inTime(of.query<Row>(text))).rows

  async function connect(): Promise<pg.Client> {
    const dialled = new pg.Client({
      connectionString: database_url.reveal(),
      application_name: `oubliette server ${hostname()}:${process.pid}`.slice(0, 63),
      connectionTimeoutMillis: answer_ms,
      keepAlive: true,
    })
    // The next probe detects a broken connection.
    dialled.on('error', () => undefined)
    await dialled.connect()
    return dialled
  }

  async function holderName(of: pg.Client): Promise<string> {
    return nameOfHolder(await ask<HolderRow>(of, askHolder)) ?? 'an unknown process'
  }

  async function take(on: pg.Client): Promise<void> {
    // PostgreSQL drops the connection of a lost host after 30 seconds instead of the two hours of the system default.
    await ask(
      on,
      'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 4',
    )
    const deadline = performance.now() + patience_ms
    const attempt = `select pg_try_advisory_lock(${lock}) as taken`
    while (!(await ask<{ taken: boolean }>(on, attempt))[0]!.taken) {
      if (performance.now() > deadline)
        throw new Fault('conflict', `another server uses this database (${await holderName(on)})`, {
          hint: 'stop that server, or use another database; one database supports one server',
        })
      await pause(retry_ms)
    }
  }

  /** A graceful close would wait for a response. */
  const cut = (one: pg.Client) => void one.connection.stream.destroy()

  let client = await connect()
  try {
    await take(client)
  } catch (error) {
    cut(client)
    deadlines.close()
    throw error
  }

  async function probe(): Promise<void> {
    try {
      asked ??= client.query('select 1').finally(() => {
        asked = undefined
      })
      await inTime(asked)
      return
    } catch (error) {
      if (closed) return
      log.warn('failed to probe the connection that holds the database lock', {
        reason: messageOf(error),
      })
    }
    let fresh: pg.Client | undefined
    try {
      fresh = await connect()
      if (closed) return cut(fresh)
      cut(client)
      client = fresh
      await take(fresh)
    } catch (error) {
      // The next probe detects that it is broken.
      if (fresh) cut(fresh)
      if (error instanceof Fault && error.kind === 'conflict') reject(error)
      else log.warn('failed to acquire the database lock, retrying', { reason: messageOf(error) })
    }
  }

  const timer = setInterval(() => {
    if (closed || probing) return
    probing = true
    void probe().finally(() => {
      probing = false
    })
  }, probe_ms)
  timer.unref()
  return {
    lost,
    release() {
      closed = true
      clearInterval(timer)
      cut(client)
      deadlines.close()
    },
  }
}

/** The value of the label `oubliette.instance` in Docker. It is stored in the database, and created if missing. */
export async function instanceId(db: Db): Promise<string> {
  await db
    .insertInto('instance')
    .values({ id: randomBytes(6).toString('hex') })
    .onConflict((conflict) => conflict.column('singleton').doNothing())
    .execute()
  const { id } = await db.selectFrom('instance').select('id').executeTakeFirstOrThrow()
  return id
}

/** The same without creating it; undefined in a database that no server has used. */
export async function knownInstance(db: Db): Promise<string | undefined> {
  const table = await sql<{ name: string | null }>`select to_regclass('instance')::text as name`.execute(db)
  if (!table.rows[0]?.name) return undefined
  return (await db.selectFrom('instance').select('id').executeTakeFirst())?.id
}
