// One PostgreSQL for the whole run (the one at TEST_DATABASE_URL, or the embedded one in a directory of its own) and in it
// one migrated database, from which every test file gets its copy.
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { createLog, Secret } from '../../../internal/log.ts'
import { startEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { migrate } from '../../../internal/store/migrate.ts'
import { openStore } from '../../../internal/store/open.ts'
import { administer, nameIn } from '../database.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** Of the server, and of the database on it that is copied. */
    database_url: string
    template: string
  }
}

const log = createLog({ level: 'warn' })

async function serverOfTheRun(): Promise<{ url: string; stop(): Promise<void> }> {
  const given = process.env.TEST_DATABASE_URL
  if (given) return { url: given, stop: async () => undefined }
  const home = await mkdtemp(join(tmpdir(), 'oub-pg-'))
  const remove = () => rm(home, { recursive: true, force: true })
  try {
    const embedded = await startEmbedded({ home, log })
    return {
      url: embedded.url.reveal(),
      stop: async () => {
        await embedded.stop()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await serverOfTheRun()
  const template = `oub_template_${randomBytes(4).toString('hex')}`
  const drop = () => administer(server.url, `drop database if exists ${template} with (force)`)
  try {
    await administer(server.url, `create database ${template} template template0 encoding 'UTF8'`)
    const store = await openStore({ database_url: new Secret(nameIn(server.url, template)), log })
    await migrate(store.db, log).finally(() => store.close())
  } catch (error) {
    await drop().finally(() => server.stop())
    throw error
  }
  project.provide('database_url', server.url)
  project.provide('template', template)
  return async () => {
    await drop().finally(() => server.stop())
  }
}
