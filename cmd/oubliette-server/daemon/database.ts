// Opens the database of a home: the one of DATABASE_URL or the config, otherwise the embedded one. The rows of exactly one
// database describe the directories of a home; with another database, every project would be an orphan. The home
// therefore records the instance of its first start and refuses to start with any other.
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'
import type { Log } from '../../../internal/log.ts'
import { hasEmbedded, startEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { migrate } from '../../../internal/store/migrate.ts'
import { openStore } from '../../../internal/store/open.ts'
import { becomeSoleServer, instanceId, knownInstance } from '../../../internal/store/sole-server.ts'
import { backUpBeforeUpgrade } from '../backup/before-upgrade.ts'
import { requireWhole } from '../backup/restore.ts'

/** Migrations can rewrite large tables. */
const migrationSeconds = 3_600

const instanceFile = (home: string) => join(home, 'instance-id')

const startOver = (home: string) =>
  `to use another database on purpose, set another OUBLIETTE_HOME, or move ${instanceFile(home)} and ${join(home, 'projects')} away`

/** Undefined before the first start. */
function recordedInstance(home: string): string | undefined {
  if (!existsSync(instanceFile(home))) return undefined
  return readFileSync(instanceFile(home), 'utf8').trim() || undefined
}

function recordInstance(home: string, instance: string): void {
  if (recordedInstance(home) === instance) return
  writeFileSync(`${instanceFile(home)}.new`, `${instance}\n`, { mode: 0o600 })
  renameSync(`${instanceFile(home)}.new`, instanceFile(home))
}

/** An embedded database is not created for a home whose rows are in another database. */
export function refuseNewEmbedded(home: string): void {
  if (recordedInstance(home) === undefined || hasEmbedded(home)) return
  throw new Fault(
    'conflict',
    `OUBLIETTE_HOME ${home} belongs to another database: DATABASE_URL is not set, and the home has no embedded database`,
    { hint: `set DATABASE_URL, or database_url in oubliette.jsonc; ${startOver(home)}` },
  )
}

/** `found` is the instance of the opened database; undefined if the database is empty. */
export function refuseOther(home: string, found: string | undefined, embedded: boolean): void {
  const recorded = recordedInstance(home)
  if (recorded === undefined || recorded === found) return
  const state = found === undefined ? 'is empty' : `belongs to instance ${found}`
  const message = embedded
    ? `OUBLIETTE_HOME ${home} belongs to instance ${recorded}, but its embedded database ${state} and DATABASE_URL is not set`
    : `OUBLIETTE_HOME ${home} belongs to instance ${recorded}, but the database of DATABASE_URL ${state}`
  const remedy = embedded
    ? 'set DATABASE_URL, or database_url in oubliette.jsonc'
    : `set DATABASE_URL to the database of this home${hasEmbedded(home) ? ', or unset it to use the embedded database' : ''}`
  throw new Fault('conflict', message, { hint: `${remedy}; ${startOver(home)}` })
}

/** `lost` rejects when another server takes over the database. */
export async function openDatabase(settings: Settings, log: Log, stack: AsyncDisposableStack) {
  const { home, config } = settings
  let { database_url } = settings
  requireWhole(home)
  if (!database_url) {
    refuseNewEmbedded(home)
    const embedded = await startEmbedded({ home, log })
    stack.defer(() => embedded.stop())
    database_url = embedded.url
  }
  const store = await openStore({ database_url, log, timeout_seconds: config.database_timeout_seconds })
  stack.defer(() => store.close())
  // Before the first write, because this may be the wrong database.
  refuseOther(home, await knownInstance(store.db), settings.database_url === undefined)
  const sole = await becomeSoleServer(database_url, log)
  stack.defer(() => sole.release())
  if (config.backup_before_upgrade) await backUpBeforeUpgrade(home, database_url, log)
  const migrating = await openStore({
    database_url,
    log,
    max_connections: 2,
    timeout_seconds: migrationSeconds,
  })
  await migrate(migrating.db, log).finally(() => migrating.close())
  const instance = await instanceId(store.db)
  recordInstance(home, instance)
  return { store, database_url, instance, lost: sole.lost }
}
