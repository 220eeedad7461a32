// A server for the benchmarks of sessions: a home and a PostgreSQL of its own, limits that are not what is measured, and
// one project whose container runs.
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import Docker from 'dockerode'
import { createLog } from '../../internal/log.ts'
import { startEmbedded } from '../../internal/store/embedded/embedded.ts'
import { removeInstance } from '../../test/harness/docker.ts'
import { freePort } from '../../test/harness/free-port.ts'
import { resultIn, rpc } from '../../test/harness/rpc.ts'

const main = resolve(import.meta.dirname, '../../cmd/oubliette-server/main.ts')
const most = 1_000_000
const config = {
  rate: { per_token_per_second: most, per_token_burst: most },
  limits: { max_active_sessions: 1000, max_spawns_per_minute: 10_000, memory_mb: 16_384, pids: 4096 },
  log: { level: 'warn' },
}

export type Answer = {
  session_id: string
  project_id: string
  last_index: number
  status: string
  reason: string | null
  finished: boolean
  hibernated: boolean
  sessions: Answer[]
  stdout: string
}

export type BenchServer = {
  url: string
  token: string
  database_url: string
  pid: number
  project_id: string
  call(tool: string, args: object): Promise<Answer>
  spawn(prompt: string, more?: object): Promise<Answer>
  container(): Promise<Docker.Container>
  /** Of the server and of the client in the container, since the last time. */
  peakMegabytes(): Promise<{ server: number; client: number }>
}

const peak = (status: string) => Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024

export async function startServer(
  stack: AsyncDisposableStack,
  more: { config?: object; project?: object } = {},
): Promise<BenchServer> {
  const home = await mkdtemp(join(tmpdir(), 'oub-bench-'))
  stack.defer(() => rm(home, { recursive: true, force: true }))
  const embedded = await startEmbedded({ home, log: createLog({ level: 'warn' }) })
  stack.defer(() => embedded.stop())
  const database_url = embedded.url.reveal()
  await writeFile(join(home, 'oubliette.jsonc'), JSON.stringify({ ...config, ...more.config }), {
    mode: 0o600,
  })
  const token = `oub_${randomBytes(32).toString('hex')}`
  const address = `127.0.0.1:${await freePort()}`
  const flags = process.env.BENCH_NODE_FLAGS?.split(' ') ?? []
  const child = spawn(process.execPath, [...flags, main, 'serve'], {
    stdio: ['ignore', 2, 2],
    env: {
      ...process.env,
      OUBLIETTE_HOME: home,
      OUBLIETTE_ADDRESS: address,
      OUBLIETTE_ADMIN_TOKEN: token,
      DATABASE_URL: database_url,
    },
  })
  stack.defer(async () => {
    const gone = once(child, 'exit')
    child.kill('SIGTERM')
    await gone
    await removeInstance((await readFile(join(home, 'instance-id'), 'utf8')).trim())
  })
  const url = `http://${address}`
  for (let left = 300; !(await fetch(`${url}/readyz`).catch(() => undefined))?.ok; left--) {
    if (left === 0 || child.exitCode !== null) throw new Error('the server did not become ready')
    await pause(100)
  }
  const call = async (name: string, args: object): Promise<Answer> => {
    const reply = await rpc(url, token, 'tools/call', { name, arguments: args as Record<string, unknown> })
    const result = resultIn(reply)
    if (result.isError) throw new Error(`${name}: ${JSON.stringify(result.structuredContent)}`)
    return result.structuredContent as Answer
  }
  const { project_id } = await call('project', {
    action: 'create',
    name: 'bench',
    network: 'none',
    ...more.project,
  })
  await call('container', { action: 'start', project_id })
  const container = async () => {
    const found = await new Docker().listContainers({
      filters: { label: [`oubliette.project=${project_id}`] },
    })
    return new Docker().getContainer(found[0]!.Id)
  }
  return {
    url,
    token,
    database_url,
    pid: child.pid!,
    project_id,
    call,
    spawn: (prompt, more = {}) =>
      call('session', { action: 'spawn', project_id, prompt, new_session: true, wait_seconds: 0, ...more }),
    container,
    async peakMegabytes() {
      const server = peak(await readFile(`/proc/${child.pid}/status`, 'utf8'))
      await writeFile(`/proc/${child.pid}/clear_refs`, '5').catch(() => undefined)
      const script =
        'for p in /proc/[0-9]*; do if tr "\\0" " " < $p/cmdline | grep -q "[ ]supervise"; then grep VmHWM $p/status; fi; done'
      const { stdout } = await call('container', { action: 'exec', project_id, command: script })
      return { server, client: Math.max(...String(stdout).split('\n').filter(Boolean).map(peak)) }
    },
  }
}

export const median = (numbers: number[]): number =>
  numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN

/** One line of figures; `aim` says what the ratio should be. */
export function report(
  what: string,
  figures: string,
  ratio?: { is: number; aim: string; met: boolean },
): void {
  const verdict = ratio
    ? `  ratio ${ratio.is.toFixed(3)} (aim ${ratio.aim}: ${ratio.met ? 'met' : 'missed'})`
    : ''
  process.stdout.write(`${what.padEnd(44)} ${figures}${verdict}\n`)
}
