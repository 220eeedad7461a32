// How much a project may still spend, remembered for a moment, because every request to a model asks. What this server
// records counts at once; what another server of the same database records, a second later at most. Nobody is refused
// from memory: a no is read from the database.
import type { Config } from '../config.ts'
import { Fault, unknown } from '../fault.ts'
import type { Store } from '../store/open.ts'
import { projectSpending, type Spending } from '../store/spending.ts'
import { effectiveLimits } from './projects.ts'

const rememberMs = 1_000
const rememberAtMost = 10_000

type Known = Spending & { until: number }

export function createSpending({ store, config }: { store: Store; config: Config }) {
  const known = new Map<string, Known>()
  let changes = 0

  async function read(project_id: string): Promise<Known> {
    const seen = changes
    const row = await projectSpending(store.db, project_id)
    if (!row) throw unknown('project', project_id)
    const fresh = { ...row, until: Date.now() + rememberMs }
    known.delete(project_id)
    // What was read before a change must not be remembered after it.
    if (seen !== changes) return fresh
    if (known.size >= rememberAtMost) known.delete(known.keys().next().value!)
    known.set(project_id, fresh)
    return fresh
  }

  function exceeded({ limits, cost_usd }: Known, unrecorded_usd: number): Fault | undefined {
    const { max_cost_usd } = effectiveLimits(config, { limits })
    const cost = cost_usd + unrecorded_usd
    if (max_cost_usd === 0 || cost < max_cost_usd) return undefined
    const message = `the project has cost ${cost.toFixed(2)} US dollars, and may cost ${max_cost_usd}`
    return new Fault('exhausted', message, { hint: 'raise limits.max_cost_usd' })
  }

  return {
    /** The project, if it may spend more; throws `exhausted`. */
    async check(project_id: string, unrecorded_usd: number): Promise<{ credential_refs: string[] }> {
      const remembered = known.get(project_id)
      if (remembered && remembered.until > Date.now() && !exceeded(remembered, unrecorded_usd))
        return remembered
      const fresh = await read(project_id)
      const fault = exceeded(fresh, unrecorded_usd)
      if (fault) throw fault
      return fresh
    },
    recorded(project_id: string, cost_usd: number): void {
      changes += 1
      const remembered = known.get(project_id)
      if (remembered) remembered.cost_usd += cost_usd
    },
  }
}
