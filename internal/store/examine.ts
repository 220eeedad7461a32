// Looks at a database without changing it, within a deadline: for commands that report what is wrong with it.
import pg from 'pg'
import type { Secret } from '../log.ts'
import { migrationsOf } from './backup/snapshot.ts'
import { askServer, cannotConnect, placeOf, requireSupported, type ServerFacts } from './open.ts'
import { askHolder, nameOfHolder } from './sole-server.ts'

export type Examined = {
  place: string
  /** As the server names it, e.g. `18.4`. */
  version: string
  migrations: string[]
  /** Undefined if no server has used this database. */
  instance: string | undefined
  /** The server that uses it now, as `host:pid`. */
  holder: string | undefined
  /** The clock of the database in milliseconds, and those of this process before and after it was read. */
  clock: { at_ms: number; asked_ms: number; answered_ms: number }
  /** Of all projects, with those that are being deleted. */
  projects: { id: string; container_type: string }[]
}

async function exists(client: pg.Client, table: string): Promise<boolean> {
  const { rows } = await client.query<{ name: string | null }>('select to_regclass($1)::text as name', [
    table,
  ])
  return Boolean(rows[0]?.name)
}

async function read(client: pg.Client, place: string): Promise<Examined> {
  const { rows: facts } = await client.query<ServerFacts>(askServer)
  requireSupported(facts[0]!, place)
  const asked_ms = Date.now()
  const { rows: times } = await client.query<{ at_ms: string }>(
    'select extract(epoch from clock_timestamp()) * 1000 as at_ms',
  )
  const clock = { at_ms: Number(times[0]!.at_ms), asked_ms, answered_ms: Date.now() }
  const instance = (await exists(client, 'instance'))
    ? (await client.query<{ id: string }>('select id from instance')).rows[0]?.id
    : undefined
  const projects = (await exists(client, 'projects'))
    ? (await client.query<Examined['projects'][number]>('select id, container_type from projects')).rows
    : []
  return {
    place,
    version: facts[0]!.name.split(' ')[0]!,
    migrations: await migrationsOf(client),
    instance,
    holder: nameOfHolder((await client.query<{ name: string | null }>(askHolder)).rows),
    clock,
    projects,
  }
}

/** Throws `unavailable` if the database cannot be used, or does not answer within the time. */
export async function examineDatabase(database_url: Secret, timeout_ms: number): Promise<Examined> {
  const place = placeOf(database_url)
  const client = new pg.Client({
    connectionString: database_url.reveal(),
    application_name: 'oubliette doctor',
    connectionTimeoutMillis: timeout_ms,
    query_timeout: timeout_ms,
    statement_timeout: timeout_ms,
  })
  client.on('error', () => undefined)
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => late.reject(cannotConnect(place, new Error(`no answer within ${timeout_ms / 1000} s`))),
    timeout_ms,
  )
  const connected = client.connect().catch((error: unknown) => {
    throw cannotConnect(place, error)
  })
  try {
    return await Promise.race([connected.then(() => read(client, place)), late.promise])
  } finally {
    clearTimeout(timer)
    connected.catch(() => undefined)
    // A graceful end would wait for a server that hangs.
    client.connection.stream.destroy()
  }
}
