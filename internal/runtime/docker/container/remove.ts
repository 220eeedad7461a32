// Pauses, stops and removes a project's container and everything else that the project has in the engine.
import { setTimeout as sleep } from 'node:timers/promises'
import type Docker from 'dockerode'
import { Fault } from '../../../fault.ts'
import type { Runtime } from '../../runtime.ts'
import { isStatus, unlessMissing } from '../errors.ts'
import { labels, type Names } from '../names.ts'
import type { Networks } from '../network/network.ts'

const attempts = 100

export function createRemove(docker: Docker, names: Names, networks: Networks) {
  const stop: Runtime['stop'] = async (project_id, grace_seconds) => {
    const container = docker.getContainer(names.of(project_id))
    try {
      // A paused container does not receive the signal.
      const info = await unlessMissing(container.inspect())
      if (info?.State.Paused) await container.unpause()
      await unlessMissing(container.stop({ t: Math.max(0, Math.round(grace_seconds)) }))
    } catch (error) {
      if (!isStatus(error, 304)) throw error
    }
  }

  /** The engine answers 409 for a container that is not in the state that this ends. */
  const pause: Runtime['pause'] = async (project_id) => {
    const container = docker.getContainer(names.of(project_id))
    if (!(await container.inspect()).State.Paused) await container.pause()
  }
  const unpause: Runtime['unpause'] = async (project_id) => {
    const container = docker.getContainer(names.of(project_id))
    if ((await unlessMissing(container.inspect()))?.State.Paused) await container.unpause()
  }

  async function removeContainer(project_id: string): Promise<void> {
    const container = docker.getContainer(names.of(project_id))
    for (let attempt = 0; attempt < attempts; attempt++) {
      if (!(await unlessMissing(container.inspect()))) return
      try {
        await container.remove({ force: true, v: true })
      } catch (error) {
        // Another process is removing it: retry until it is not found.
        if (!isStatus(error, 404, 409)) throw error
        await sleep(100)
      }
    }
    throw new Fault('conflict', `failed to remove the container of project ${project_id}`, {
      hint: 'check its state with docker inspect',
    })
  }

  const remove: Runtime['remove'] = async (project_id) => {
    await removeContainer(project_id)
    await networks.remove(project_id)
    // Objects with these labels but another name were created manually or by a server with another naming scheme.
    const filters = { label: [...names.filter.label, `${labels.project}=${project_id}`] }
    for (const { Id } of await docker.listContainers({ all: true, filters }))
      await unlessMissing(docker.getContainer(Id).remove({ force: true, v: true }))
    for (const { Id } of await docker.listNetworks({ filters }))
      await unlessMissing(docker.getNetwork(Id).remove())
    const { Volumes } = await docker.listVolumes({ filters })
    for (const volume of Volumes ?? []) await unlessMissing(docker.getVolume(volume.Name).remove())
  }

  return { stop, pause, unpause, remove }
}
