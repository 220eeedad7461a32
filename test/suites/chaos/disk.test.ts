// A droid fills the disk that the server, its PostgreSQL and all containers share. Changes are refused instead of made
// without a record, what is wrong is named, and when there is room again everything goes on with nothing lost.
import { execFileSync } from 'node:child_process'
import { mkdtemp, rm, rmdir, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import { allEvents, call, expectNumbered, insist, numbered } from '../../fixtures/chaos/chaos.ts'
import { type Booted, boot, uniqueName } from '../../harness/booted.ts'
import { rpc } from '../../harness/rpc.ts'
import { until } from '../../harness/wait.ts'

const rounds = process.env.OUBLIETTE_TEST_CHAOS ? 5 : 1
let home: string
let booted: Booted

const root = process.getuid?.() === 0

beforeAll(async () => {
  if (!root) return
  home = await mkdtemp(join(tmpdir(), 'oub-disk-'))
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=600m,mode=0755', 'oubliette-test', home])
  booted = await boot({ embedded: true, home, config: { reconcile_seconds: 2, min_free_disk_mb: 64 } })
})
afterAll(async () => {
  if (!root) return
  await booted?.stop()
  execFileSync('umount', ['-l', home])
  await rmdir(home)
})

const readiness = async () => {
  const answer = await fetch(`${booted.server.url}/readyz`, { signal: AbortSignal.timeout(10_000) })
  return { status: answer.status, text: await answer.text() }
}
const freeBytes = async () => {
  const { bavail, bsize } = await statfs(home)
  return bavail * bsize
}

type OneChange = { marker: string; token: string; token_id: string }

/** Each makes one change, so that the change is found in the audit by its token. */
async function tokensFor(project_id: string, name: string): Promise<OneChange[]> {
  const tokens: OneChange[] = []
  for (let at = 0; at < 10; at++) {
    const marker = `${name}-${at}`
    const wanted = { action: 'create', name: marker, scope: `project:${project_id}` }
    const { token, token_id } = await insist(booted, 'token', wanted)
    tokens.push({ marker, token, token_id })
  }
  return tokens
}

async function expectAudited(project_id: string, tokens: OneChange[]): Promise<void> {
  const command = 'cat /tmp/changes 2>/dev/null || true'
  const { stdout } = await insist(booted, 'container', { action: 'exec', project_id, command })
  const done = tokens.filter(({ marker }) => String(stdout).split('\n').includes(marker))
  const rows = await booted.query<{ token_id: string }>(
    `select token_id from audit where action = 'exec' and token_id = any($1)`,
    [done.map(({ token_id }) => token_id)],
  )
  console.info(`full disk: ${done.length} commands ran, ${rows.length} of them are in the audit`)
  expect(rows.map(({ token_id }) => token_id).sort()).toEqual(done.map(({ token_id }) => token_id).sort())
}

// Only root may mount a small disk.
test.runIf(root)(
  `a disk that a droid fills ${rounds} times loses nothing`,
  { timeout: rounds * 120_000 },
  async () => {
    const calm_id = await booted.project()
    const hostile_id = await booted.project()
    for (const project_id of [calm_id, hostile_id])
      await booted.ok('container', { action: 'start', project_id })
    for (let round = 0; round < rounds; round++) {
      const name = `disk-${round}`
      const spawn = { action: 'spawn', project_id: calm_id, prompt: numbered(name, 0.05), new_session: true }
      const { session_id } = await insist(booted, 'session', spawn)
      const tokens = await tokensFor(calm_id, name)
      const fill = 'dd if=/dev/zero of=fill bs=1M 2>&1; echo filled'
      await insist(booted, 'session', { ...spawn, project_id: hostile_id, prompt: fill })
      await until(async () => (await freeBytes()) < 1024 * 1024, {
        deadline_ms: 30_000,
        what: 'the disk is full',
      })
      const seen = await until(
        async () => {
          const now = await readiness()
          return now.status === 503 && now
        },
        { deadline_ms: 20_000, what: 'the server is not ready' },
      )
      expect(seen.text).toMatch(/disk/)
      // Each change is either made and recorded, or refused.
      const made: string[] = []
      const refusals: string[] = []
      // PostgreSQL goes on for as long as it has room in the files that it has.
      for (let at = 0; at < 500 && refusals.length < 20; at++) {
        const project = { name: uniqueName(), description: 'd'.repeat(2000), network: 'none' }
        await call(booted, 'project', { action: 'create', ...project }).then(
          () => made.push(project.name),
          (error: Error) => refusals.push(error.message),
        )
      }
      // In the container they need no room on that disk: only the record does.
      for (const { marker, token } of tokens)
        await rpc(booted.server.url, token, 'tools/call', {
          name: 'container',
          arguments: { action: 'exec', project_id: calm_id, command: `echo ${marker} >> /tmp/changes` },
        })
      console.info(`full disk: ${made.length} changes made, ${refusals.length} refused: ${refusals.at(-1)}`)
      for (const message of refusals) expect(message).toMatch(/"kind":"(unavailable|exhausted)"/)
      // The operator makes room.
      await rm(join(layoutOf(home).workspace(hostile_id, 'default'), 'fill'))
      await until(async () => (await readiness()).status === 200, {
        deadline_ms: 60_000,
        what: 'the server is ready again',
      })
      const { projects } = await insist(booted, 'project', { action: 'list', limit: 200 })
      const names = projects.map((project: { name: string }) => project.name)
      for (const project of made) expect(names).toContain(project)
      await expectAudited(calm_id, tokens)
      await insist(booted, 'container', {
        action: 'exec',
        project_id: calm_id,
        command: `touch stop-${name}`,
      })
      await until(
        async () => (await call(booted, 'session', { action: 'get', session_id })).status === 'idle',
        { deadline_ms: 60_000, what: 'the calm session comes to its end' },
      )
      const lines = expectNumbered(await allEvents(booted, session_id))
      console.info(`full disk: ${lines} lines of the calm session, each once`)
    }
  },
)
