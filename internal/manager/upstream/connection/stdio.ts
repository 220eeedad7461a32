// Starts stdio servers: each in a hardened container of its own with the limits of its project, or, only where mcp-servers.json
// says so, as a process of this host.
import { join } from 'node:path'
import type { Config } from '../../../config/load.ts'
import { Fault } from '../../../fault.ts'
import { defaultWorkspace } from '../../../ids.ts'
import type { Log, Secret } from '../../../log.ts'
import { createHostProcesses } from '../../../runtime/host-process.ts'
import type { Runtime } from '../../../runtime/runtime.ts'
import type { Store } from '../../../store/open.ts'
import type { UpstreamRow } from '../../../store/rows/upstream/upstreams.ts'
import { effectiveLimits } from '../../project/projects.ts'
import { requireProject } from '../../project/require.ts'
import { containerPaths, type Layout } from '../../workspace/layout.ts'
import type { StartStdio } from './spec.ts'

/** By the program: most servers are packages of npm. */
const typeFor = (command: string): string => (/^(uvx?|python3?|pipx?)$/.test(command) ? 'python' : 'node')

/** HOME of the program; a file system in memory. */
const temporary = '/tmp'

export function createStartStdio(deps: {
  home: string
  config: Config
  store: Store
  runtime: Runtime
  layout: Layout
  owner: { uid: number; gid: number }
  log: Log
}): { start: StartStdio; sweep(): Promise<void> } {
  const { runtime, config } = deps
  const host = createHostProcesses(join(deps.home, 'upstream-processes'), deps.log)

  async function imageOf({ name, settings }: UpstreamRow, signal: AbortSignal): Promise<string> {
    const wanted = settings.image ?? typeFor(settings.command ?? '')
    const found = await runtime.resolveImage(wanted)
    if (found) return found
    const isType = (await runtime.images()).some(({ type }) => type === wanted)
    if (!isType)
      throw new Fault('not_found', `the engine has no image "${wanted}" for MCP server "${name}"`, {
        hint: 'load the image, or set options.image to one that the engine has',
      })
    return (await runtime.build(wanted, { signal })).reference
  }

  const revealed = (env: Record<string, Secret>): Record<string, string> =>
    Object.fromEntries(Object.entries(env).map(([key, value]) => [key, value.reveal()]))

  async function inContainer(row: UpstreamRow, env: Record<string, Secret>, signal: AbortSignal) {
    const { settings, project_id } = row
    const project = project_id === null ? undefined : await requireProject(deps.store.db, project_id)
    const limits = effectiveLimits(config, project ?? { limits: {} })
    const { workspace } = settings
    const isMounted = project_id !== null && workspace !== undefined
    return await runtime.openProcess(
      {
        upstream_id: row.id,
        ...(project_id === null ? {} : { project_id }),
        image: await imageOf(row, signal),
        command: [settings.command!, ...(settings.args ?? [])],
        user: `${deps.owner.uid}:${deps.owner.gid}`,
        env: { HOME: temporary, LANG: 'C.UTF-8', ...revealed(env) },
        mounts: isMounted
          ? [
              {
                source: deps.layout.workspaces(project_id),
                target: containerPaths.workspaces,
                read_only: workspace === 'read',
              },
            ]
          : [],
        working_dir: isMounted ? `${containerPaths.workspaces}/${defaultWorkspace}` : temporary,
        network: settings.network ?? project?.network ?? 'open',
        dns_servers: config.dns_servers,
        memory_mb: limits.memory_mb,
        cpus: limits.cpus,
        pids: limits.pids,
        file_mb: limits.disk_mb,
      },
      signal,
    )
  }

  return {
    start: async (row, env, signal) => {
      const { command, args = [], run } = row.settings
      if (run === 'process' && row.source === 'file')
        return await host.open({ command: [command!, ...args], env: revealed(env) }, signal)
      return await inContainer(row, env, signal)
    },
    async sweep(): Promise<void> {
      const ended = await host.sweep()
      if (ended > 0) deps.log.info('ended programs of an earlier server process', { programs: ended })
    },
  }
}
