// The MCP servers that agents start in a container: what one takes, that they end with their agents, and what a hostile
// droid can do to the one that all of them share.
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build } from 'esbuild'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'

let booted: Booted
let seen: Answer
const count = 10

beforeAll(async () => {
  booted = await boot({ config: { log: { level: 'warn' } } })
  const project_id = await booted.project()
  const workspace = layoutOf(booted.server.home).workspace(project_id, 'default')
  await booted.ok('container', { action: 'start', project_id })
  const { outputFiles } = await build({
    entryPoints: [join(import.meta.dirname, '../../agents/mcp-sessions-droid.ts')],
    bundle: true,
    write: false,
    platform: 'node',
    format: 'esm',
    banner: { js: "import{createRequire as make}from'node:module';const require=make(import.meta.url);" },
  })
  await writeFile(join(workspace, 'sessions.mjs'), outputFiles[0]!.contents)
  const { session_id } = await booted.ok('session', {
    action: 'spawn',
    project_id,
    droid: 'shell',
    prompt: `/opt/oubliette/node sessions.mjs ${count} seen.json`,
    new_session: true,
    api_scope: `project:${project_id}`,
    wait_seconds: 50,
  })
  const { events } = await booted.ok('session', {
    action: 'events',
    session_id,
    wait_seconds: 50,
    since_index: -1,
  })
  seen = JSON.parse(
    await readFile(join(workspace, 'seen.json'), 'utf8').catch(() => {
      throw new Error(`the droid did not finish: ${JSON.stringify(events).slice(-3000)}`)
    }),
  )
}, 120_000)
afterAll(() => booted?.stop())

type Memory = { rss: number; pss: number }
const worst = (sessions: Memory[], of: keyof Memory) => Math.max(...sessions.map((one) => one[of])) / 1024

test('takes no more than 15 MiB of a session', () => {
  const { together, alone } = seen
  expect(worst(together.sessions, 'rss')).toBeLessThan(15)
  expect(together.shared.rss / 1024 / count + worst(together.sessions, 'rss')).toBeLessThan(
    worst(alone.sessions, 'rss'),
  )
})

test('ends with its agent, also when either was killed, and the others go on', () => {
  expect(seen).toMatchObject({
    closed_is_gone: true,
    killed_is_gone: true,
    orphan_is_gone: true,
    others_work: true,
  })
})

test('serves the others while a droid floods what they share', () => {
  expect(seen).toMatchObject({
    endless_is_closed: true,
    under_attack: { works: true },
    same_processes: true,
    supervisor_lives: true,
  })
})

test('gives nothing without a key', () => {
  expect(seen.wrong_key).toContain('"error"')
  expect(seen.wrong_key).not.toContain('inputSchema')
})

test('works again after the shared process was killed', () => {
  expect(seen).toMatchObject({ works_after_crash: true, new_process: true })
})
