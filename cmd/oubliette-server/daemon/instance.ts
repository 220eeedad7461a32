// Which database a home belongs to. The directories of a home are described by the rows of one database; with another
// one every project would be an orphan. So a home remembers the instance of its first start and refuses any other.
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Fault } from '../../../internal/fault.ts'
import { hasEmbedded } from '../../../internal/store/embedded/embedded.ts'

const file = (home: string) => join(home, 'instance-id')

const onPurpose = (home: string) =>
  `to start with another database on purpose, use another OUBLIETTE_HOME, or move ${file(home)} and ${join(home, 'projects')} away`

/** Undefined before the first start. */
export function rememberedInstance(home: string): string | undefined {
  if (!existsSync(file(home))) return undefined
  return readFileSync(file(home), 'utf8').trim() || undefined
}

/** Before an embedded PostgreSQL is made for a home whose rows are in another database. */
export function refuseNewEmbedded(home: string): void {
  if (rememberedInstance(home) === undefined || hasEmbedded(home)) return
  throw new Fault(
    'conflict',
    `OUBLIETTE_HOME ${home} belongs to another database: DATABASE_URL is not set, and the home has no embedded one`,
    { hint: `set DATABASE_URL, or database_url in oubliette.jsonc; ${onPurpose(home)}` },
  )
}

/** `found` is the instance of the database that is about to be used; undefined if it is new. */
export function refuseOther(home: string, found: string | undefined, embedded: boolean): void {
  const own = rememberedInstance(home)
  if (own === undefined || own === found) return
  const what = found === undefined ? 'is empty' : `belongs to instance ${found}`
  const message = embedded
    ? `OUBLIETTE_HOME ${home} belongs to instance ${own}, its embedded database ${what}, and DATABASE_URL is not set`
    : `OUBLIETTE_HOME ${home} belongs to instance ${own}, but the database of DATABASE_URL ${what}`
  const remedy = embedded
    ? 'set DATABASE_URL, or database_url in oubliette.jsonc'
    : `set DATABASE_URL to the database of this home${hasEmbedded(home) ? ', or unset it to use the embedded one' : ''}`
  throw new Fault('conflict', message, { hint: `${remedy}; ${onPurpose(home)}` })
}

export function rememberInstance(home: string, instance: string): void {
  if (rememberedInstance(home) === instance) return
  writeFileSync(`${file(home)}.new`, `${instance}\n`, { mode: 0o600 })
  renameSync(`${file(home)}.new`, file(home))
}
