// Model use of sessions: which provider a droid gets, and the rules for its requests. `spending.ts` accounts for their cost.
import type { Config, Credential } from '../../config/load.ts'
import { requireSet } from '../../config/models.ts'
import { Fault, unknown } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { ModelProvider } from '../../model-providers.ts'
import { chooseProvider, remedy, unsetCredential } from '../../models/providers/credentials.ts'
import { createModelProxy, type ModelProxy } from '../../models/proxy.ts'
import type { Store } from '../../store/open.ts'
import { type ModelRules, projectModelRules } from '../../store/rows/spending.ts'
import type { ContainerThrottle } from '../container/uplink.ts'
import type { SessionChanging } from '../session/change.ts'
import { createSpending } from './spending.ts'

type Known = { config: Config; credentials: ReadonlyMap<string, Credential> }

/** Undefined for a droid that does not use the model proxy. Throws a fault that names the missing key. */
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
  const unset = unsetCredential(credentials, wanted)
  if (unset) requireSet(...unset)
  throw new Fault(
    'unavailable',
    `droid "${droid}" needs a key for ${wanted.join(' or ')}, which is not configured`,
    {
      hint: remedy(first),
    },
  )
}

const rememberMs = 1_000
const rememberAtMost = 10_000

/** Cached, because every model request reads them; a change by another server takes effect after a second. */
function createRules(store: Store) {
  const known = new Map<string, ModelRules & { until: number }>()
  return async (project_id: string): Promise<ModelRules> => {
    const remembered = known.get(project_id)
    if (remembered && remembered.until > Date.now()) return remembered
    known.delete(project_id)
    const row = await projectModelRules(store.db, project_id)
    if (!row) throw unknown('project', project_id)
    if (known.size >= rememberAtMost) known.delete(known.keys().next().value!)
    known.set(project_id, { ...row, until: Date.now() + rememberMs })
    return row
  }
}

export function createModelUse(
  deps: Known & {
    store: Store
    change: SessionChanging
    log: Log
    /** The secret of this home: reservations of its previous processes are recognized by its hash. */
    secret: Buffer
    /** The session that a key belongs to. */
    identify: (project_id: string, key: string) => Promise<{ session_id: string }>
    throttle: ContainerThrottle
  },
): ModelProxy & { sweep(): Promise<void> } {
  const { config } = deps
  const spending = createSpending(deps)
  const rulesOf = createRules(deps.store)
  const proxy = createModelProxy({
    credentials: deps.credentials,
    prices: config,
    hosted_tools: config.hosted_tools,
    log: deps.log,
    throttle: deps.throttle,
    async admit(project_id, key) {
      const [{ session_id }, { credential_refs, network }] = await Promise.all([
        deps.identify(project_id, key),
        rulesOf(project_id),
      ])
      return { project_id, session_id, credential_refs, network }
    },
    reserve: ({ project_id, session_id }, what) => spending.reserve({ project_id, session_id, ...what }),
  })
  return {
    ...proxy,
    sweep: spending.sweep,
    async close() {
      await proxy.close()
      spending.close()
    },
  }
}
