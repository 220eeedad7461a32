// `./oubliette down`: stops the server of this home with SIGTERM, then with SIGKILL. Containers and their sessions keep
// running unless --all is given; the next server reattaches to them.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'
import { homeHolder } from '../../../internal/home-lock.ts'
import { stopEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { type Command, options } from '../command.ts'
import { settings } from '../settings.ts'
import { engineOf } from '../setup/runtime.ts'
import { assertOurs } from './daemon.ts'

const grace_seconds = 10

const say = (text: string) => process.stdout.write(`${text}\n`)

async function gone(home: string, pid: number, deadline_ms: number): Promise<boolean> {
  const deadline = performance.now() + deadline_ms
  while (performance.now() < deadline) {
    if (homeHolder(home)?.pid !== pid) return true
    await sleep(50)
  }
  return false
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code === 'ESRCH') return
    throw new Fault('forbidden', `cannot stop process ${pid}: ${code}`, {
      hint: 'run this command as the user of the server',
      cause: error,
    })
  }
}

/** Uses the engine directly, because the server may not be running. The next server restarts the containers it needs. */
async function stopContainers(config: Settings): Promise<void> {
  const file = join(config.home, 'instance-id')
  if (!existsSync(file)) return
  const runtime = await engineOf(config, readFileSync(file, 'utf8').trim())
  const running = (await runtime.owned()).filter(
    ({ kind, status }) => kind === 'container' && status === 'running',
  )
  await Promise.all(running.map(({ project_id }) => runtime.stop(project_id, grace_seconds)))
  await runtime.sweepProcesses()
  say(`Stopped ${running.length} container${running.length === 1 ? '' : 's'}.`)
}

/** Returns whether a server was running. */
async function stopServer(config: Settings): Promise<boolean> {
  const holder = homeHolder(config.home)
  const own_database = config.database_url === undefined
  if (!holder) {
    // A killed server leaves its embedded database running.
    const left = own_database && (await stopEmbedded(config.home))
    say(left ? 'No server is running. Stopped its embedded database.' : 'No server is running.')
    return false
  }
  assertOurs(holder.pid, config.home)
  signal(holder.pid, 'SIGTERM')
  if (await gone(config.home, holder.pid, (config.config.shutdown_seconds + 15) * 1000)) {
    say('Server stopped.')
    return true
  }
  signal(holder.pid, 'SIGKILL')
  if (!(await gone(config.home, holder.pid, 5000)))
    throw new Fault('timeout', `the server (process ${holder.pid}) is still running after SIGKILL`)
  if (own_database) await stopEmbedded(config.home)
  say('Server killed: it did not stop in time.')
  return true
}

async function run(args: string[]): Promise<undefined> {
  const { values } = options(args, { all: { type: 'boolean', default: false } })
  const config = settings()
  const stopped = await stopServer(config)
  if (values.all) await stopContainers(config)
  else if (stopped) say('Containers keep running. Run "./oubliette down --all" to stop them.')
}

export const down: Command = {
  about: 'Stop the server',
  usage: '[OPTIONS]',
  details:
    'Containers and their sessions keep running, and the next server reattaches to them, unless --all is given.',
  options: [['--all', 'Stop the containers as well']],
  examples: ['./oubliette down', './oubliette down --all'],
  run,
}
