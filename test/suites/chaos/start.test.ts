// The server and its embedded PostgreSQL are killed in every combination, at any instant, and started again at once.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { type Kill, kill, kills, postgresOf } from '../../fixtures/chaos/faults.ts'
import { uniqueName } from '../../harness/booted.ts'
import { freePort } from '../../harness/free-port.ts'
import { seeded } from '../../harness/random.ts'
import { resultIn, rpc } from '../../harness/rpc.ts'
import { bootServer } from '../../harness/server.ts'

const long = Boolean(process.env.OUBLIETTE_TEST_CHAOS)
const checkout = resolve(import.meta.dirname, '../../..')

const rounds = long ? 50 : 8

test(`the server comes up after ${rounds} kills of itself and its PostgreSQL, with everything that was committed`, {
  timeout: 60_000 + rounds * 20_000,
}, async () => {
  const random = seeded('kills')
  const server = await bootServer({ embedded: true })
  const ask = async (args: Record<string, unknown>) =>
    resultIn(await rpc(server.url, server.admin_token, 'tools/call', { name: 'project', arguments: args }))
  const names: string[] = []
  const starts_ms: number[] = []
  try {
    for (let round = 0; round < rounds; round++) {
      const name = uniqueName()
      expect((await ask({ action: 'create', name, network: 'none' })).isError).toBeFalsy()
      names.push(name)
      // The first rounds take each combination once.
      const kinds = Object.keys(kills) as Kill[]
      const kind = kinds[round] ?? random.of(kinds)
      await kills[kind](server)
      const began = performance.now()
      await server.restart('SIGKILL').catch((error: Error) => {
        throw new Error(`round ${round}, killed ${kind}: ${error.message}`)
      })
      starts_ms.push(performance.now() - began)
      const { projects } = (await ask({ action: 'list', limit: 200 })).structuredContent as {
        projects: { name: string }[]
      }
      expect(projects.map((project) => project.name)).toEqual(names)
    }
    starts_ms.sort((a, b) => a - b)
    console.log(
      `starts refused 0 of ${rounds}; ready after ${Math.round(starts_ms[rounds >> 1]!)} ms (median), ${Math.round(starts_ms.at(-1)!)} ms (worst)`,
    )
  } finally {
    await server.stop()
  }
})

const first_rounds = long ? 25 : 4

test(`a first start that is cut short at any instant ${first_rounds} times leaves nothing in the way`, {
  timeout: 60_000 + first_rounds * 30_000,
}, async () => {
  const random = seeded('first starts')
  for (let round = 0; round < first_rounds; round++) {
    const home = await mkdtemp(join(tmpdir(), 'oub-first-'))
    const env = { ...process.env, OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: `127.0.0.1:${await freePort()}` }
    delete (env as NodeJS.ProcessEnv).DATABASE_URL
    const wait_ms = 100 + random.below(2500)
    const child: ChildProcess = spawn(
      process.execPath,
      [join(checkout, 'cmd/oubliette-server/main.ts'), 'serve'],
      { cwd: checkout, env, stdio: 'ignore' },
    )
    await Promise.race([pause(wait_ms), once(child, 'exit')])
    const { postmaster, backends } = await postgresOf(home)
    const dead = once(child, 'exit')
    kill([child.pid, ...(random.below(2) && postmaster ? [postmaster, ...backends] : [])])
    await dead
    const server = await bootServer({ embedded: true, home }).catch((error: Error) => {
      throw new Error(`round ${round}, killed after ${wait_ms} ms: ${error.message}`)
    })
    try {
      expect((await fetch(`${server.url}/readyz`)).status).toBe(200)
    } finally {
      await server.stop()
      await rm(home, { recursive: true, force: true })
    }
  }
})
