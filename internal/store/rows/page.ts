// Keyset pagination over (created_at, id). The cursor is opaque to callers and holds the position of the last row.
import { Fault } from '../../fault.ts'

export type PageRequest = { limit: number; cursor?: string }
export type Page<T> = { items: T[]; next_cursor: string | null }
export type Position = { at: string; id: string }

export function readCursor(cursor: string | undefined): Position | undefined {
  if (cursor === undefined) return undefined
  try {
    const [at, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[]
    if (typeof at === 'string' && typeof id === 'string' && !Number.isNaN(Date.parse(at))) return { at, id }
  } catch {
    // Reported below.
  }
  throw new Fault('invalid', 'cursor is invalid: it was not returned by a list', {
    hint: 'omit it to start from the first page',
  })
}

/** `rows` were queried with a limit of one more than the page, to know whether another page follows. */
export function toPage<T>(rows: T[], limit: number, position: (row: T) => Position): Page<T> {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  if (rows.length <= limit || !last) return { items, next_cursor: null }
  const { at, id } = position(last)
  return { items, next_cursor: Buffer.from(JSON.stringify([at, id])).toString('base64url') }
}
