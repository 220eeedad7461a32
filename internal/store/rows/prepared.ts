// Prepared statements of the hot paths. Each is built and compiled once per process, and parsed and planned once per
// connection of the pool; after that only values are sent. Other queries are built where they are used: building one costs
// about as much as the database needs to read a row by its key.
import type { CompiledQuery } from 'kysely'
import type { Db } from '../open.ts'

/** The names of prepared statements, by their text. */
const names = new Map<string, string>()

export const statementName = (text: string): string | undefined => names.get(text)

/** `build` is called once; its values are placeholders for those of each call, in the same order. */
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
