// Installs the client for containers: bundled from the sources of this server, next to the Node that runs the server, in a
// directory of the home that containers mount read-only. Client and server therefore always match in a new container,
// and any image with glibc works.
import { constants, existsSync } from 'node:fs'
import { copyFile, link, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { ClientInContainer } from '../../../internal/manager/container/containers.ts'
import { containerPaths } from '../../../internal/manager/workspace/layout.ts'
import type { Runtime } from '../../../internal/runtime/runtime.ts'
import { bundleClient } from '../../oubliette-client/bundle.ts'

const systemPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

export async function installClient(home: string): Promise<ClientInContainer> {
  const { directory } = await bundleClient(join(home, 'client'))
  const node = join(directory, 'node')
  if (!existsSync(node)) {
    const fresh = `${node}.${process.pid}`
    // Fails across file systems, and on those without hard links.
    await link(process.execPath, fresh).catch(() =>
      copyFile(process.execPath, fresh, constants.COPYFILE_FICLONE),
    )
    await rename(fresh, node)
  }
  return {
    directory,
    command: [`${containerPaths.client}/node`, `${containerPaths.client}/client.mjs`, 'supervise'],
    path: `${containerPaths.client}:${systemPath}`,
  }
}

/** Removes the clients of earlier releases that no container mounts. */
export async function removeOldClients(
  home: string,
  current: ClientInContainer,
  runtime: Runtime,
): Promise<void> {
  const used = new Set((await runtime.owned()).flatMap(({ mounts }) => mounts ?? []))
  if (current.directory) used.add(current.directory)
  const root = join(home, 'client')
  for (const name of await readdir(root))
    if (!used.has(join(root, name))) await rm(join(root, name), { recursive: true, force: true })
}
