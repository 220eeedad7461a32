// One server per database. It holds an advisory lock on a connection of its own; PostgreSQL frees the lock when the
// connection ends, so a server that was killed never leaves a stale one behind.
import { hostname } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { Fault, messageOf } from '../fault.ts'
import type { Log, Secret } from '../log.ts'

/** Any number that nothing else in the same database uses. */
const lock = '7305112098114'
/** The lock of a server that was just killed is free within this. */
const patience_ms = 5_000
const retry_ms = 200
const probe_ms = 5_000

export type SoleServer = {
  /** Rejects when another server has taken the database over while this one was cut off from it. */
  lost: Promise<never>
  release(): Promise<void>
}

async function connect(database_url: Secret): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: database_url.reveal(),
    application_name: `oubliette server ${hostname()}:${process.pid}`.slice(0, 63),
    connectionTimeoutMillis: 10_000,
    query_timeout: 10_000,
    keepAlive: true,
  })
  // A connection that breaks is noticed by the next probe.
  client.on('error', () => undefined)
  await client.connect()
  // A host that vanished is given up after half a minute instead of the two hours of the system.
  await client.query(
    'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 4',
  )
  return client
}

const take = async (client: pg.Client): Promise<boolean> =>
  (await client.query<{ taken: boolean }>(`select pg_try_advisory_lock(${lock}) as taken`)).rows[0]!.taken

async function holderName(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ name: string | null }>(
    `select a.application_name as name from pg_locks l join pg_stat_activity a using (pid)
     where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.database = (select oid from pg_database where datname = current_database())
       and (l.classid::bigint << 32) + l.objid::bigint = ${lock}`,
  )
  return rows[0]?.name?.replace(/^oubliette server /, '') || 'an unknown process'
}

async function acquire(database_url: Secret, patience: number): Promise<pg.Client> {
  const client = await connect(database_url)
  try {
    const deadline = performance.now() + patience
    while (!(await take(client))) {
      if (performance.now() > deadline)
        throw new Fault('conflict', `another server uses this database (${await holderName(client)})`, {
          hint: 'stop it first, or give this one another database; several servers on one database are not supported',
        })
      await pause(retry_ms)
    }
    return client
  } catch (error) {
    await client.end().catch(() => undefined)
    throw error
  }
}

/** Throws `conflict` when another server has the database. */
export async function becomeSoleServer(database_url: Secret, log: Log): Promise<SoleServer> {
  let client = await acquire(database_url, patience_ms)
  const { promise: lost, reject } = Promise.withResolvers<never>()
  // Whoever waits for it is told; until then it is no unhandled rejection.
  lost.catch(() => undefined)
  let closed = false
  let probing: Promise<void> | undefined

  async function probe(): Promise<void> {
    try {
      await client.query('select 1')
      return
    } catch (error) {
      log.warn('the connection that holds the lock of the database is lost, taking the lock again', {
        reason: messageOf(error),
      })
    }
    await client.end().catch(() => undefined)
    try {
      client = await acquire(database_url, patience_ms)
    } catch (error) {
      if (error instanceof Fault && error.kind === 'conflict') reject(error)
      else log.warn('failed to take the lock of the database, retrying', { reason: messageOf(error) })
    }
  }

  const timer = setInterval(() => {
    if (closed) return
    probing ??= probe().finally(() => {
      probing = undefined
    })
  }, probe_ms)
  timer.unref()
  return {
    lost,
    async release() {
      closed = true
      clearInterval(timer)
      await probing
      await client.end().catch(() => undefined)
    },
  }
}
