// What the droids of a project see of upstreams: the approved tools of those that the project may use, under their visible
// names, without what lists and the project exclude. Kept in memory for a moment, so that a call reads nothing.
import { LRUCache } from 'lru-cache'
import type { Store } from '../../store/open.ts'
import { toolsOf, type UpstreamToolRow } from '../../store/rows/upstream/tools.ts'
import { type UpstreamRow, upstreamsFor } from '../../store/rows/upstream/upstreams.ts'
import { isAllowed } from './names.ts'

export type Offer = { upstream: UpstreamRow; tool: UpstreamToolRow }
export type Catalog = {
  upstreams: UpstreamRow[]
  /** By visible name. */
  offers: Map<string, Offer>
}

/** Changes on this server are seen at once. */
const rememberMs = 2_000
const rememberToolsMs = 30_000

export function createCatalogs(deps: { store: Store }) {
  const { db } = deps.store
  const catalogs = new LRUCache<string, Promise<Catalog>>({ max: 1000, ttl: rememberMs })
  const tools = new LRUCache<string, { version: string; rows: Promise<UpstreamToolRow[]> }>({
    max: 500,
    ttl: rememberToolsMs,
  })

  function toolsOfUpstream({ id, discovered_at, updated_at }: UpstreamRow): Promise<UpstreamToolRow[]> {
    const version = `${discovered_at} ${updated_at}`
    const known = tools.get(id)
    if (known?.version === version) return known.rows
    const rows = toolsOf(db, id)
    tools.set(id, { version, rows })
    rows.catch(() => tools.delete(id))
    return rows
  }

  async function read(project_id: string): Promise<Catalog> {
    const upstreams = await upstreamsFor(db, project_id)
    const offers = new Map<string, Offer>()
    for (const upstream of upstreams)
      for (const tool of await toolsOfUpstream(upstream)) {
        const isOffered =
          tool.present && tool.status === 'approved' && isAllowed(upstream.settings, tool.name)
        // Names are unique by their hash; if two were equal nevertheless, the first keeps its name.
        if (isOffered && !offers.has(tool.visible_name)) offers.set(tool.visible_name, { upstream, tool })
      }
    return { upstreams, offers }
  }

  return {
    of(project_id: string): Promise<Catalog> {
      const known = catalogs.get(project_id)
      if (known) return known
      const reading = read(project_id)
      catalogs.set(project_id, reading)
      reading.catch(() => catalogs.delete(project_id))
      return reading
    },
    toolsOf: toolsOfUpstream,
    forget(upstream_id?: string): void {
      catalogs.clear()
      if (upstream_id === undefined) tools.clear()
      else tools.delete(upstream_id)
    },
  }
}
export type Catalogs = ReturnType<typeof createCatalogs>
