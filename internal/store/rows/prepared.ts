// Statements of the busiest paths. Each is built and compiled once in the life of the process, and parsed and planned once
// by each connection of the pool; after that only values travel. Elsewhere a query is built where it is needed: that
// costs about as much as the database itself needs for a row by its key, which matters in these few places only.
import type { CompiledQuery } from 'kysely'
import type { Db } from '../open.ts'

/** By its text, the name under which a connection keeps a statement. */
const names = new Map<string, string>()

export const statementName = (text: string): string | undefined => names.get(text)

/** `build` is called once; the values that it puts in only hold the places of those of each call, in this order. */
export function prepared<Row, Values extends unknown[]>(name: string, build: (db: Db) => CompiledQuery<Row>) {
  let compiled: CompiledQuery<Row> | undefined
  return async (db: Db, ...values: Values): Promise<Row[]> => {
    if (!compiled) {
      compiled = build(db)
      names.set(compiled.sql, name)
    }
    const { rows } = await db.executeQuery<Row>({ ...compiled, parameters: values })
    return rows
  }
}
