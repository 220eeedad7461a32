// The engine, for commands that use it without a server.
import { join } from 'node:path'
import type { Settings } from '../../../internal/config/load.ts'
import { createLog, type Log } from '../../../internal/log.ts'
import type { Runtime } from '../../../internal/runtime/runtime.ts'
import { checkout } from '../command.ts'

export async function engineOf(
  settings: Settings,
  instance: string,
  log: Log = createLog({ level: 'warn' }),
): Promise<Runtime> {
  // Imported on use: the client of the engine is slow to load, and `--help` imports this file.
  const { createDocker } = await import('../../../internal/runtime/docker/docker.ts')
  return createDocker({
    instance,
    docker_host: settings.docker_host,
    network_pool: settings.config.network_pool,
    allowed_networks: settings.config.allowed_networks,
    dns_servers: settings.config.dns_servers,
    images_dir: settings.config.images_dir ?? join(checkout, 'images'),
    log,
  })
}
