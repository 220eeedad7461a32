// Connects the registry with the connections of `internal/upstream`: an upstream is configured there when it is first used, and
// again when its row has changed. States and credentials are stored as they change, so that a list shows them after a restart.

import { messageOf } from '../../../fault.ts'
import type { Log } from '../../../log.ts'
import type { Store } from '../../../store/open.ts'
import { saveObserved, type UpstreamRow } from '../../../store/rows/upstream/upstreams.ts'
import type { UpstreamSpec, UpstreamStatus, Upstreams } from '../../../upstream/upstream.ts'

/** From the row to what is connected: secrets are resolved, addresses are guarded. */
export type SpecOf = (row: UpstreamRow) => Promise<UpstreamSpec>

const unused: UpstreamStatus = {
  state: 'configured',
  credentials: 'none',
  reason: null,
  stderr: [],
  failures: 0,
  retry_at: null,
  connected_at: null,
  protocol_version: null,
}
const saveMs = 500

export function createConnections(deps: { store: Store; upstreams: Upstreams; specOf: SpecOf; log: Log }) {
  const { upstreams, log } = deps
  const configured = new Map<string, Promise<string>>()
  /** Those that the connections know. */
  const live = new Set<string>()
  const dirty = new Set<string>()
  let saving: NodeJS.Timeout | undefined

  async function save(): Promise<void> {
    saving = undefined
    for (const id of [...dirty]) {
      dirty.delete(id)
      if (!live.has(id)) continue
      const { state, credentials, reason } = upstreams.status(id)
      const last_status = JSON.stringify({ state, credentials, reason, at: new Date().toISOString() })
      await saveObserved(deps.store.db, id, { last_status }).catch((error: unknown) =>
        log.warn('failed to store the state of an MCP server', { upstream_id: id, reason: messageOf(error) }),
      )
    }
  }
  const unsubscribe = upstreams.subscribe(({ id }) => {
    dirty.add(id)
    saving ??= setTimeout(() => void save(), saveMs).unref()
  })

  return {
    /** The connections, with this upstream configured as its row says. */
    async use(row: UpstreamRow): Promise<Upstreams> {
      const version = row.updated_at
      const known = configured.get(row.id)
      // A caller may still hold the row as it was before a change.
      if (known && (await known.catch(() => '')) >= version) return upstreams
      const configuring: Promise<string> = deps.specOf(row).then((spec) => {
        // It may have been dropped meanwhile.
        if (configured.get(row.id) !== configuring) return version
        upstreams.configure(spec)
        live.add(row.id)
        return version
      })
      configured.set(row.id, configuring)
      try {
        await configuring
      } catch (error) {
        if (configured.get(row.id) === configuring) configured.delete(row.id)
        throw error
      }
      return upstreams
    },
    statusOf({ id, last_status }: Pick<UpstreamRow, 'id' | 'last_status'>): UpstreamStatus {
      if (live.has(id)) return upstreams.status(id)
      const last = (last_status ?? {}) as Partial<UpstreamStatus>
      const wasWrong = last.state === 'error' || last.state === 'degraded'
      return {
        ...unused,
        ...(last.credentials ? { credentials: last.credentials } : {}),
        ...(wasWrong ? { state: last.state!, reason: last.reason ?? null } : {}),
      }
    },
    async drop(id: string): Promise<void> {
      configured.delete(id)
      if (live.delete(id)) await upstreams.remove(id)
    },
    subscribe: upstreams.subscribe,
    async close(): Promise<void> {
      unsubscribe()
      clearTimeout(saving)
      await save()
      await upstreams.close()
    },
  }
}
export type Connections = ReturnType<typeof createConnections>
