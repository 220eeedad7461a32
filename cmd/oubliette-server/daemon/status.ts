// `./oubliette status`: what can be said about the server of this home, also when there is none. Exit code 0 only when
// it is ready, so that scripts and health checks can ask it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Settings } from '../../../internal/config/load.ts'
import { messageOf } from '../../../internal/fault.ts'
import { homeHolder } from '../../../internal/home-lock.ts'
import { type Command, checkout, options, settings } from '../command.ts'
import { everyProject } from '../projects.ts'
import { endpoint } from '../tool-command/call.ts'
import { show } from '../tool-command/show.ts'
import { baseUrl, readiness } from './daemon.ts'

async function counts(config: Settings): Promise<Record<string, unknown>> {
  try {
    const projects = await everyProject(endpoint(config, baseUrl(config)))
    const running = projects.filter((project) => project.container.status === 'running').length
    return { projects: projects.length, containers_running: running }
  } catch (error) {
    return { projects: `unknown: ${messageOf(error)}` }
  }
}

async function run(args: string[]): Promise<number> {
  const { values } = options(args, { json: { type: 'boolean', default: false } })
  const config = settings()
  const url = baseUrl(config)
  const holder = homeHolder(config.home)
  const state = await readiness(url)
  const { version } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as { version: string }
  const report = {
    status: state?.ready ? 'ready' : state || holder ? 'not ready' : 'stopped',
    url,
    home: config.home,
    ...(holder ? { pid: holder.pid, started_at: holder.started_at } : {}),
    version,
    node: process.versions.node,
    ...(state ? { readyz: state.body } : {}),
    ...(state?.ready ? await counts(config) : {}),
  }
  process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : show(report).stdout)
  return state?.ready ? 0 : 1
}

export const status: Command = {
  about: 'What the server of this home is doing. The exit code is 0 when it is ready.',
  usage: '[--json]',
  help: '  --json  All of it as JSON.',
  run,
}
