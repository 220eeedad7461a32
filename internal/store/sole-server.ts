// One server per database. It holds an advisory lock on a connection of its own; PostgreSQL frees the lock when the
// connection ends, so a server that was killed never leaves a stale one behind. While the database hangs the connection is
// kept, and the lock with it: it is given up only when it is broken, or when the database answers on another one.
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
/** The lock of a server that was just killed is free within this. */
const patience_ms = 5_000
const retry_ms = 200
const probe_ms = 5_000
const answer_ms = 10_000

export type SoleServer = {
  /** Rejects when another server has taken the database over while this one was cut off from it. */
  lost: Promise<never>
  release(): void
}

/** Throws `conflict` when another server has the database. */
export async function becomeSoleServer(database_url: Secret, log: Log): Promise<SoleServer> {
  const deadlines = createDeadlines()
  const { promise: lost, reject } = Promise.withResolvers<never>()
  // Whoever waits for it is told; until then it is no unhandled rejection.
  lost.catch(() => undefined)
  let closed = false
  let probing = false
  /** The question of the last probe, while it is not answered. */
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
    // A connection that breaks is noticed by the next probe.
    dialled.on('error', () => undefined)
    await dialled.connect()
    return dialled
  }

  async function holderName(of: pg.Client): Promise<string> {
    const rows = await ask<{ name: string | null }>(
      of,
      `select a.application_name as name from pg_locks l join pg_stat_activity a using (pid)
       where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.database = (select oid from pg_database where datname = current_database())
         and (l.classid::bigint << 32) + l.objid::bigint = ${lock}`,
    )
    return rows[0]?.name?.replace(/^oubliette server /, '') || 'an unknown process'
  }

  async function take(on: pg.Client): Promise<void> {
    // A host that vanished is given up after half a minute instead of the two hours of the system.
    await ask(
      on,
      'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 4',
    )
    const deadline = performance.now() + patience_ms
    const attempt = `select pg_try_advisory_lock(${lock}) as taken`
    while (!(await ask<{ taken: boolean }>(on, attempt))[0]!.taken) {
      if (performance.now() > deadline)
        throw new Fault('conflict', `another server uses this database (${await holderName(on)})`, {
          hint: 'stop it first, or give this one another database; several servers on one database are not supported',
        })
      await pause(retry_ms)
    }
  }

  /** Without a farewell, which would wait for an answer. */
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
      log.warn('the connection that holds the lock of the database does not answer', {
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
      // The next probe finds it broken.
      if (fresh) cut(fresh)
      if (error instanceof Fault && error.kind === 'conflict') reject(error)
      else log.warn('failed to take the lock of the database, retrying', { reason: messageOf(error) })
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

/** Who owns what carries our labels in Docker. It belongs to the database: servers that share one are one instance. */
export async function instanceId(db: Db): Promise<string> {
  await db
    .insertInto('instance')
    .values({ id: randomBytes(6).toString('hex') })
    .onConflict((conflict) => conflict.column('singleton').doNothing())
    .execute()
  const { id } = await db.selectFrom('instance').select('id').executeTakeFirstOrThrow()
  return id
}

/** As it is, without making one; undefined in a database that no server has used yet. */
export async function knownInstance(db: Db): Promise<string | undefined> {
  const table = await sql<{ name: string | null }>`select to_regclass('instance')::text as name`.execute(db)
  if (!table.rows[0]?.name) return undefined
  return (await db.selectFrom('instance').select('id').executeTakeFirst())?.id
}
