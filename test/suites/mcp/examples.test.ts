// The example of every action, as the help shows it, called over HTTP with the ids of real objects.
import { afterAll, beforeAll, expect, it } from 'vitest'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { matrixCredentials, matrixNetworks, rows } from '../../harness/matrix/rows.ts'
import { declared } from '../../harness/matrix/run.ts'
import { createWorld, type World } from '../../harness/matrix/world.ts'
import { bootServer, type TestServer } from '../../harness/server.ts'

let server: TestServer
let world: World

beforeAll(async () => {
  server = await bootServer({ config: { credentials: matrixCredentials, allowed_networks: matrixNetworks } })
  world = await createWorld(server)
  const file = { path: 'README.md', content: 'text' }
  await world.admin('workspace', { action: 'write_file', project_id: world.project_id, ...file })
  const servers = { path: '.mcp.json', content: '{ "mcpServers": {} }' }
  await world.admin('workspace', { action: 'write_file', project_id: world.project_id, ...servers })
})
afterAll(() => server?.stop())

const made: Record<string, (project_id: string) => string | Promise<string>> = {
  project_id: (project_id) => project_id,
  session_id: () => world.session(),
  exec_id: () => world.command(),
  approval_id: () => world.approval(),
  schedule_id: () => world.schedule(),
  token_id: () => world.tokenId(),
  workspace_id: (project_id) => world.workspace(project_id),
  request_id: () => world.callerRequest(),
}

/** The example with ids of this server: those that the row of the matrix has made, or new ones. */
async function callable(key: string, example: Record<string, unknown>): Promise<Record<string, unknown>> {
  const row = rows[key]!
  const project_id = row.fresh ? await world.project() : world.project_id
  const prepared = await row.input(project_id, world)
  const text = JSON.stringify(example)
  const ids: Record<string, unknown> = {}
  for (const [name, make] of Object.entries(made))
    if (text.includes(`"${name}":`)) ids[name] = prepared[name] ?? (await make(project_id))
  // Of a server there is no id: its name, its project and its tools are those of the row.
  if (key.startsWith('mcp_server.') && 'name' in prepared && key !== 'mcp_server.add') {
    const { tool } = example
    return {
      ...example,
      project_id: prepared.project_id,
      // The example of `update` disables the server, which others need.
      name: key === 'mcp_server.update' ? await world.mcpServer('updated') : prepared.name,
      ...(tool === undefined ? {} : { tool: prepared.tool, arguments: {} }),
      ...('tools' in example ? { tools: ['read_note'] } : {}),
    }
  }
  return JSON.parse(text, (name, value) => ids[name] ?? value) as Record<string, unknown>
}

it.each(declared)('the example of $key succeeds', async ({ key, tool, action }) => {
  const { example } = tools[tool]!.actions[action ?? tool]!
  const args = await callable(key, example)
  await expect(world.admin(tool, action ? { action, ...args } : args)).resolves.toBeTypeOf('object')
})
