import { describe, expect, it } from 'vitest'
import type { ContainerSpec, ProcessSpec } from '../../runtime.ts'
import { createNames, specHash } from '../names.ts'
import { createOptions, processOptions } from './options.ts'

const names = createNames('instance-1')
const spec: ContainerSpec = {
  project_id: '11111111-2222-3333-4444-555555555555',
  image: 'oubliette/base:1',
  command: ['/opt/client', 'supervise'],
  user: '1000:1000',
  env: { HOME: '/home/droid' },
  mounts: [
    { source: '/data/socket', target: '/run/oubliette', read_only: false },
    { source: '/data/client', target: '/opt', read_only: true },
  ],
  working_dir: '/workspace',
  network: 'none',
  memory_mb: 1024,
  cpus: 2,
  pids: 256,
  file_mb: 10,
  read_only_root: true,
  dns_servers: [],
}
const context = { names, engine_cpus: 8, engine_socket: '/var/run/docker.sock', network: 'none' }
const hostConfig = (over: Partial<ContainerSpec> = {}) =>
  createOptions({ ...spec, ...over }, context).HostConfig!

describe('create options', () => {
  it('grant nothing but what is written here', () => {
    expect(hostConfig()).toEqual({
      Init: true,
      Privileged: false,
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges'],
      ReadonlyRootfs: true,
      Tmpfs: {
        '/tmp': 'rw,exec,nosuid,nodev,mode=1777,size=512m',
        '/run': 'rw,nosuid,nodev,noexec,mode=1777,size=16m',
      },
      Mounts: [
        {
          Type: 'bind',
          Source: '/data/socket',
          Target: '/run/oubliette',
          ReadOnly: false,
          BindOptions: { Propagation: 'rprivate' },
        },
        {
          Type: 'bind',
          Source: '/data/client',
          Target: '/opt',
          ReadOnly: true,
          BindOptions: { Propagation: 'rprivate' },
        },
      ],
      NetworkMode: 'none',
      IpcMode: 'private',
      PublishAllPorts: false,
      Memory: 1024 * 1024 * 1024,
      MemorySwap: 1024 * 1024 * 1024,
      NanoCpus: 2e9,
      PidsLimit: 256,
      Ulimits: [
        { Name: 'nofile', Soft: 16_384, Hard: 16_384 },
        { Name: 'core', Soft: 0, Hard: 0 },
        { Name: 'fsize', Soft: 10_485_760, Hard: 10_485_760 },
      ],
      LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
      RestartPolicy: { Name: 'no' },
    })
  })

  it('label the container with its instance, its project and its spec, and leave nothing of the image to run', () => {
    const options = createOptions(spec, context)
    expect(options.Labels).toEqual({
      'oubliette.instance': 'instance-1',
      'oubliette.project': spec.project_id,
      'oubliette.spec': specHash(spec),
    })
    expect([options.Entrypoint, options.Cmd, options.User]).toEqual([
      ['/opt/client'],
      ['supervise'],
      '1000:1000',
    ])
  })

  it.each(['0:0', '0:1000', '00:1', 'root', 'root:root', '', '1000'])('refuse the user "%s"', (user) => {
    expect(() => hostConfig({ user })).toThrow('root')
  })

  it.each([
    '/var/run/docker.sock',
    '/run/docker.sock',
    '/var/run',
    '/run/',
    '/',
    '/var/../run',
    '/var/run/../run',
  ])("refuse to mount %s, which is or holds the engine's socket", (source) => {
    expect(() => hostConfig({ mounts: [{ source, target: '/x', read_only: true }] })).toThrow('socket')
  })

  it.each(['relative', '/', '/proc/x', '/sys', '/dev/../sys'])('refuse the target %s', (target) => {
    expect(() => hostConfig({ mounts: [{ source: '/data', target, read_only: true }] })).toThrow(
      'cannot mount',
    )
  })

  it('ask for no more processors than the engine has', () => {
    expect(hostConfig({ cpus: 64 }).NanoCpus).toBe(8e9)
  })
})

describe('name servers', () => {
  it('are those of the config on an open network, and none that answers on an internal one', () => {
    const dns_servers = ['10.0.0.53']
    expect(hostConfig({ network: 'open', dns_servers }).Dns).toEqual(dns_servers)
    expect(hostConfig({ network: 'open' }).Dns).toBeUndefined()
    expect(hostConfig({ network: 'internal', dns_servers }).Dns).toEqual(['192.0.0.8'])
    expect(hostConfig({ network: 'none', dns_servers }).Dns).toBeUndefined()
  })
})

describe('the hash of a spec', () => {
  it('is the same whatever order things are written in', () => {
    const other = Object.fromEntries(Object.entries(spec).toReversed()) as ContainerSpec
    expect(specHash({ ...other, mounts: spec.mounts.toReversed() })).toBe(specHash(spec))
  })

  it('changes with every part', () => {
    const changes: Partial<ContainerSpec>[] = [
      { image: 'x' },
      { command: ['supervise', '/opt/client'] },
      { env: { HOME: '/' } },
      { network: 'open' },
      { memory_mb: 1 },
      { mounts: spec.mounts.map((mount) => ({ ...mount, read_only: true })) },
    ]
    expect(new Set(changes.map((change) => specHash({ ...spec, ...change }))).size).toBe(changes.length)
  })
})

describe('names', () => {
  it('of bridges fit into an interface name and begin as the firewall expects', () => {
    const { project_id } = spec
    expect(names.bridge(project_id, 'open')).toMatch(/^oubo[a-z2-7]{11}$/)
    expect(names.bridge(project_id, 'internal')).toMatch(/^oubi[a-z2-7]{11}$/)
    expect(names.bridge(project_id, 'open').startsWith(names.open_bridges)).toBe(true)
    const other = createNames('other')
    expect(other.open_bridges).not.toBe(names.open_bridges)
    expect(other.open_bridges).toHaveLength(names.open_bridges.length)
  })
})

describe('options of a process', () => {
  const { project_id, read_only_root, ...rest } = spec
  const process: ProcessSpec = { ...rest, mounts: [], upstream_id: 'u1' }
  const made = processOptions(process, 'upstream-1', context)

  it('grant what a container of a project gets with a read-only root, and keep nothing', () => {
    expect(made.HostConfig).toEqual({
      ...hostConfig({ mounts: [], read_only_root: true }),
      AutoRemove: true,
      LogConfig: { Type: 'none', Config: {} },
    })
    expect(made).toMatchObject({ User: '1000:1000', OpenStdin: true, StdinOnce: true, Tty: false })
  })

  it('carry the labels of the upstream, and of its project if it has one', () => {
    expect(made.Labels).toEqual({ 'oubliette.instance': 'instance-1', 'oubliette.upstream': 'u1' })
    expect(processOptions({ ...process, project_id }, 'upstream-1', context).Labels).toEqual({
      'oubliette.instance': 'instance-1',
      'oubliette.upstream': 'u1',
      'oubliette.project': project_id,
    })
    expect(made.name).not.toBe(names.of(project_id))
  })

  it('are refused for root', () => {
    expect(() => processOptions({ ...process, user: '0:0' }, 'upstream-1', context)).toThrow(
      'other than root',
    )
  })
})
