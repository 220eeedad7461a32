// What an upstream offers, in full: lists page by page, within limits.
import type { Client } from '@modelcontextprotocol/client'
import { UpstreamFault } from '../faults.ts'
import type { Discovered, UpstreamTool } from '../upstream.ts'
import { asSent } from './client.ts'

const maxPages = 64
const maxItems = 5_000

type Page = Record<string, unknown> & { nextCursor?: unknown; ttlMs?: unknown; cacheScope?: unknown }
type Caching = { ttl_ms: number | null; cache_scope: 'public' | 'private' | null }

export async function discover(
  name: string,
  client: Client,
  signal: AbortSignal,
  timeout_ms: number,
): Promise<Discovered> {
  const capabilities = (client.getServerCapabilities() ?? {}) as Record<string, unknown>
  const caching: Caching[] = []

  async function list(method: string, field: string): Promise<Record<string, unknown>[]> {
    const items: Record<string, unknown>[] = []
    let cursor: string | undefined
    for (let page = 0; page < maxPages; page++) {
      const params = cursor === undefined ? {} : { cursor }
      const result = (await client.request({ method, params }, asSent, {
        signal,
        timeout: timeout_ms,
      })) as Page
      const found = result?.[field]
      if (!Array.isArray(found) || !found.every((item) => typeof item === 'object' && item !== null))
        throw new UpstreamFault(
          'unavailable',
          `upstream "${name}" answered ${method} without a list of ${field}`,
          {
            outcome: 'answered',
          },
        )
      items.push(...(found as Record<string, unknown>[]))
      if (page === 0) caching.push(cachingOf(result))
      if (items.length > maxItems) break
      if (typeof result.nextCursor !== 'string') return items
      cursor = result.nextCursor
    }
    throw new UpstreamFault(
      'exhausted',
      `upstream "${name}" lists more than ${maxItems} ${field} or more than ${maxPages} pages`,
      { outcome: 'answered' },
    )
  }

  /** Some upstreams announce more than they serve: only the list of tools is necessary. */
  async function optional(method: string, field: string): Promise<Record<string, unknown>[]> {
    return await list(method, field).catch((error: unknown) => {
      if (signal.aborted) throw error
      return []
    })
  }

  const [tools, resources, resource_templates, prompts] = await Promise.all([
    capabilities.tools ? list('tools/list', 'tools') : [],
    capabilities.resources ? optional('resources/list', 'resources') : [],
    capabilities.resources ? optional('resources/templates/list', 'resourceTemplates') : [],
    capabilities.prompts ? optional('prompts/list', 'prompts') : [],
  ])
  const named = (tools as UpstreamTool[]).filter(
    ({ name, inputSchema }) => typeof name === 'string' && name !== '' && isObject(inputSchema),
  )
  const info = client.getServerVersion()
  const ttls = caching.flatMap(({ ttl_ms }) => (ttl_ms === null ? [] : [ttl_ms]))
  const scopes = caching.flatMap(({ cache_scope }) => (cache_scope === null ? [] : [cache_scope]))
  return {
    identity: { ...info, name: info?.name ?? '', version: info?.version ?? '' },
    instructions: client.getInstructions() ?? null,
    capabilities,
    tools: named,
    resources,
    resource_templates,
    prompts,
    ttl_ms: ttls.length > 0 ? Math.min(...ttls) : null,
    cache_scope: scopes.includes('private') ? 'private' : (scopes[0] ?? null),
  }
}

const isObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function cachingOf({ ttlMs, cacheScope }: Page): Caching {
  return {
    ttl_ms: typeof ttlMs === 'number' && Number.isFinite(ttlMs) && ttlMs >= 0 ? ttlMs : null,
    cache_scope: cacheScope === 'public' || cacheScope === 'private' ? cacheScope : null,
  }
}
