// What all managers are built on: directories, keys, the event log, and the channels by which they notify each other.
import { createSessionKeys, sessionSecret } from '../../auth/session-keys.ts'
import type { Config, Credential } from '../../config/load.ts'
import { createTrash } from '../../files/trash.ts'
import { createKeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import { notifyTokenChange } from '../access/tokens.ts'
import { containerUser } from '../container/user.ts'
import { createEventLog } from '../events/event-log.ts'
import type { Committed } from '../events/log-writer.ts'
import type { Poison } from '../events/poison.ts'
import { createWake } from '../events/wake.ts'
import { createProjectNames } from '../project/names.ts'
import { createSessionChange } from '../session/change.ts'
import { createDispatchRequests } from '../session/dispatch.ts'
import { createIdentities } from '../session/identity.ts'
import { createPreviousRuns } from '../session/previous-run.ts'
import { createDirectories } from '../workspace/directories.ts'
import { layoutOf } from '../workspace/layout.ts'

export type FoundationDeps = {
  home: string
  config: Config
  credentials: ReadonlyMap<string, Credential>
  store: Store
  poison: Poison
  runtime: Runtime
  log: Log
  /** Drops cached tokens: all, or those that were minted through these sessions. */
  forgetTokens: (session_ids?: ReadonlySet<string>) => void
}

export function createFoundation(deps: FoundationDeps) {
  const { home, config, credentials, store, poison, runtime, log } = deps
  const layout = layoutOf(home)
  const wake = createWake()
  const secret = sessionSecret(home)
  const keys = createSessionKeys(secret)
  const identities = createIdentities({ store, keys, forgetTokens: deps.forgetTokens })
  const owner = containerUser(config.container_uid, {
    uid: process.getuid?.() ?? 0,
    gid: process.getgid?.() ?? 0,
  })
  const trash = createTrash({ directory: layout.trash, log })
  /** Called in this order with everything that is committed to the event log; managers are added as they are built. */
  const listeners: ((committed: Committed) => void)[] = []
  const events = createEventLog({ store, wake, listeners, poison, session_mb: config.limits.session_mb })
  const requests = createDispatchRequests()
  const forget = (): void => {
    deps.forgetTokens()
    identities.forget()
  }

  return {
    store,
    runtime,
    config,
    credentials,
    poison,
    log,
    layout,
    owner,
    projectNames: createProjectNames(store.db),
    trash,
    directories: createDirectories({ layout, owner, trash, log }),
    /** One operation at a time on a project and its container. */
    serial: createKeyedQueue(),
    wake,
    secret,
    keys,
    identities,
    listeners,
    events,
    change: createSessionChange({ store, events }),
    requests,
    requestDispatch: requests.requestDispatch,
    dispatchFirst: requests.dispatchFirst,
    previousRuns: createPreviousRuns(),
    /** Projects whose remote is not cloned yet. */
    preparing: new Set<string>(),
    /** Drops the cached tokens and session keys of this server. */
    forget,
    /** And of all servers on this database. */
    async forgetEverywhere(): Promise<void> {
      forget()
      await notifyTokenChange(store)
    },
  }
}
export type Foundation = ReturnType<typeof createFoundation>
