// Removes from the engine all that carries the label of one instance, so that a failed test leaves nothing behind.
import Docker from 'dockerode'

/** Gone in the meantime is as good as removed. */
async function gone(removal: Promise<unknown>): Promise<void> {
  await removal.catch((error: { statusCode?: number }) => {
    if (error.statusCode !== 404 && error.statusCode !== 409) throw error
  })
}

export async function removeInstance(instance_id: string): Promise<void> {
  const docker = new Docker()
  const filters = { label: [`oubliette.instance=${instance_id}`] }
  for (const one of await docker.listContainers({ all: true, filters }))
    await gone(docker.getContainer(one.Id).remove({ force: true, v: true }))
  for (const one of await docker.listNetworks({ filters })) await gone(docker.getNetwork(one.Id).remove())
  const { Volumes } = await docker.listVolumes({ filters })
  for (const one of Volumes ?? []) await gone(docker.getVolume(one.Name).remove({ force: true }))
}
