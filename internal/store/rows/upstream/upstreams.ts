// The registry of upstream MCP servers: global ones and those of projects.
import { type Insertable, type Selectable, sql, type Updateable } from 'kysely'
import { Fault } from '../../../fault.ts'
import type { Db, Store } from '../../open.ts'
import { type Page, type PageRequest, readCursor, toPage } from '../page.ts'
import { lockProject } from '../projects.ts'
import type { UpstreamsTable } from './tables.ts'

export type UpstreamRow = Selectable<UpstreamsTable>
export type NewUpstream = Insertable<UpstreamsTable>
export type UpstreamChange = Updateable<UpstreamsTable>

/** Any number that nothing else in the same database uses. */
const globalLock = 7_305_112_098_140

export async function upstreamById(db: Db, id: string): Promise<UpstreamRow | undefined> {
  return await db.selectFrom('upstreams').selectAll().where('id', '=', id).executeTakeFirst()
}

/** `project_id` null: the global one of this name. */
export async function upstreamByName(
  db: Db,
  project_id: string | null,
  name: string,
): Promise<UpstreamRow | undefined> {
  return await db
    .selectFrom('upstreams')
    .selectAll()
    .where('name', '=', name)
    .where((where) =>
      project_id === null ? where('project_id', 'is', null) : where('project_id', '=', project_id),
    )
    .executeTakeFirst()
}

export async function upstreamByConsent(db: Db, consent_hash: string): Promise<UpstreamRow | undefined> {
  return await db
    .selectFrom('upstreams')
    .selectAll()
    .where('consent_hash', '=', consent_hash)
    .executeTakeFirst()
}

/** Locked against other changes until the transaction ends. */
export async function lockUpstream(trx: Db, id: string): Promise<UpstreamRow | undefined> {
  return await trx.selectFrom('upstreams').selectAll().where('id', '=', id).forUpdate().executeTakeFirst()
}

export async function upstreamsOfProject(db: Db, project_id: string): Promise<UpstreamRow[]> {
  return await db.selectFrom('upstreams').selectAll().where('project_id', '=', project_id).execute()
}

export async function fileUpstreams(db: Db): Promise<UpstreamRow[]> {
  return await db.selectFrom('upstreams').selectAll().where('source', '=', 'file').execute()
}

/**
 * The enabled upstreams that the droids of a project may use: global ones that the project names or that are for all
 * projects, then its own. An own one with the name of a global one is left out.
 */
export async function upstreamsFor(db: Db, project_id: string): Promise<UpstreamRow[]> {
  const { rows } = await sql<UpstreamRow>`
    select upstreams.* from upstreams left join projects on projects.id = ${project_id}
    where enabled and (upstreams.project_id = ${project_id} or (upstreams.project_id is null
      and (settings->>'projects' = 'all' or projects.mcp_servers ? upstreams.name)))
    order by upstreams.project_id nulls first, upstreams.created_at, upstreams.id`.execute(db)
  const names = new Set<string>()
  return rows.filter(({ name }) => !names.has(name) && names.add(name))
}

/** `project_id` undefined: all of them; otherwise those of the project and the global ones that it may use. */
export async function listUpstreams(
  db: Db,
  filter: { project_id?: string } & PageRequest,
): Promise<Page<UpstreamRow & { tools: number; unapproved: number }>> {
  const from = readCursor(filter.cursor)
  let query = db
    .selectFrom('upstreams')
    .selectAll('upstreams')
    .select([
      sql<number>`(select count(*)::int from upstream_tools where upstream_id = upstreams.id and present and status = 'approved')`.as(
        'tools',
      ),
      sql<number>`(select count(*)::int from upstream_tools where upstream_id = upstreams.id and present and status <> 'approved')`.as(
        'unapproved',
      ),
    ])
    .orderBy('created_at')
    .orderBy('id')
    .limit(filter.limit + 1)
  if (filter.project_id !== undefined)
    query = query.where(
      sql<boolean>`(upstreams.project_id = ${filter.project_id} or (upstreams.project_id is null and (settings->>'projects' = 'all'
        or (select mcp_servers ? upstreams.name from projects where id = ${filter.project_id}))))`,
    )
  if (from)
    query = query.where(
      sql<boolean>`(upstreams.created_at, upstreams.id) > (${from.at}::timestamptz, ${from.id})`,
    )
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.created_at, id: row.id }))
}

/** Counted and written under a lock, so that concurrent calls do not exceed the limit. */
export async function insertUpstream(store: Store, row: NewUpstream, most: number): Promise<void> {
  await store.transact(
    async (trx) => {
      const project_id = row.project_id ?? null
      if (project_id !== null) await lockProject(trx, project_id)
      const { count } = await trx
        .selectFrom('upstreams')
        .select(({ fn }) => fn.countAll<number>().as('count'))
        .where((where) =>
          project_id === null ? where('project_id', 'is', null) : where('project_id', '=', project_id),
        )
        .executeTakeFirstOrThrow()
      if (Number(count) >= most)
        throw new Fault('exhausted', `there are ${most} servers already, which is the limit`, {
          hint: 'remove one with mcp_server remove',
        })
      await trx.insertInto('upstreams').values(row).execute()
    },
    { lock: globalLock },
  )
}

export async function updateUpstream(db: Db, id: string, change: UpstreamChange): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('upstreams')
    .set({ ...change, updated_at: new Date().toISOString() })
    .where('id', '=', id)
    .executeTakeFirst()
  return numUpdatedRows > 0n
}

/** What was observed, as opposed to configured: `updated_at` stays. */
export async function saveObserved(db: Db, id: string, change: UpstreamChange): Promise<void> {
  await db.updateTable('upstreams').set(change).where('id', '=', id).execute()
}

export async function deleteUpstream(db: Db, id: string): Promise<boolean> {
  const { numDeletedRows } = await db.deleteFrom('upstreams').where('id', '=', id).executeTakeFirst()
  return numDeletedRows > 0n
}

/** Projects whose droids may see this upstream, among those with a container that should run. */
export async function projectsUsing(
  db: Db,
  { project_id, name, settings }: Pick<UpstreamRow, 'project_id' | 'name' | 'settings'>,
): Promise<string[]> {
  if (project_id !== null) return [project_id]
  const { rows } = await sql<{ id: string }>`
    select projects.id from projects join containers on containers.project_id = projects.id
    where wanted = 'running' and (${settings.projects === 'all'} or mcp_servers ? ${name})`.execute(db)
  return rows.map(({ id }) => id)
}
