// Ensures that a project's container runs. Safe to repeat and safe against other servers doing the same: the name is the lock,
// and the loser of a race uses the winner's container.
import { setTimeout as sleep } from 'node:timers/promises'
import type Docker from 'dockerode'
import { Fault } from '../../../fault.ts'
import type { ContainerSpec, ContainerState, Runtime } from '../../runtime.ts'
import type { Stage } from '../../stage.ts'
import { isStatus, reasonOf, unlessMissing } from '../errors.ts'
import { stateOf } from '../inspect.ts'
import type { Names } from '../names.ts'
import type { Firewall } from '../network/firewall.ts'
import type { Networks } from '../network/network.ts'
import { createOptions } from './options.ts'

type Context = {
  docker: Docker
  names: Names
  networks: Networks
  firewall: Firewall
  stage: Stage
  engine_socket: string | undefined
}

const attempts = 50

export function createStart({
  docker,
  names,
  networks,
  firewall,
  stage,
  engine_socket,
}: Context): Runtime['start'] {
  let cpus: Promise<number> | undefined

  function engineCpus(): Promise<number> {
    cpus ??= docker.info().then((info: { NCPU: number }) => info.NCPU)
    cpus.catch(() => {
      cpus = undefined
    })
    return cpus
  }

  async function create(wanted: ContainerSpec): Promise<void> {
    const spec = stage.apply(wanted)
    const network = await networks.ensure(spec.project_id, spec.network)
    const options = createOptions(spec, { names, network, engine_socket, engine_cpus: await engineCpus() })
    try {
      await docker.createContainer(options)
    } catch (error) {
      if (isStatus(error, 404) && /image/i.test(reasonOf(error)))
        throw new Fault('not_found', `image ${spec.image} is not in the engine`, {
          hint: 'build its container type with image_rebuild, or load the image with docker load',
          cause: error,
        })
      if (spec !== wanted && /bind source path does not exist/i.test(reasonOf(error)))
        return stage.disable(`the engine cannot access them: ${reasonOf(error)}`)
      // The name is taken: by another server a moment ago, or by one that is still being removed.
      if (!isStatus(error, 409)) throw error
      await sleep(100)
    }
  }

  /** What became of it, or undefined when it has to be looked at again. */
  async function run(container: Docker.Container): Promise<ContainerState | undefined> {
    try {
      await container.start()
      // It may have ended already: then that is the answer, not a reason to start it for ever.
      const info = await unlessMissing(container.inspect())
      return info && stateOf(info)
    } catch (error) {
      // Already running; or gone again.
      if (isStatus(error, 304) || (isStatus(error, 404) && !/network/i.test(reasonOf(error))))
        return undefined
      if (!/network \S+ not found|could not find a network|no such network/i.test(reasonOf(error)))
        throw startFault(error)
      // It was created on a network that no longer exists, which cannot be changed: it is recreated.
      await unlessMissing(container.remove({ force: true, v: true }))
      return undefined
    }
  }

  return async (spec): Promise<ContainerState> => {
    const container = docker.getContainer(names.of(spec.project_id))
    for (let attempt = 0; attempt < attempts; attempt++) {
      const info = await unlessMissing(container.inspect())
      if (info?.State.Status === 'running') return stateOf(info)
      // Rules before anything can send a packet, also when it was made by an earlier server.
      if (spec.network !== 'none') await firewall.protect()
      // Also before a container that exists: what it mounts may be gone since.
      await stage.check()
      if (!info) await create(spec)
      else if (info.State.Status === 'paused')
        throw new Fault('conflict', `the container of project ${spec.project_id} is paused`, {
          hint: 'unpause it with container unpause',
        })
      else if (info.State.Status === 'dead') await unlessMissing(container.remove({ force: true, v: true }))
      else if (info.State.Status === 'removing' || info.State.Status === 'restarting') await sleep(100)
      else {
        const started = await run(container)
        if (started) return started
      }
    }
    throw new Fault('conflict', `the state of the container of project ${spec.project_id} keeps changing`, {
      hint: 'another process starts or removes it at the same time',
    })
  }
}

function startFault(error: unknown): unknown {
  const reason = reasonOf(error)
  if (!/OCI runtime|mkdir|executable file not found|invalid mount|bind source path/i.test(reason))
    return error
  return new Fault('invalid', `failed to start the container: ${reason}`, { cause: error })
}
