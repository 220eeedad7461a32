// Converts a spec to the engine's options. Pure, and the only place that defines a container's privileges: no container has any
// that are not granted here.
import { posix } from 'node:path'
import type { ContainerCreateOptions } from 'dockerode'
import { Fault } from '../../../fault.ts'
import type { ContainerSpec, ProcessSpec } from '../../runtime.ts'
import { labels, type Names, specHash } from '../names.ts'

const mebibyte = 1024 * 1024

/** Sockets of engines; where `/var/run` is a link the same file has both names. */
const engineSockets = (socket: string | undefined): string[] =>
  [...(socket ? [socket] : []), '/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock']
    .flatMap((path) => [path, path.replace(/^\/var\/run\//, '/run/')])
    .map((path) => posix.normalize(path))

function checkMount(source: string, target: string, sockets: string[]): void {
  const refuse = (why: string) => new Fault('invalid', `cannot mount ${source} at ${target}: ${why}`)
  if (!posix.isAbsolute(source) || !posix.isAbsolute(target)) throw refuse('both paths must be absolute')
  const from = posix.normalize(source).replace(/(.)\/+$/, '$1')
  const inside = from === '/' ? '/' : `${from}/`
  if (sockets.some((socket) => socket === from || socket.startsWith(inside)))
    throw refuse("the engine's socket must not be mounted")
  if (/^\/(?:(?:proc|sys|dev)(?:\/|$)|$)/.test(posix.normalize(target)))
    throw refuse('this target is reserved')
}

function checkUser(user: string): void {
  const uid = /^(\d+):\d+$/.exec(user)?.[1]
  if (uid === undefined || Number(uid) === 0)
    throw new Fault('invalid', `user "${user}" must be "uid:gid" of a user other than root`)
}

/** The dummy address of RFC 7600: no host has it. */
const unassigned = '192.0.0.8'

/**
 * An engine whose own resolver is on loopback would answer containers of internal networks from the host, and so carry
 * their queries to the internet (CVE-2024-29018). A server of their own makes it ask from their network, where nothing is.
 */
function nameServers({ network, dns_servers }: ContainerSpec): { Dns?: string[]; DnsOptions?: string[] } {
  // A lookup fails at once instead of after ten seconds.
  if (network === 'internal') return { Dns: [unassigned], DnsOptions: ['timeout:1', 'attempts:1'] }
  return network === 'open' && dns_servers.length > 0 ? { Dns: dns_servers } : {}
}

type Context = { names: Names; engine_cpus: number; engine_socket: string | undefined; network: string }

/** The same privileges as a project's container, and nothing that outlives it. */
export function processOptions(
  { upstream_id, project_id, ...spec }: ProcessSpec,
  key: string,
  context: Context,
): ContainerCreateOptions {
  const { HostConfig, ...base } = createOptions({ ...spec, project_id: key, read_only_root: true }, context)
  return {
    ...base,
    Labels: {
      [labels.instance]: context.names.instance,
      [labels.upstream]: upstream_id,
      ...(project_id === undefined ? {} : { [labels.project]: project_id }),
    },
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    OpenStdin: true,
    // Ends its stdin when the connection of this process ends.
    StdinOnce: true,
    HostConfig: {
      ...HostConfig,
      AutoRemove: true,
      // Its output is messages, with what they carry.
      LogConfig: { Type: 'none', Config: {} },
    },
  }
}

export function createOptions(spec: ContainerSpec, context: Context): ContainerCreateOptions {
  const { names, network } = context
  checkUser(spec.user)
  if (spec.command.length === 0) throw new Fault('invalid', 'missing command of the container')
  const sockets = engineSockets(context.engine_socket)
  for (const { source, target } of spec.mounts) checkMount(source, target, sockets)
  const memory = spec.memory_mb * mebibyte
  // Pages of a tmpfs count as the container's memory; half of it leaves room for the processes.
  const scratch = `rw,exec,nosuid,nodev,mode=1777,size=${Math.max(32, Math.floor(spec.memory_mb / 2))}m`
  return {
    name: names.of(spec.project_id),
    Image: spec.image,
    Labels: { ...names.labels(spec.project_id), [labels.spec]: specHash(spec) },
    // Both, so that nothing of the image's own start is left.
    Entrypoint: spec.command.slice(0, 1),
    Cmd: spec.command.slice(1),
    Env: Object.entries(spec.env).map(([name, value]) => `${name}=${value}`),
    User: spec.user,
    WorkingDir: spec.working_dir,
    AttachStdin: false,
    OpenStdin: false,
    Tty: false,
    HostConfig: {
      Init: true,
      Privileged: false,
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges'],
      ReadonlyRootfs: spec.read_only_root,
      // The engine mounts by depth: what is mounted below these comes after them.
      ...(spec.read_only_root
        ? { Tmpfs: { '/tmp': scratch, '/run': 'rw,nosuid,nodev,noexec,mode=1777,size=16m' } }
        : {}),
      Mounts: spec.mounts.map(({ source, target, read_only }) => ({
        Type: 'bind' as const,
        Source: source,
        Target: target,
        ReadOnly: read_only,
        BindOptions: { Propagation: 'rprivate' as const },
      })),
      NetworkMode: network,
      ...nameServers(spec),
      IpcMode: 'private',
      PublishAllPorts: false,
      Memory: memory,
      MemorySwap: memory,
      // More than the engine has is an error there, though it means the same.
      NanoCpus: Math.round(Math.min(spec.cpus, context.engine_cpus) * 1e9),
      PidsLimit: spec.pids,
      Ulimits: [
        { Name: 'nofile', Soft: 16_384, Hard: 16_384 },
        { Name: 'core', Soft: 0, Hard: 0 },
        { Name: 'fsize', Soft: spec.file_mb * mebibyte, Hard: spec.file_mb * mebibyte },
      ],
      LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
      // The reconciler decides what runs; the engine must not restart containers by itself.
      RestartPolicy: { Name: 'no' },
    },
  }
}
