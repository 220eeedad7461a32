// The real daemon as a process of its own, on a home, a port and a database of its own.
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chown, mkdir, mkdtemp, readdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { stagePath } from '../../internal/runtime/stage.ts'
import { stopEmbedded } from '../../internal/store/embedded/embedded.ts'
import { recordCalls } from './calls.ts'
import { cloneDatabase } from './database.ts'
import { removeInstance } from './docker.ts'
import { freePort } from './free-port.ts'
import { until } from './wait.ts'

const checkout = resolve(import.meta.dirname, '../..')
const main = join(checkout, 'cmd/oubliette-server/main.ts')
const readySeconds = 60
const logCharacters = 4_000_000

export type BootOptions = {
  config?: Record<string, unknown>
  env?: Record<string, string>
  /** Its own PostgreSQL instead of a cloned database. */
  embedded?: boolean
  database_url?: string
  home?: string
  /** Run by this user instead of by ours; the home is given to it. */
  run_as?: { name: string; uid: number; gid: number }
}

export type TestServer = {
  url: string
  home: string
  admin_token: string
  /** Undefined when the server has its own PostgreSQL. */
  database_url: string | undefined
  log(): string
  pid(): number
  /** Resolves when the process is gone. */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** On the same home, port and database; `signal` says how the running one ends. */
  restart(signal?: NodeJS.Signals): Promise<void>
  stop(): Promise<void>
}

/** The daemon's environment is ours without what would make it another daemon. */
function environment(own: Record<string, string>): NodeJS.ProcessEnv {
  const rest = Object.entries(process.env).filter(
    ([name]) => !/^(OUBLIETTE_|DATABASE_URL$|TEST_DATABASE_URL$|VITEST|NODE_OPTIONS$)/.test(name),
  )
  return { ...Object.fromEntries(rest), ...own }
}

/** Started daemons die with the test process, also when that is interrupted. */
const running = new Set<ChildProcess>()
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

function createDaemon(env: NodeJS.ProcessEnv, url: string, run_as: BootOptions['run_as']) {
  let child: ChildProcess | undefined
  let said = ''
  const hear = (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-logCharacters)
  }

  async function start(): Promise<void> {
    const serve = [process.execPath, main, 'serve']
    // Node's own way to start a child as another user takes all its groups away, the engine's too.
    const [program = '', ...args] = run_as
      ? ['setpriv', '--reuid', run_as.name, '--regid', String(run_as.gid), '--init-groups', '--', ...serve]
      : serve
    const started = spawn(program, args, {
      cwd: checkout,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child = started
    running.add(started)
    started.once('exit', () => running.delete(started))
    started.stdout.on('data', hear)
    started.stderr.on('data', hear)
    const ready = async () => {
      if (started.exitCode !== null || started.signalCode !== null) return 'ended'
      const answer = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(5000) })
      const { missing } = (await answer.json()) as { missing?: string[] }
      // With a full disk it serves, and refuses some calls.
      return (answer.ok || missing?.join() === 'disk') && 'ready'
    }
    const outcome = await until(ready, {
      deadline_ms: readySeconds * 1000,
      what: 'the server is ready',
    }).catch((error: Error) => error.message)
    if (outcome === 'ready') return
    await kill('SIGKILL')
    throw new Error(`the server did not become ready (${outcome}); its log ends with\n${said.slice(-4000)}`)
  }

  async function kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill(signal)
    await ended
  }

  return { start, kill, log: () => said, pid: () => child?.pid ?? 0 }
}

/** A daemon that was killed leaves its mounts. */
async function removeStage(home: string): Promise<void> {
  const path = stagePath(home)
  if (!existsSync(path)) return
  for (const name of await readdir(path)) {
    // It may not be mounted any more.
    spawnSync('umount', ['-l', join(path, name)])
    await rmdir(join(path, name))
  }
  await rmdir(path)
}

const readIfThere = (path: string) =>
  readFile(path, 'utf8').then(
    (text) => text.trim(),
    () => undefined,
  )

export async function bootServer(options: BootOptions = {}): Promise<TestServer> {
  const home = options.home ?? (await mkdtemp(join(tmpdir(), 'oub-')))
  await mkdir(home, { recursive: true })
  const database = options.embedded || options.database_url ? undefined : await cloneDatabase()
  const database_url = options.database_url ?? database?.url
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const admin_token = options.env?.OUBLIETTE_ADMIN_TOKEN ?? `oub_${randomBytes(32).toString('hex')}`
  if (options.config)
    await writeFile(join(home, 'oubliette.jsonc'), JSON.stringify(options.config, null, 2), { mode: 0o600 })
  if (options.run_as) {
    const { uid, gid } = options.run_as
    await chown(home, uid, gid)
    if (options.config) await chown(join(home, 'oubliette.jsonc'), uid, gid)
  }
  const daemon = createDaemon(
    environment({
      OUBLIETTE_HOME: home,
      OUBLIETTE_ADDRESS: `127.0.0.1:${port}`,
      OUBLIETTE_ADMIN_TOKEN: admin_token,
      ...(database_url ? { DATABASE_URL: database_url } : {}),
      ...(options.run_as ? { HOME: home } : {}),
      ...options.env,
    }),
    url,
    options.run_as,
  )

  /** Each step is tried, also after one that failed. */
  async function clean(): Promise<void> {
    const instance_id = await readIfThere(join(home, 'instance-id'))
    const steps = [
      () => daemon.kill('SIGKILL'),
      () => stopEmbedded(home),
      () => removeStage(home),
      () => (database_url ? recordCalls(database_url) : undefined),
      () => (instance_id ? removeInstance(instance_id) : undefined),
      () => database?.drop(),
      // Unlike Node's own, it deletes trees that are deeper than a path can be long.
      () => (options.home ? undefined : void execFileSync('rm', ['-rf', home])),
    ]
    const problems: unknown[] = []
    for (const step of steps) {
      try {
        await step()
      } catch (error) {
        problems.push(error)
      }
    }
    if (problems.length > 0) throw new AggregateError(problems, 'the server could not be cleaned up')
  }

  try {
    await daemon.start()
  } catch (error) {
    await clean()
    throw error
  }
  return {
    url,
    home,
    admin_token,
    database_url,
    log: daemon.log,
    pid: daemon.pid,
    kill: daemon.kill,
    restart: async (signal = 'SIGTERM') => {
      await daemon.kill(signal)
      await daemon.start()
    },
    stop: async () => {
      await daemon.kill('SIGTERM')
      await clean()
    },
  }
}
