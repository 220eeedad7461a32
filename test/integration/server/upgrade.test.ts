// A server of a newer release on the database of an older one: the database is backed up before it is migrated.
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLog, Secret } from '../../../internal/log.ts'
import { migrate, migrations } from '../../../internal/store/migrate.ts'
import { openStore } from '../../../internal/store/open.ts'
import { runCli } from '../../harness/cli.ts'
import { cloneDatabase, query, type TestDatabase } from '../../harness/database.ts'
import { bootServer } from '../../harness/server.ts'

const names = Object.keys(migrations)
const older = Object.fromEntries(names.slice(0, -1).map((name) => [name, migrations[name]!]))
const log = createLog({ level: 'error' })

let database: TestDatabase
let target: TestDatabase
let home: string
beforeAll(async () => {
  database = await cloneDatabase({ empty: true })
  target = await cloneDatabase({ empty: true })
  home = await mkdtemp(join(tmpdir(), 'oub-'))
  const store = await openStore({ database_url: new Secret(database.url), log })
  await migrate(store.db, log, { migrations: older, functions: {} }).finally(() => store.close())
})
afterAll(async () => {
  await database?.drop()
  await target?.drop()
  await rm(home, { recursive: true, force: true })
})

const migrationsIn = async (url: string) =>
  (await query<{ name: string }>(url, 'select name from kysely_migration order by name')).map(
    ({ name }) => name,
  )

test('an upgrade leaves a backup of the older database, and keeps the last three', async () => {
  const backups = join(home, 'backups')
  await mkdir(backups)
  for (const year of [2001, 2002, 2003])
    await writeFile(join(backups, `before-0002-sessions-${year}0101T000000Z.tar.gz`), '')
  await writeFile(join(backups, 'made-by-hand.tar.gz'), '')
  const server = await bootServer({ home, database_url: database.url })
  try {
    expect(await migrationsIn(database.url)).toEqual(names)
    const left = (await readdir(backups)).sort()
    const made = left.filter((name) => name.startsWith(`before-${names.at(-1)}-`))
    expect(made).toHaveLength(1)
    expect(left).toEqual(
      [
        ...made,
        'before-0002-sessions-20020101T000000Z.tar.gz',
        'before-0002-sessions-20030101T000000Z.tar.gz',
        'made-by-hand.tar.gz',
      ].sort(),
    )
    const file = join(backups, made[0]!)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    await server.restart()
    expect((await readdir(backups)).sort()).toEqual(left)
    const restored = await runCli(
      ['restore', file],
      { OUBLIETTE_HOME: join(home, 'older'), DATABASE_URL: target.url },
      60_000,
    )
    expect(restored).toMatchObject({ code: 0, stderr: '' })
    expect(await migrationsIn(target.url)).toEqual(names.slice(0, -1))
  } finally {
    await server.stop()
  }
  const upgraded = await bootServer({ home: join(home, 'older'), database_url: target.url })
  await upgraded.stop()
  expect(await migrationsIn(target.url)).toEqual(names)
})
