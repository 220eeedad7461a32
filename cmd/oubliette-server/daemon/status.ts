// `./oubliette status`: the state of the server of this home. The exit code is 0 only if the server is ready, for scripts
// and health checks.
import type { Place } from '../../../internal/config/place.ts'
import { messageOf } from '../../../internal/fault.ts'
import { endpoint, listProjects } from '../client/call.ts'
import { type Command, options, place, version } from '../command.ts'
import { show } from '../tool-command/output/show.ts'
import { baseUrl, findServer, isRemote, misdirected } from './daemon.ts'

async function counts(config: Place): Promise<Record<string, unknown>> {
  try {
    const projects = await listProjects(endpoint(config, baseUrl(config)))
    const running = projects.filter((project) => project.container.status === 'running').length
    return { projects: projects.length, containers_running: running }
  } catch (error) {
    return { projects: `unknown: ${messageOf(error)}` }
  }
}

async function run(args: string[]): Promise<number> {
  const { values } = options(args, { json: { type: 'boolean', default: false } })
  const config = place()
  const url = baseUrl(config)
  const found = await findServer(config)
  const { holder } = found
  const isRelevant = found.is_ours || isRemote(found)
  const state = isRelevant ? found.state : undefined
  const other = isRelevant ? undefined : misdirected(config, found)
  const report = {
    status: state?.ready ? 'ready' : state || holder ? 'not ready' : 'stopped',
    url,
    home: config.home,
    ...(holder ? { pid: holder.pid, started_at: holder.started_at } : {}),
    version: version(),
    node: process.versions.node,
    // A server that is ready has nothing to add.
    ...(state && (values.json || !state.ready) ? { readyz: state.body } : {}),
    ...(state?.ready ? await counts(config) : {}),
  }
  process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : show(report).stdout)
  if (other) throw other
  return state?.ready ? 0 : 1
}

export const status: Command = {
  about: 'Show the status of the server',
  usage: '[OPTIONS]',
  details: 'The exit code is 0 if the server is ready, otherwise 1.',
  options: [['--json', 'Print the status as JSON']],
  examples: ['./oubliette status', './oubliette status --json'],
  run,
}
