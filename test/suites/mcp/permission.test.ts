// Every action of every tool with every kind of caller, against CONTRACT's matrix.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { everybody } from '../../harness/matrix/expected.ts'
import { createHttpDriver } from '../../harness/matrix/http.ts'
import { matrixCredentials, matrixNetworks } from '../../harness/matrix/rows.ts'
import { type Driver, runMatrix } from '../../harness/matrix/run.ts'
import { createWorld, type World } from '../../harness/matrix/world.ts'
import { resultIn, rpc } from '../../harness/rpc.ts'
import { bootServer, type TestServer } from '../../harness/server.ts'

let server: TestServer
let world: World
let driver: Driver

beforeAll(async () => {
  // Calls without a valid token are many here, and on purpose.
  const rate = { failures_per_address_per_minute: 100_000 }
  server = await bootServer({
    config: { rate, credentials: matrixCredentials, allowed_networks: matrixNetworks },
  })
  world = await createWorld(server)
  driver = await createHttpDriver(server, world)
})
afterAll(async () => {
  await server?.stop()
  await world?.close()
})

describe('over HTTP', () => runMatrix(() => ({ world, driver }), everybody))

it('lists to a project token its own project and nothing else', async () => {
  for (const scope of [`project:${world.other_id}`, `project:${world.other_id}:ro`]) {
    const { token } = await world.token(scope)
    const reply = await rpc(server.url, token, 'tools/call', {
      name: 'project',
      arguments: { action: 'list' },
    })
    const { projects } = resultIn(reply).structuredContent as { projects: { project_id: string }[] }
    expect(projects.map(({ project_id }) => project_id)).toEqual([world.other_id])
  }
})
