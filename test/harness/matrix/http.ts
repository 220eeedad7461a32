// The matrix over HTTP: every caller is a bearer token, or none.
import type { Kind } from '../../../internal/fault.ts'
import { type Reply, resultIn, rpc } from '../rpc.ts'
import type { TestServer } from '../server.ts'
import { until } from '../wait.ts'
import { everybody, type Who } from './expected.ts'
import type { Answer, Driver } from './run.ts'
import type { World } from './world.ts'

type ErrorShape = { kind: Kind; message: string }
type Listed = { name: string; inputSchema: { properties?: { action?: { enum?: string[] } } } }

function answerOf(reply: Reply): Answer {
  if (reply.status === 401) {
    const { error } = JSON.parse(reply.text) as { error: ErrorShape }
    return { outcome: error.kind, message: error.message }
  }
  const result = resultIn(reply)
  if (!result.isError) return { outcome: 'ok', message: '' }
  const { error } = result.structuredContent as { error: ErrorShape }
  return { outcome: error.kind, message: error.message }
}

export const scopeOf = (who: Who, project_id: string, other_id: string): string =>
  who.startsWith('own')
    ? who.replace('own', `project:${project_id}`)
    : who.startsWith('other')
      ? who.replace('other', `project:${other_id}`)
      : who

export async function createHttpDriver(server: TestServer, world: World): Promise<Driver> {
  const minted = new Map<string, Promise<string>>()
  const mint = async (scope: string) => (await world.token(scope)).token

  const expired = await world.token('admin', 0.001)
  const revoked = await world.token('admin')
  await world.admin('token', { action: 'revoke', token_id: revoked.token_id })
  const refused = async () => (await rpc(server.url, expired.token, 'tools/list')).status === 401
  await until(refused, { what: 'the token has expired' })

  function tokenOf(who: Who, project_id: string): Promise<string | undefined> {
    if (who === 'none') return Promise.resolve(undefined)
    if (who === 'expired') return Promise.resolve(expired.token)
    if (who === 'revoked') return Promise.resolve(revoked.token)
    const scope = scopeOf(who, project_id, world.other_id)
    const known = minted.get(scope) ?? mint(scope)
    minted.set(scope, known)
    return known
  }

  return {
    via: 'http',
    who: everybody,
    async call(who, project_id, tool, args) {
      const token = await tokenOf(who, project_id)
      return answerOf(await rpc(server.url, token, 'tools/call', { name: tool, arguments: args }))
    },
    async list(who, project_id) {
      const reply = await rpc(server.url, await tokenOf(who, project_id), 'tools/list')
      const { tools } = resultIn(reply) as { tools: Listed[] }
      return new Map(tools.map((tool) => [tool.name, tool.inputSchema.properties?.action?.enum]))
    },
  }
}
