// Calls an action for the command line. A list is fetched completely, because the server pages from the oldest row and a
// person looks for the newest.
import type { List } from './output/lists.ts'

type Args = Record<string, unknown>
type Result = Record<string, unknown>
type Call = (args: Args) => Promise<Result>

const page_rows = 200
/** Rows of a table without `--limit` and `--all`. */
export const shown_rows = 50

/** All pages as one result. */
export async function allPages(call: Call, args: Args, list: List): Promise<Result> {
  const rows: unknown[] = []
  let cursor: unknown
  let page: Result
  do {
    page = await call({ ...args, limit: page_rows, ...(cursor ? { cursor } : {}) })
    rows.push(...(page[list.rows] as unknown[]))
    cursor = page.next_cursor
  } while (typeof cursor === 'string')
  return { ...page, [list.rows]: rows }
}

/** The newest rows first, at most `limit` of them, and how many there are besides. */
export function newest(result: Result, list: List, limit: number): { result: Result; more: number } {
  const rows = [...(result[list.rows] as Record<string, unknown>[])]
  const { newest: field } = list
  if (field) rows.sort((a, b) => Date.parse(String(b[field])) - Date.parse(String(a[field])))
  return {
    result: { ...result, [list.rows]: rows.slice(0, limit) },
    more: Math.max(0, rows.length - limit),
  }
}
