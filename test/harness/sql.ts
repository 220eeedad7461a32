// Looking into the daemon's database, for what is promised about rows and cannot be seen from outside yet.
import pg from 'pg'

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
