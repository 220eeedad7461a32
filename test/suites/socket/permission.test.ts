// The same matrix as over HTTP, asked by droids over their container's socket with every api_scope: the same cells.
import { afterAll, beforeAll, describe } from 'vitest'
import { everybody } from '../../harness/matrix/expected.ts'
import { matrixCredentials, matrixNetworks } from '../../harness/matrix/rows.ts'
import { type Driver, runMatrix } from '../../harness/matrix/run.ts'
import { createSocketDriver } from '../../harness/matrix/socket.ts'
import { createWorld, type World } from '../../harness/matrix/world.ts'
import { bootServer, type TestServer } from '../../harness/server.ts'

let server: TestServer
let world: World
let driver: Driver & { close(): void }

beforeAll(async () => {
  server = await bootServer({
    config: {
      limits: { max_agents_per_session: 1000, max_spawns_per_minute: 1000 },
      credentials: matrixCredentials,
      allowed_networks: matrixNetworks,
    },
  })
  world = await createWorld(server)
  driver = await createSocketDriver(server, world)
})
afterAll(async () => {
  driver?.close()
  await server?.stop()
  await world?.close()
})

describe('over the socket', () => runMatrix(() => ({ world, driver }), everybody))
