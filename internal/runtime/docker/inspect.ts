// Reads the state of containers, networks and volumes from the engine.
import type Docker from 'dockerode'
import type { ContainerState, Runtime } from '../runtime.ts'
import type { Stage } from '../stage.ts'
import { unlessMissing } from './errors.ts'
import { labels, type Names } from './names.ts'

const mebibyte = 1024 * 1024

const statuses = ['created', 'running', 'paused', 'restarting', 'exited', 'dead'] as const

/** The engine's state `removing` is reported as `dead`: the container cannot be used. */
const statusOf = (engine: string): ContainerState['status'] =>
  statuses.find((status) => status === engine) ?? 'dead'

/** The engine reports an unset time as the year 1. */
const time = (at: string): string | null => (at.startsWith('0001-') ? null : at)

export function stateOf(info: Docker.ContainerInspectInfo): ContainerState {
  const status = statusOf(info.State.Status)
  const over = status === 'exited' || status === 'dead'
  return {
    id: info.Id,
    status,
    image: info.Config.Image,
    started_at: time(info.State.StartedAt),
    finished_at: time(info.State.FinishedAt),
    exit_code: over ? info.State.ExitCode : null,
    oom_killed: info.State.OOMKilled,
    memory_mb: Math.round((info.HostConfig.Memory ?? 0) / mebibyte),
    spec_hash: info.Config.Labels?.[labels.spec] ?? '',
  }
}

export function createInspect(docker: Docker, names: Names, stage: Stage) {
  const inspect: Runtime['inspect'] = async (project_id) => {
    const info = await unlessMissing(docker.getContainer(names.of(project_id)).inspect())
    return info && stateOf(info)
  }

  const writableBytes: Runtime['writableBytes'] = async (project_id) => {
    // The declared type has no options.
    const container = docker.getContainer(names.of(project_id)) as unknown as {
      inspect(options: { size: true }): Promise<{ SizeRw?: number }>
    }
    return (await unlessMissing(container.inspect({ size: true })))?.SizeRw ?? 0
  }

  const owned: Runtime['owned'] = async () => {
    const filters = names.filter
    const [containers, networks, volumes] = await Promise.all([
      docker.listContainers({ all: true, filters }),
      docker.listNetworks({ filters }),
      docker.listVolumes({ filters }),
    ])
    // Processes of upstreams may carry the label of a project, but are none of its containers.
    const of = ({ Labels }: { Labels?: Record<string, string> | null }) =>
      Labels?.[labels.upstream] === undefined ? (Labels?.[labels.project] ?? '') : ''
    return [
      ...containers.map((container) => ({
        project_id: of(container),
        kind: 'container' as const,
        status: statusOf(container.State),
        mounts: container.Mounts.map((mount) => stage.original(mount.Source)),
      })),
      ...networks.map((network) => ({ project_id: of(network), kind: 'network' as const })),
      ...(volumes.Volumes ?? []).map((volume) => ({ project_id: of(volume), kind: 'volume' as const })),
    ].filter(({ project_id }) => project_id !== '')
  }

  return { inspect, writableBytes, owned }
}
