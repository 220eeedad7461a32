// Tools of upstream servers: their definitions, pins and approvals, and the search over them.
import { type Insertable, type Selectable, sql } from 'kysely'
import type { Db } from '../../open.ts'
import type { UpstreamToolsTable } from './tables.ts'

export type UpstreamToolRow = Omit<Selectable<UpstreamToolsTable>, 'words' | 'search_text'>
export type NewUpstreamTool = Omit<Insertable<UpstreamToolsTable>, 'words' | 'search_text'>

const columns = [
  'upstream_id',
  'name',
  'visible_name',
  'definition',
  'pin',
  'status',
  'present',
  'approved_definition',
  'approved_pin',
  'approved_by',
  'approved_at',
  'resembles',
  'approval_id',
  'hidden_characters',
  'first_seen_at',
  'changed_at',
] as const

export async function toolsOf(db: Db, upstream_id: string): Promise<UpstreamToolRow[]> {
  return await db
    .selectFrom('upstream_tools')
    .select(columns)
    .where('upstream_id', '=', upstream_id)
    .orderBy('name')
    .execute()
}

export type ToolTexts = { name: string; description: string; parameters: string }

/** Inserts or replaces, with what the search finds. */
export async function saveTools(db: Db, rows: (NewUpstreamTool & { texts: ToolTexts })[]): Promise<void> {
  for (const { texts, ...row } of rows) {
    const found = {
      words: sql<string>`setweight(to_tsvector('english', ${texts.name}), 'A')
        || setweight(to_tsvector('english', ${texts.description}), 'B')
        || setweight(to_tsvector('english', ${texts.parameters}), 'C')`,
      search_text: `${texts.name} ${texts.parameters}`.slice(0, 2000),
    }
    await db
      .insertInto('upstream_tools')
      .values({ ...row, ...found })
      .onConflict((conflict) => conflict.columns(['upstream_id', 'name']).doUpdateSet({ ...row, ...found }))
      .execute()
  }
}

export async function markAbsent(db: Db, upstream_id: string, names: string[]): Promise<void> {
  if (names.length === 0) return
  await db
    .updateTable('upstream_tools')
    .set({ present: false, changed_at: new Date().toISOString() })
    .where('upstream_id', '=', upstream_id)
    .where('name', 'in', names)
    .execute()
}

/** Of vanished tools only the newest are kept: an upstream that invents names must not fill the table. */
export async function forgetAbsent(db: Db, upstream_id: string, kept: number): Promise<void> {
  const old = db
    .selectFrom('upstream_tools')
    .select('name')
    .where('upstream_id', '=', upstream_id)
    .where('present', '=', false)
    .orderBy('changed_at', 'desc')
    .offset(kept)
  await db
    .deleteFrom('upstream_tools')
    .where('upstream_id', '=', upstream_id)
    .where('present', '=', false)
    .where('name', 'in', old)
    .execute()
}

/**
 * Approves the definitions with these pins: one that changed since it was shown is not approved. Returns the approved names.
 */
export async function approveTools(
  db: Db,
  upstream_id: string,
  pins: { name: string; pin: string }[],
  approved_by: string,
): Promise<string[]> {
  if (pins.length === 0) return []
  const { rows } = await sql<{ name: string }>`
    update upstream_tools set status = 'approved', approved_definition = definition, approved_pin = upstream_tools.pin,
      approved_by = ${approved_by}, approved_at = now(), resembles = null, approval_id = null
    from jsonb_to_recordset(${JSON.stringify(pins)}::jsonb) as wanted (name text, pin text)
    where upstream_id = ${upstream_id} and upstream_tools.name = wanted.name and upstream_tools.pin = wanted.pin
      and status <> 'approved'
    returning upstream_tools.name`.execute(db)
  return rows.map(({ name }) => name)
}

export async function setApproval(
  db: Db,
  upstream_id: string,
  name: string,
  approval_id: string | null,
): Promise<void> {
  await db
    .updateTable('upstream_tools')
    .set({ approval_id })
    .where('upstream_id', '=', upstream_id)
    .where('name', '=', name)
    .execute()
}

type Search = { upstream_ids: string[]; words: string[]; limit: number }
type Found = { upstream_id: string; name: string; rank: number }

/** Approved tools of these upstreams that have one of the words or a word that begins with it, best first. */
export async function searchByWords(db: Db, { upstream_ids, words, limit }: Search): Promise<Found[]> {
  if (upstream_ids.length === 0 || words.length === 0) return []
  const asked = words.map((word) => `${word}:*`).join(' | ')
  const { rows } = await sql<Found>`
    with asked as (select to_tsquery('english', ${asked}) as query)
    select upstream_id, name, ts_rank(words, query)::float8 as rank
    from upstream_tools, asked
    where upstream_id = any(${upstream_ids}) and present and status = 'approved' and words @@ query
    order by rank desc, name limit ${limit}`.execute(db)
  return rows
}

/** The same by trigrams, for words that are misspelt. More expensive: every tool is compared with every word. */
export async function searchAlike(db: Db, { upstream_ids, words, limit }: Search): Promise<Found[]> {
  if (upstream_ids.length === 0 || words.length === 0) return []
  const { rows } = await sql<Found>`
    select upstream_id, name, alike.rank::float8 as rank
    from upstream_tools, lateral (
      select avg(likeness) as rank, max(likeness) as best
      from (select word_similarity(word, search_text) as likeness from unnest(${words}::text[]) as word) as each_word
    ) as alike
    where upstream_id = any(${upstream_ids}) and present and status = 'approved' and alike.best > 0.45
    order by rank desc, name limit ${limit}`.execute(db)
  return rows
}

export async function hasTrigrams(db: Db): Promise<boolean> {
  const { rows } = await sql`select 1 from pg_extension where extname = 'pg_trgm'`.execute(db)
  return rows.length > 0
}
