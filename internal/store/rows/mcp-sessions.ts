// MCP sessions of the protocol revisions before 2026-07-28: what a new server process needs to continue them. A row is
// written before the client receives the id of the session, and deleted when the session ends.
import { type Selectable, sql } from 'kysely'
import type { Db } from '../open.ts'
import type { McpSessionsTable } from '../schema.ts'

export type McpSessionRow = Omit<Selectable<McpSessionsTable>, 'used_at'>
export type McpSessionChange = Partial<Pick<McpSessionRow, 'subscriptions' | 'log_level'>>

export interface McpSessionRows {
  /** The `most` recently used ones of the last `days`, least recently used first; deletes the others. */
  load(most: number, days: number): Promise<McpSessionRow[]>
  insert(row: Pick<McpSessionRow, 'id' | 'caller' | 'params'>): Promise<void>
  update(id: string, change: McpSessionChange): Promise<void>
  remove(ids: string[]): Promise<void>
  /** Marks them as used now. */
  touch(ids: string[]): Promise<void>
}

export function createMcpSessionRows(db: Db): McpSessionRows {
  return {
    async load(most, days) {
      const kept = db
        .selectFrom('mcp_sessions')
        .select('id')
        .where('used_at', '>', sql<string>`now() - make_interval(days => ${days})`)
        .orderBy('used_at', 'desc')
        .limit(most)
      await db.deleteFrom('mcp_sessions').where('id', 'not in', kept).execute()
      return await db
        .selectFrom('mcp_sessions')
        .select(['id', 'caller', 'params', 'subscriptions', 'log_level'])
        .orderBy('used_at')
        .execute()
    },
    async insert({ id, caller, params }) {
      await db
        .insertInto('mcp_sessions')
        .values({ id, caller: JSON.stringify(caller), params: JSON.stringify(params), log_level: null })
        .execute()
    },
    async update(id, { subscriptions, log_level }) {
      await db
        .updateTable('mcp_sessions')
        .set({
          ...(subscriptions === undefined ? {} : { subscriptions: JSON.stringify(subscriptions) }),
          ...(log_level === undefined ? {} : { log_level }),
        })
        .where('id', '=', id)
        .execute()
    },
    async remove(ids) {
      if (ids.length > 0) await db.deleteFrom('mcp_sessions').where('id', 'in', ids).execute()
    },
    async touch(ids) {
      if (ids.length === 0) return
      await db.updateTable('mcp_sessions').set({ used_at: sql`now()` }).where('id', 'in', ids).execute()
    },
  }
}
