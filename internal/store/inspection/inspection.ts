// Read-only SQL queries of operators. What a query may see and do is decided by PostgreSQL: a login of its own, views, a
// read-only transaction, a statement timeout. This file adds bounds on rows, bytes, time and concurrency, and opens a
// connection for each query, so that nothing of one query is left for the next.
import pg from 'pg'
import { Fault, messageOf } from '../../fault.ts'
import type { Log, Secret } from '../../log.ts'
import { sqlState } from '../errors.ts'
import type { Store } from '../open.ts'
import { type Access, prepareAccess } from './access.ts'

export type InspectionQuery = { query: string; params: unknown[]; limit: number }
export type InspectionResult = {
  columns: string[]
  rows: unknown[][]
  /** There are more rows than `limit`. */
  truncated: boolean
}
export interface Inspection {
  query(asked: InspectionQuery, signal: AbortSignal): Promise<InspectionResult>
  close(): Promise<void>
}

const maxBytes = 4 * 1024 * 1024
const maxAtOnce = 4
const deadlineMs = 10_000
const fetchedAtOnce = 50

const { builtins } = pg.types
/** Everything else stays text: it can be shown, and no value loses precision. */
const parsers: Record<number, (text: string) => unknown> = {
  [builtins.BOOL]: (text) => text === 't',
  [builtins.INT2]: Number,
  [builtins.INT4]: Number,
  [builtins.FLOAT4]: Number,
  [builtins.FLOAT8]: (text) => (Number.isFinite(Number(text)) ? Number(text) : text),
  [builtins.JSON]: JSON.parse as (text: string) => unknown,
  [builtins.JSONB]: JSON.parse as (text: string) => unknown,
}
const types = {
  getTypeParser: ((oid: number) => parsers[oid] ?? String) as unknown as typeof pg.types.getTypeParser,
}

/** The simple protocol, which `pg` uses without values, takes several statements. */
const extended = { queryMode: 'extended' } as object

/** PostgreSQL allows a cursor for queries only; these two return rows as well. */
const isUtility = (query: string) => /^\s*(?:explain|show)\b/i.test(query)

/** Never the text of the server's own configuration: only what concerns the statement. */
function explained(error: unknown): Fault {
  if (error instanceof Fault) return error
  const state = sqlState(error)
  if (state === '57014') return new Fault('timeout', 'the query took longer than 5 s and was cancelled')
  if (state === '53300') return new Fault('exhausted', 'too many read-only queries at the same time')
  if (state === '42501' || state === '25006')
    return new Fault('forbidden', messageOf(error), {
      hint: 'only the views of schema diagnostics are readable',
    })
  if (state !== undefined && /^(?:0A|2[2-6]|34|42|53|54|55)/.test(state))
    return new Fault('invalid', messageOf(error))
  return new Fault('unavailable', `the query failed: ${messageOf(error)}`, { cause: error })
}

/** Counts what arrives on the connection and closes it above the limit: one value can be larger than all rows may be. */
function boundBytes(client: pg.Client): () => Fault | undefined {
  let bytes = 0
  let exceeded: Fault | undefined
  const { stream } = (
    client as unknown as { connection: { stream: NodeJS.ReadableStream & { destroy(): void } } }
  ).connection
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes <= maxBytes || exceeded) return
    exceeded = new Fault('exhausted', `the result is larger than ${maxBytes / 1024 / 1024} MiB`, {
      hint: 'select fewer columns or rows, or shorten values with left()',
    })
    stream.destroy()
  })
  return () => exceeded
}

async function readRows(client: pg.Client, { query, params, limit }: InspectionQuery) {
  if (isUtility(query)) {
    const { fields, rows } = await client.query<unknown[]>({
      ...extended,
      text: query,
      values: params,
      rowMode: 'array',
    })
    return { columns: fields.map(({ name }) => name), rows }
  }
  // A cursor takes a statement that returns rows and changes none.
  await client.query({
    ...extended,
    text: `declare inspection no scroll cursor for ${query}`,
    values: params,
  })
  let columns: string[] = []
  const rows: unknown[][] = []
  while (rows.length <= limit) {
    const page = await client.query<unknown[]>({
      text: `fetch forward ${Math.min(fetchedAtOnce, limit + 1 - rows.length)} from inspection`,
      rowMode: 'array',
    })
    columns = page.fields.map(({ name }) => name)
    rows.push(...page.rows)
    if (page.rows.length === 0) break
  }
  return { columns, rows }
}

export function createInspection(options: {
  store: Store
  database_url: Secret
  instance: string
  log: Log
}): Inspection {
  const { store, database_url, instance, log } = options
  let access: Access | undefined
  let preparing: Promise<Access> | undefined
  let running = 0
  const clients = new Set<pg.Client>()
  const { host, port, database, ssl } = new pg.Client({ connectionString: database_url.reveal() })

  /** With the first query: most servers are never asked. */
  function prepared(): Promise<Access> {
    preparing ??= prepareAccess(store, instance).finally(() => {
      preparing = undefined
    })
    return preparing
  }

  async function open(): Promise<pg.Client> {
    access ??= await prepared()
    if ('refused' in access)
      throw new Fault('unavailable', `read-only queries are off: ${access.refused}`, {
        hint: 'let the server connect as a superuser of its database, or query the database directly',
      })
    const client = new pg.Client({
      host,
      port,
      ...(database === undefined ? {} : { database }),
      ...(ssl ? { ssl } : {}),
      user: access.role,
      password: access.password.reveal(),
      application_name: 'oubliette diagnostics',
      connectionTimeoutMillis: 5000,
      types,
    })
    client.on('error', (error) =>
      log.debug('a read-only query lost its connection', { reason: messageOf(error) }),
    )
    await client.connect()
    return client
  }

  async function run(asked: InspectionQuery, signal: AbortSignal): Promise<InspectionResult> {
    const client = await open()
    clients.add(client)
    const exceeded = boundBytes(client)
    const destroy = () => void client.end().catch(() => undefined)
    const late = AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)])
    const stopped = Promise.withResolvers<never>()
    const onLate = () => {
      stopped.reject(
        signal.aborted
          ? signal.reason
          : new Fault('timeout', `the query took longer than ${deadlineMs / 1000} s`),
      )
      ;(client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy()
    }
    late.addEventListener('abort', onLate, { once: true })
    stopped.promise.catch(() => undefined)
    const work = async () => {
      await client.query('begin transaction isolation level repeatable read read only')
      return await readRows(client, asked)
    }
    try {
      const { columns, rows } = await Promise.race([work(), stopped.promise])
      return { columns, rows: rows.slice(0, asked.limit), truncated: rows.length > asked.limit }
    } catch (error) {
      throw exceeded() ?? explained(error)
    } finally {
      late.removeEventListener('abort', onLate)
      clients.delete(client)
      destroy()
    }
  }

  return {
    async query(asked, signal) {
      if (running >= maxAtOnce)
        throw new Fault('exhausted', `${maxAtOnce} read-only queries are running, the limit`, {
          retry_after_seconds: 5,
        })
      running += 1
      try {
        return await run(asked, signal)
      } catch (error) {
        throw explained(error)
      } finally {
        running -= 1
      }
    },
    async close() {
      await Promise.allSettled([...clients].map((client) => client.end()))
    },
  }
}
