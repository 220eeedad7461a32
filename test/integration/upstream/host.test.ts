// Stdio upstreams as processes of the host: servers from npm, and that nothing of them is left.
import { mkdtemp, readdir, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { createLog } from '../../../internal/log.ts'
import { createHostProcesses } from '../../../internal/runtime/host-process.ts'
import { createUpstreams } from '../../../internal/upstream/upstreams.ts'
import { options, textOf } from '../../fixtures/upstream/options.ts'
import { filesystem, memory, sequentialThinking, specOf } from '../../fixtures/upstream/servers.ts'
import { until } from '../../harness/wait.ts'

const log = createLog({ write: () => undefined })
const directory = await realpath(await mkdtemp(join(tmpdir(), 'oub-upstream-host-')))
const records = join(directory, 'records')
const host = createHostProcesses(records, log)
const upstreams = createUpstreams({ log, version: '0.0.0' })
afterAll(async () => {
  await upstreams.close()
  await rm(directory, { recursive: true, force: true })
})

function configure(command: string[], env: Record<string, string> = {}): string {
  const spec = specOf({ kind: 'stdio', start: (signal) => host.open({ command, env }, signal) })
  upstreams.configure(spec)
  return spec.id
}
const call = (id: string, tool: string, args: Record<string, unknown>) =>
  upstreams.call(id, { tool, arguments: args }, options())

describe('servers from npm', () => {
  it('server-filesystem', async () => {
    const id = configure([process.execPath, filesystem, directory])
    await call(id, 'write_file', { path: join(directory, 'a.txt'), content: 'hello' })
    expect(textOf(await call(id, 'read_text_file', { path: join(directory, 'a.txt') }))).toBe('hello')
    expect(
      (await upstreams.discover(id)).tools.find(({ name }) => name === 'read_text_file')?.annotations,
    ).toMatchObject({
      readOnlyHint: true,
    })
  })

  it('server-memory', async () => {
    const id = configure([process.execPath, memory], { MEMORY_FILE_PATH: join(directory, 'memory.json') })
    const entities = [{ name: 'Ada', entityType: 'person', observations: ['counts'] }]
    await call(id, 'create_entities', { entities })
    expect(textOf(await call(id, 'search_nodes', { query: 'Ada' }))).toContain('counts')
  })

  it('server-sequential-thinking', async () => {
    const id = configure([process.execPath, sequentialThinking])
    const thought = { thought: 'first', thoughtNumber: 1, totalThoughts: 2, nextThoughtNeeded: true }
    expect(textOf(await call(id, 'sequentialthinking', thought))).toContain('"thoughtNumber": 1')
  })
})

const lives = (pid: number) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

const cycles = Number(process.env.OUBLIETTE_TEST_UPSTREAM_CYCLES ?? 6)
it(
  `after ${cycles} starts, crashes and stops no process is left, not even those that it leaked`,
  async () => {
    const hostile = join(import.meta.dirname, '../../fixtures/upstream/hostile/server.ts')
    const id = configure([process.execPath, hostile, 'calls'])
    const leaked: number[] = []
    for (let cycle = 0; cycle < cycles; cycle++) {
      leaked.push(Number(textOf(await call(id, 'leak', { bare: cycle % 3 === 0 }))))
      if (cycle % 2 === 0) await call(id, 'crash', {}).catch(() => undefined)
      await upstreams.restart(id)
    }
    await upstreams.close()
    expect(leaked).toHaveLength(cycles)
    for (const pid of leaked) await until(() => !lives(pid), { what: `process ${pid} is gone` })
    await until(async () => (await readdir(records)).length === 0, { what: 'no record is left' })
  },
  60_000 + cycles * 5_000,
)
