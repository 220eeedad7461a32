// Stdio upstreams in hardened containers: what they can do, and that nothing of them is left.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProcessSpec } from '../../../internal/runtime/runtime.ts'
import { createUpstreams } from '../../../internal/upstream/upstreams.ts'
import {
  createRuntime,
  docker,
  filesystemCommand,
  hostileCommand,
  processSpec,
  silent,
  upstreamImage,
} from '../../fixtures/upstream/container.ts'
import { options, textOf } from '../../fixtures/upstream/options.ts'
import { specOf } from '../../fixtures/upstream/servers.ts'
import { removeInstance } from '../../harness/docker.ts'
import { until } from '../../harness/wait.ts'

const { runtime, instance } = createRuntime()
const upstreams = createUpstreams({ log: silent, version: '0.0.0' })
const signal = new AbortController().signal
let image: string
beforeAll(async () => {
  image = await upstreamImage(runtime)
}, 300_000)
afterAll(async () => {
  await upstreams.close()
  await removeInstance(instance)
})

const filters = { label: [`oubliette.instance=${instance}`] }
const left = async () => ({
  containers: (await docker.listContainers({ all: true, filters })).length,
  networks: (await docker.listNetworks({ filters })).length,
})
const nothing = { containers: 0, networks: 0 }

const open = (command: string[], more: Partial<ProcessSpec> = {}) =>
  runtime.openProcess(processSpec(image, command, more), signal)

async function run(script: string, more: Partial<ProcessSpec> = {}) {
  const process = await open(['bash', '-c', script], more)
  process.stdin.end()
  const [stdout, stderr, ended] = await Promise.all([
    text(process.stdout),
    text(process.stderr),
    process.ended,
  ])
  return { stdout, stderr, ...ended }
}

describe('a program in a container', () => {
  it('has its streams apart, and its exit code', async () => {
    const process = await open(['bash', '-c', 'cat; echo words >&2; exit 5'])
    process.stdin.end('hello\n'.repeat(10_000))
    const [stdout, stderr] = await Promise.all([text(process.stdout), text(process.stderr)])
    expect(stdout).toBe('hello\n'.repeat(10_000))
    expect(stderr).toBe('words\n')
    expect(await process.ended).toEqual({ exit_code: 5, reason: 'it ended with exit code 5' })
    expect(await left()).toEqual(nothing)
  })

  it('is hardened: no root, no capabilities, no new privileges, a read-only root, no network', async () => {
    const { stdout } = await run(`
      id -u
      grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t'
      touch /etc/x 2>/dev/null && echo writable || echo read-only
      touch /tmp/x && echo scratch
      echo $(ls /sys/class/net)
      ls /var/run/docker.sock 2>/dev/null || echo no-socket`)
    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => line.trim()),
    ).toEqual([
      '1000',
      'CapEff:0000000000000000',
      'CapBnd:0000000000000000',
      'NoNewPrivs:1',
      'read-only',
      'scratch',
      'lo',
      'no-socket',
    ])
  })

  it('is limited in processes and memory, and says why it was killed', async () => {
    const forks = await run(
      `exec node -e '
        const { spawn } = require("node:child_process")
        for (let n = 0; n < 40; n++) spawn("sleep", ["1"]).on("error", (error) => console.log(error.code))'`,
      { pids: 24 },
    )
    expect(forks.stdout).toContain('EAGAIN')
    const eater = await run(`exec node -e 'const kept = []; for (;;) kept.push(Buffer.alloc(1e7, 1))'`, {
      memory_mb: 64,
    })
    expect(eater).toMatchObject({ exit_code: 137, reason: expect.stringContaining('memory') })
  })

  it('with a network of its own gets it, and leaves none', async () => {
    const process = await open(['bash', '-c', 'ls /sys/class/net | tr "\\n" " "; cat'], {
      network: 'internal',
    })
    const [chunk] = (await once(process.stdout, 'data')) as [Buffer]
    expect(String(chunk)).toContain('eth0')
    expect(await left()).toEqual({ containers: 1, networks: 1 })
    expect(await runtime.owned()).toEqual([])
    await process.kill()
    expect(await left()).toEqual(nothing)
  })

  it('that belongs to a project is not taken for its container, and ends with the project', async () => {
    const project_id = '11111111-2222-3333-4444-555555555555'
    const process = await open(['cat'], { project_id })
    expect(await runtime.owned()).toEqual([])
    expect(await runtime.inspect(project_id)).toBeUndefined()
    await runtime.stop(project_id, 0)
    expect((await left()).containers).toBe(1)
    await runtime.remove(project_id)
    expect(await process.ended).toMatchObject({ exit_code: 137 })
    expect(await left()).toEqual(nothing)
  })

  it('that is not there, or has no image, is a clear error and leaves nothing', async () => {
    expect(await run('exec /no/such/program')).toMatchObject({
      exit_code: 127,
      reason: expect.stringContaining('not found'),
    })
    const missing = await open(['/no/such/program'])
    expect(await missing.ended).toMatchObject({ exit_code: 127 })
    await expect(open(['cat'], { image: 'no/such:image' })).rejects.toMatchObject({ kind: 'not_found' })
    await expect(open(['cat'], { user: '0:0' })).rejects.toMatchObject({ kind: 'invalid' })
    expect(await left()).toEqual(nothing)
  })

  it('does not fill memory when its output is not read', async () => {
    const process = await open(['bash', '-c', 'yes $(printf %01000d 0)'])
    await once(process.stdout, 'readable')
    const before = globalThis.process.memoryUsage().rss
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    expect(globalThis.process.memoryUsage().rss - before).toBeLessThan(50 * 1024 * 1024)
    await process.kill()
  })
})

describe('a server that dies', () => {
  /** Opens a process with the same instance and is killed; resolves when its container runs. */
  async function orphan(command: string[]): Promise<void> {
    const script = `
      const { createRuntime, processSpec } = await import(${JSON.stringify(join(import.meta.dirname, '../../fixtures/upstream/container.ts'))})
      const { runtime } = createRuntime(${JSON.stringify(instance)})
      const open = await runtime.openProcess(processSpec(${JSON.stringify(image)}, ${JSON.stringify(command)}), new AbortController().signal)
      console.log('open')
      setInterval(() => open, 1000)`
    const server = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    try {
      await once(server.stdout, 'data')
      expect((await left()).containers).toBe(1)
    } finally {
      server.kill('SIGKILL')
    }
    await once(server, 'exit')
  }

  it('takes its containers along', async () => {
    await orphan(hostileCommand('calls'))
    await until(async () => (await left()).containers === 0, { what: 'the container is gone' })
  })

  it('leaves one that ignores the end of stdin, which the sweep of the next server removes', async () => {
    await orphan(hostileCommand('undying'))
    await new Promise((resolve) => setTimeout(resolve, 1_000))
    expect((await left()).containers).toBe(1)
    const living = await open(['cat'])
    expect(await runtime.sweepProcesses()).toBe(1)
    expect((await left()).containers).toBe(1)
    await living.kill()
    expect(await left()).toEqual(nothing)
  })
})

describe('upstreams in containers', () => {
  const configure = (command: string[], more: Partial<ProcessSpec> = {}) => {
    const spec = specOf({
      kind: 'stdio',
      start: (one) => runtime.openProcess(processSpec(image, command, more), one),
    })
    upstreams.configure(spec)
    return spec.id
  }

  it('server-filesystem reads and writes in its scratch directory', async () => {
    const id = configure(filesystemCommand('/tmp'))
    const { tools } = await until(() => upstreams.discover(id), { what: 'discovered', deadline_ms: 30_000 })
    expect(tools.map(({ name }) => name)).toEqual(expect.arrayContaining(['read_text_file', 'write_file']))
    const call = (tool: string, args: Record<string, unknown>) =>
      upstreams.call(id, { tool, arguments: args }, options())
    await call('write_file', { path: '/tmp/a.txt', content: 'hello' })
    expect(textOf(await call('read_text_file', { path: '/tmp/a.txt' }))).toBe('hello')
    expect(textOf(await call('read_text_file', { path: '/etc/passwd' }))).toContain('Access denied')
    await upstreams.remove(id)
    expect(await left()).toEqual(nothing)
  })

  it('children that a server leaks end with its container', async () => {
    const id = configure(hostileCommand('calls'))
    await upstreams.call(id, { tool: 'leak', arguments: { bare: true } }, options())
    await upstreams.restart(id)
    expect(await left()).toEqual(nothing)
  })

  it('one that ignores stdin and signals ends with its connection', async () => {
    const id = configure(hostileCommand('undying'))
    await upstreams.call(id, { tool: 'late', arguments: { ms: 1 } }, options())
    await upstreams.remove(id)
    expect(await left()).toEqual(nothing)
  })

  const cycles = Number(process.env.OUBLIETTE_TEST_UPSTREAM_CYCLES ?? 6)
  it(
    `after ${cycles} starts, crashes and stops nothing is left`,
    async () => {
      const id = configure(hostileCommand('calls'))
      for (let cycle = 0; cycle < cycles; cycle++) {
        await upstreams.call(id, { tool: 'leak', arguments: {} }, options())
        if (cycle % 2 === 0)
          await upstreams.call(id, { tool: 'crash', arguments: {} }, options()).catch(() => undefined)
        await upstreams.restart(id)
      }
      await upstreams.remove(id)
      await until(async () => (await left()).containers === 0, { what: 'nothing is left' })
      expect(await left()).toEqual(nothing)
    },
    60_000 + cycles * 5_000,
  )
})
