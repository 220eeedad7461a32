// Programs in containers of their own, used through their streams. The engine removes the container when the program ends; its stdin
// ends with the connection of this process. A program that goes on without stdin is removed by the sweep.
import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { type Duplex, PassThrough } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import type Docker from 'dockerode'
import { Fault, messageOf } from '../../../fault.ts'
import type { Log } from '../../../log.ts'
import type { ProcessSpec, Runtime, RuntimeProcess } from '../../runtime.ts'
import type { Stage } from '../../stage.ts'
import { isStatus, reasonOf, unlessMissing } from '../errors.ts'
import { labels, type Names } from '../names.ts'
import type { Firewall } from '../network/firewall.ts'
import type { Networks } from '../network/network.ts'
import { createDemux } from './logs.ts'
import { processOptions } from './options.ts'

type Context = {
  docker: Docker
  names: Names
  networks: Networks
  firewall: Firewall
  stage: Stage
  engine_socket: string | undefined
  log: Log
}

const removeAttempts = 50
const killMs = 30_000

export function createProcesses(
  context: Context,
): Pick<Runtime, 'openProcess' | 'unusedProcesses' | 'sweepProcesses'> {
  const { docker, names, networks, firewall, stage, log } = context
  /** Names of containers and of their networks, from before they are created until after they are removed. */
  const live = new Set<string>()
  let cpus: Promise<number> | undefined

  function engineCpus(): Promise<number> {
    cpus ??= docker.info().then((info: { NCPU: number }) => info.NCPU)
    cpus.catch(() => {
      cpus = undefined
    })
    return cpus
  }

  async function remove(name: string): Promise<void> {
    const container = docker.getContainer(name)
    for (let attempt = 0; attempt < removeAttempts; attempt++) {
      try {
        await container.remove({ force: true, v: true })
        return
      } catch (error) {
        if (isStatus(error, 404)) return
        // The engine is removing it.
        if (!isStatus(error, 409)) throw error
        await pause(100)
      }
    }
    throw new Fault('conflict', `failed to remove container ${name}`)
  }

  async function create(spec: ProcessSpec, key: string): Promise<Docker.Container> {
    if (spec.network !== 'none') await firewall.protect()
    await stage.check()
    const { mounts } = stage.apply({ ...spec, project_id: key, read_only_root: true })
    const marks = { [labels.instance]: names.instance, [labels.upstream]: spec.upstream_id }
    const network = await networks.ensure(key, spec.network, marks)
    const { engine_socket } = context
    const options = processOptions({ ...spec, mounts }, key, {
      names,
      engine_socket,
      network,
      engine_cpus: await engineCpus(),
    })
    try {
      return await docker.createContainer(options)
    } catch (error) {
      if (isStatus(error, 404) && /image/i.test(reasonOf(error)))
        throw new Fault('not_found', `image ${spec.image} is not in the engine`, {
          hint: 'build its container type with image_rebuild, or load the image with docker load',
          cause: error,
        })
      throw error
    }
  }

  async function openProcess(spec: ProcessSpec, signal: AbortSignal): Promise<RuntimeProcess> {
    signal.throwIfAborted()
    const key = `upstream-${randomBytes(8).toString('hex')}`
    const name = names.of(key)
    live.add(name)
    const cleanUp = async () => {
      await remove(name)
      if (spec.network !== 'none') await networks.remove(key)
      live.delete(name)
    }
    try {
      const container = await create(spec, key)
      // Before it starts: nothing that it writes is missed, and its end is seen however early it is.
      const connection = (await container.attach({
        stream: true,
        hijack: true,
        stdin: true,
        stdout: true,
        stderr: true,
      })) as unknown as Duplex
      const exited = container.wait({ condition: 'next-exit' }) as Promise<{ StatusCode: number }>
      exited.catch(() => undefined)
      signal.throwIfAborted()
      await container.start().catch((error: unknown) => {
        throw /OCI runtime|executable file not found|no such file/i.test(reasonOf(error))
          ? new Fault('invalid', `failed to start the upstream: ${reasonOf(error)}`, { cause: error })
          : error
      })
      return running(connection, exited, name, cleanUp)
    } catch (error) {
      // The sweep removes what is left if this fails.
      await cleanUp().catch(() => live.delete(name))
      throw error
    }
  }

  function running(
    connection: Duplex,
    exited: Promise<{ StatusCode: number }>,
    name: string,
    cleanUp: () => Promise<void>,
  ): RuntimeProcess {
    const { stdout, stderr } = demultiplex(connection)
    const ended = (async () => {
      const exit_code = await exited.then(
        ({ StatusCode }) => StatusCode,
        () => null,
      )
      await cleanUp().catch((error: unknown) => {
        live.delete(name)
        log.warn('failed to remove the container of an upstream, retrying in the next sweep', {
          container: name,
          error: messageOf(error),
        })
      })
      connection.destroy()
      return { exit_code, reason: reasonOfExit(exit_code) }
    })()
    // A connection that is lost while the program runs cannot be opened again.
    connection.once('close', () => void remove(name).catch(() => undefined))
    return {
      stdin: connection,
      stdout,
      stderr,
      ended,
      async kill() {
        // The engine does not finish a container while its output is not taken.
        connection.destroy()
        const killed = await Promise.race([
          remove(name).then(() => ended),
          pause(killMs, undefined, { ref: false }),
        ])
        if (!killed) throw new Fault('timeout', `container ${name} did not end within ${killMs / 1000} s`)
      },
    }
  }

  const filters = { label: [...names.filter.label, labels.upstream] }

  async function unusedProcesses(): Promise<string[]> {
    const containers = await docker.listContainers({ all: true, filters })
    return containers
      .map(({ Names: [name = ''] }) => name.replace(/^\//, ''))
      .filter((name) => !live.has(name))
  }

  async function sweepProcesses(): Promise<number> {
    const [left, found] = await Promise.all([unusedProcesses(), docker.listNetworks({ filters })])
    for (const name of left) await remove(name)
    for (const { Name, Id } of found) if (!live.has(Name)) await unlessMissing(docker.getNetwork(Id).remove())
    if (left.length > 0) log.info('removed containers of upstreams that nobody uses', { count: left.length })
    return left.length
  }

  return { openProcess, unusedProcesses, sweepProcesses }
}

function reasonOfExit(exit_code: number | null): string {
  if (exit_code === null) return 'its container is gone'
  if (exit_code === 126 || exit_code === 127)
    return `its program was not found or cannot be run (exit code ${exit_code})`
  if (exit_code === 137) return 'it was killed (exit code 137), possibly for lack of memory'
  return `it ended with exit code ${exit_code}`
}

/** One connection to two streams. It is read no faster than both are. */
function demultiplex(connection: Duplex): { stdout: PassThrough; stderr: PassThrough } {
  const streams = { stdout: new PassThrough(), stderr: new PassThrough() }
  // Of the HTTP agent, for connections between requests.
  if ('setTimeout' in connection) (connection as Socket).setTimeout(0)
  const demux = createDemux()
  let full = 0
  connection.on('data', (chunk: Buffer) => {
    for (const { stream, data } of demux(chunk)) {
      if (streams[stream].destroyed || streams[stream].write(data)) continue
      full++
      connection.pause()
      streams[stream].once('drain', () => {
        full--
        if (full === 0) connection.resume()
      })
    }
  })
  const end = () => {
    streams.stdout.end()
    streams.stderr.end()
  }
  connection.once('end', end)
  connection.once('close', end)
  connection.on('error', end)
  return streams
}
