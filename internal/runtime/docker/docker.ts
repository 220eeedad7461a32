// The runtime on a Docker engine, and the only file that creates an engine client. Each operation has a file of its own; this one
// provides what they share, serializes operations per project, and translates errors.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import Docker from 'dockerode'
import { Fault } from '../../fault.ts'
import { createKeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import { createBuild } from '../image/build.ts'
import { createImages } from '../image/images.ts'
import type { ContainerState, Runtime } from '../runtime.ts'
import { noStage, type Stage } from '../stage.ts'
import { createEnding, createEvents } from './container/events.ts'
import { createLogs } from './container/logs.ts'
import { createProcesses } from './container/process.ts'
import { createRemove } from './container/remove.ts'
import { createStart } from './container/start.ts'
import { keepDeadlines } from './deadlines.ts'
import { createDescribe } from './describe.ts'
import { engineFault } from './errors.ts'
import { createImageEngine } from './images.ts'
import { createInspect } from './inspect.ts'
import { createNames, specHash } from './names.ts'
import { createFirewall } from './network/firewall.ts'
import { createNetworks } from './network/network.ts'

export type DockerOptions = {
  /** Of this installation; everything made in the engine carries it. */
  instance: string
  /** As in DOCKER_HOST; the default socket without it. */
  docker_host?: string | undefined
  network_pool: string
  /** What open networks may reach although it is private; see `network/firewall-rules.ts`. */
  allowed_networks: string[]
  dns_servers: string[]
  images_dir: string
  /** Without it, containers get directories as they are. */
  stage?: Stage
  log: Log
}

const defaultSocket = '/var/run/docker.sock'
const pingMs = 5_000

type Address = { options: Docker.DockerOptions; address: string; socket: string | undefined }

/** Every field is named, because the client library would fill a missing one from the environment. */
export function parseDockerHost(docker_host: string | undefined, env: NodeJS.ProcessEnv): Address {
  const text = docker_host || `unix://${defaultSocket}`
  if (text.startsWith('unix://')) {
    const socket = text.slice('unix://'.length) || defaultSocket
    return { address: `unix://${socket}`, socket, options: { socketPath: socket, host: undefined } }
  }
  const url = URL.canParse(text) ? new URL(text) : undefined
  const protocol = url?.protocol.slice(0, -1)
  if (!url?.hostname || !protocol || !['tcp', 'http', 'https', 'ssh'].includes(protocol))
    throw new Fault('invalid', `DOCKER_HOST "${text}" is not a valid engine address`, {
      hint: 'use for example unix:///var/run/docker.sock or tcp://10.0.0.5:2376',
    })
  const tls = protocol === 'https' || (protocol === 'tcp' && Boolean(env.DOCKER_TLS_VERIFY))
  const file = (name: string) =>
    tls && env.DOCKER_CERT_PATH ? readFileSync(join(env.DOCKER_CERT_PATH, name)) : undefined
  const fallback = { ssh: 22, tls: 2376, plain: 2375 }[protocol === 'ssh' ? 'ssh' : tls ? 'tls' : 'plain']
  return {
    address: text,
    socket: undefined,
    options: {
      socketPath: undefined,
      host: url.hostname,
      port: Number(url.port || fallback),
      protocol: protocol === 'ssh' ? 'ssh' : tls ? 'https' : 'http',
      username: url.username || undefined,
      ca: file('ca.pem'),
      cert: file('cert.pem'),
      key: file('key.pem'),
    } as Docker.DockerOptions,
  }
}

export function createDocker({
  instance,
  docker_host,
  network_pool,
  allowed_networks,
  dns_servers,
  images_dir,
  stage = noStage,
  log,
}: DockerOptions): Runtime {
  const { options, address, socket } = parseDockerHost(docker_host, process.env)
  const docker = new Docker(options)
  const heartbeat = keepDeadlines(docker, address, log)
  const names = createNames(instance)
  const engine = createImageEngine(docker)
  const images = createImages(engine, images_dir)
  const networks = createNetworks(docker, names, network_pool)
  const firewall = createFirewall(docker, images, socket !== undefined, {
    open_bridges: names.open_bridges,
    allowed_networks,
    dns_servers,
  })
  const { inspect, writableBytes, owned } = createInspect(docker, names, stage)
  const { stop, pause, unpause, remove } = createRemove(docker, names, networks)
  const start = createStart({ docker, names, networks, firewall, stage, engine_socket: socket })
  const processes = createProcesses({ docker, names, networks, firewall, stage, engine_socket: socket, log })
  const queue = createKeyedQueue()
  const starting = new Map<string, Promise<ContainerState>>()

  const translated =
    <A extends unknown[], R>(verb: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      try {
        return await verb(...args)
      } catch (error) {
        throw engineFault(error, address)
      }
    }
  const logs = createLogs(docker, names)

  /** A start that is requested from now on must not share the running one. */
  function after(project_id: string, work: () => Promise<void>): Promise<void> {
    starting.delete(project_id)
    return queue(project_id, work)
  }

  return {
    ping: translated(async (signal) => {
      const limit = AbortSignal.timeout(pingMs)
      const abortSignal = signal ? AbortSignal.any([signal, limit]) : limit
      // The declared type has no options.
      const version = docker.version.bind(docker) as (limits: object) => Promise<Docker.DockerVersion>
      return { engine: 'docker', version: (await version({ abortSignal })).Version }
    }),
    describe: translated(createDescribe(docker, socket !== undefined)),
    watch: (signal) => void heartbeat.run(signal),
    protect: translated(firewall.protect),
    start: translated((spec) => {
      const shared = starting.get(spec.project_id)
      if (shared) return shared
      const mine = queue(spec.project_id, () => start(spec)).finally(() => {
        if (starting.get(spec.project_id) === mine) starting.delete(spec.project_id)
      })
      starting.set(spec.project_id, mine)
      return mine
    }),
    stop: translated((project_id, grace) => after(project_id, () => stop(project_id, grace))),
    pause: translated((project_id) => queue(project_id, () => pause(project_id))),
    unpause: translated((project_id) => queue(project_id, () => unpause(project_id))),
    endedFromOutside: translated(createEnding(docker)),
    remove: translated((project_id) => after(project_id, () => remove(project_id))),
    inspect: translated(inspect),
    specHash: (spec) => specHash(stage.apply(spec)),
    writableBytes: translated(writableBytes),
    owned: translated(owned),
    openProcess: translated(processes.openProcess),
    unusedProcesses: translated(processes.unusedProcesses),
    sweepProcesses: translated(processes.sweepProcesses),
    async *logs(project_id, request) {
      try {
        yield* logs(project_id, request)
      } catch (error) {
        throw engineFault(error, address)
      }
    },
    events: createEvents(docker, names, heartbeat.alarm, log),
    images: translated(images.list),
    builtImages: translated(async () => (await engine.list(['oubliette.type'])).flatMap(({ tags }) => tags)),
    resolveImage: translated(images.resolve),
    basesOf: translated(images.basesOf),
    build: translated(createBuild({ engine, images, images_dir, log })),
  }
}
