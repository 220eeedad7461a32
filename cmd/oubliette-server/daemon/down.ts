// `./oubliette down`: ends the server of this home, gently and then not. Containers and the sessions in them run on
// unless --all is given; the next server finds them again.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'
import { homeHolder } from '../../../internal/home-lock.ts'
import { stopEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { type Command, options, settings } from '../command.ts'
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
    throw new Fault('forbidden', `process ${pid} cannot be stopped: ${code}`, {
      hint: 'it belongs to another user',
      cause: error,
    })
  }
}

/** Without the server, so that it works whether or not one was running. The next one starts again what is wanted. */
async function stopContainers(config: Settings): Promise<void> {
  const file = join(config.home, 'instance-id')
  if (!existsSync(file)) return
  const runtime = await engineOf(config, readFileSync(file, 'utf8').trim())
  const running = (await runtime.owned()).filter(
    ({ kind, status }) => kind === 'container' && status === 'running',
  )
  await Promise.all(running.map(({ project_id }) => runtime.stop(project_id, grace_seconds)))
  say(`${running.length} container${running.length === 1 ? '' : 's'} stopped.`)
}

/** True if there was one. */
async function stopServer(config: Settings): Promise<boolean> {
  const holder = homeHolder(config.home)
  const own_database = config.database_url === undefined
  if (!holder) {
    // A server that was killed leaves its database running for the next one; nobody wants it now.
    const left = own_database && (await stopEmbedded(config.home))
    say(left ? 'No server was running; its database was, and is stopped.' : 'No server is running.')
    return false
  }
  assertOurs(holder.pid, config.home)
  signal(holder.pid, 'SIGTERM')
  if (await gone(config.home, holder.pid, (config.config.shutdown_seconds + 15) * 1000)) {
    say('The server is stopped.')
    return true
  }
  signal(holder.pid, 'SIGKILL')
  if (!(await gone(config.home, holder.pid, 5000)))
    throw new Fault('timeout', `the server (process ${holder.pid}) does not end`)
  if (own_database) await stopEmbedded(config.home)
  say('The server did not end in time and was killed.')
  return true
}

async function run(args: string[]): Promise<undefined> {
  const { values } = options(args, { all: { type: 'boolean', default: false } })
  const config = settings()
  const stopped = await stopServer(config)
  if (values.all) await stopContainers(config)
  else if (stopped) say('Containers run on; ./oubliette down --all stops them too.')
}

export const down: Command = {
  about: 'Stop the server of this home. Containers and the sessions in them run on.',
  usage: '[--all]',
  help: '  --all  Stop the containers too.',
  run,
}
