// What sessions use of models: which provider a droid gets, whether its project may spend more, and what each request
// cost, written into the session's log as it happens.
import type { Config, Credential } from '../config.ts'
import type { ModelProvider } from '../config-models.ts'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { chooseProvider, remedy } from '../models/credentials.ts'
import { createGateway, type Gateway, type ModelUsage } from '../models/gateway.ts'
import type { Store } from '../store/open.ts'
import type { Sessions } from './sessions.ts'
import { createSpending } from './spending.ts'

type Known = { config: Config; credentials: ReadonlyMap<string, Credential> }

/** Nothing for a droid that asks no model of ours; a fault that names the missing key for one that cannot work. */
export function providerOf(
  { config, credentials }: Known,
  project: { credential_refs: string[] },
  droid: string,
): ModelProvider | undefined {
  const wanted = config.droids[droid]?.providers ?? []
  const first = wanted[0]
  if (!first) return undefined
  const chosen = chooseProvider(credentials, project.credential_refs, wanted)
  if (chosen) return chosen
  throw new Fault(
    'unavailable',
    `droid "${droid}" needs a key for ${wanted.join(' or ')}, and there is none`,
    {
      hint: remedy(first),
    },
  )
}

export function createModelUse(
  deps: Known & {
    store: Store
    sessions: Sessions
    log: Log
    /** Whose key it is. */
    identify: (project_id: string, key: string) => Promise<{ session_id: string }>
    pace: (project_id: string, weight: number) => number
  },
): Gateway {
  const { sessions, config } = deps
  const spending = createSpending(deps)

  async function admit(project_id: string, key: string, unrecorded_usd: number) {
    const [{ session_id }, { credential_refs }] = await Promise.all([
      deps.identify(project_id, key),
      spending.check(project_id, unrecorded_usd),
    ])
    return { session_id, credential_refs }
  }

  async function record(session_id: string, usage: ModelUsage): Promise<void> {
    const project_id = await sessions.change(session_id, async (_trx, row, write) => {
      await write([{ type: 'usage', at: new Date().toISOString(), data: { source: 'gateway', ...usage } }])
      return row.project_id
    })
    spending.recorded(project_id, usage.cost_usd ?? 0)
  }

  return createGateway({
    credentials: deps.credentials,
    prices: config.prices,
    log: deps.log,
    admit,
    record,
    pace: deps.pace,
  })
}
