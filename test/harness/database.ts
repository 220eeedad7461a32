// A migrated database for each caller, cloned from the template of the run in a few milliseconds, and one query to any
// database: rows are evidence for what no answer of the server shows.
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { inject } from 'vitest'

export type TestDatabase = { url: string; drop(): Promise<void> }

export function nameIn(server_url: string, name: string): string {
  const url = new URL(server_url)
  url.pathname = `/${name}`
  return url.href
}

/** One statement on the server itself, on a connection of its own: these cannot be in a transaction. */
export async function administer(server_url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: server_url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}

export async function cloneDatabase(options: { empty?: boolean } = {}): Promise<TestDatabase> {
  const server_url = inject('database_url')
  const name = `oub_${randomBytes(6).toString('hex')}`
  const from = options.empty ? 'template0' : inject('template')
  await administer(server_url, `create database ${name} template ${from}`)
  return {
    url: nameIn(server_url, name),
    drop: () => administer(server_url, `drop database if exists ${name} with (force)`),
  }
}

export async function query<Row extends pg.QueryResultRow>(
  database_url: string,
  text: string,
  values: unknown[] = [],
): Promise<Row[]> {
  const client = new pg.Client({ connectionString: database_url })
  await client.connect()
  try {
    return (await client.query<Row>(text, values)).rows
  } finally {
    await client.end()
  }
}
