// The database of a home for commands that run beside the server, or without it. While the server runs, its embedded database
// is used through its socket; otherwise the command takes the lock of the home and runs the database for itself.

import type { Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'
import { homeHolder, lockHome } from '../../../internal/home-lock.ts'
import { type Log, Secret } from '../../../internal/log.ts'
import { knownCluster } from '../../../internal/store/embedded/cluster.ts'
import { hasEmbedded, startEmbedded } from '../../../internal/store/embedded/embedded.ts'

/** Everything that is started ends with the stack. */
export async function reachDatabase(
  { home, database_url }: Settings,
  log: Log,
  stack: AsyncDisposableStack,
): Promise<Secret> {
  if (database_url) return database_url
  if (!hasEmbedded(home))
    throw new Fault('not_found', `${home} has no database`, {
      hint: 'run "./oubliette up" first, or check OUBLIETTE_HOME and DATABASE_URL',
    })
  if (homeHolder(home)) return new Secret((await knownCluster(home)).url)
  const lock = lockHome(home)
  stack.defer(() => lock.release())
  const embedded = await startEmbedded({ home, log })
  stack.defer(() => embedded.stop())
  return embedded.url
}
