// Looks into the running server for an operator: nothing here changes anything.
import type { Config } from '../../config/load.ts'
import type { LogFilter, LogRing } from '../../log-ring.ts'
import type { Inspection, InspectionQuery } from '../../store/inspection/inspection.ts'
import type { Store } from '../../store/open.ts'
import { type AuditFilter, listAudit } from '../../store/rows/audit.ts'
import { deleteUsageBefore, groupUsage, totalUsage, type UsageFilter } from '../../store/rows/usage.ts'
import { createAgents } from './agents.ts'
import { createHealth } from './health.ts'
import { createSkills } from './skills.ts'

const mostGroups = 1_000

/** What the managers do not have themselves. */
export type DiagnosticsSources = {
  ring: LogRing
  inspection: Inspection
  database_kind: 'embedded' | 'external'
  /** By key of the config, where its value comes from. */
  sources: Record<string, string>
  /** Event streams that are open. */
  openStreams: () => number
}
type Deps = Parameters<typeof createHealth>[0] &
  Parameters<typeof createAgents>[0] &
  Parameters<typeof createSkills>[0] &
  DiagnosticsSources & { store: Store }

type UsageQuery = Omit<UsageFilter, 'limit'> & { token_names: boolean }

/** Values in the config that may be secrets although they are not credentials: environment variables of droids. */
function redact(config: Config): Record<string, unknown> {
  const hide = (values: object) => Object.fromEntries(Object.keys(values).map((key) => [key, '«redacted»']))
  const droids = Object.entries(config.droids).map(([name, droid]) => [
    name,
    'env' in droid && droid.env ? { ...droid, env: hide(droid.env) } : droid,
  ])
  return { ...config, droids: Object.fromEntries(droids) }
}

export function createDiagnostics(deps: Deps) {
  const { health, figures, close } = createHealth(deps)
  const { agents, agentState } = createAgents(deps)
  const { db } = deps.store

  async function usage({ token_names, ...query }: UsageQuery) {
    const filter = { ...query, limit: mostGroups + 1 }
    const [groups, total] = await Promise.all([groupUsage(db, filter), totalUsage(db, filter)])
    const hidden = query.group_by === 'token' && !token_names
    return {
      usage: groups.slice(0, mostGroups).map((group) => (hidden ? { ...group, name: null } : group)),
      total,
      truncated: groups.length > mostGroups,
    }
  }

  return {
    health,
    figures,
    relay: deps.relay.counts,
    agents,
    agentState,
    skills: createSkills(deps),
    usage,
    expireUsage: (days: number) => deleteUsageBefore(db, new Date(Date.now() - days * 86_400_000)),
    serverLog: (filter: LogFilter) => deps.ring.read(filter),
    async query(asked: InspectionQuery, signal: AbortSignal) {
      const began = performance.now()
      const result = await deps.inspection.query(asked, signal)
      return { ...result, duration_ms: Math.round(performance.now() - began) }
    },
    audit: (filter: AuditFilter) => listAudit(deps.store.db, filter),
    config: () => ({
      config: {
        ...redact(deps.config),
        credentials: [...deps.credentials].map(([name, { provider }]) => ({
          name,
          provider: String(provider),
        })),
      },
      sources: deps.sources,
    }),
    close,
  }
}
