// The matrix over the socket of a container: every caller is a session with the api_scope, or a process without a key.
import type { Kind } from '../../../internal/fault.ts'
import { type Dialled, dial, keyOf, socketOf, type WireAnswer } from '../../fixtures/droid-socket.ts'
import { connect } from '../client.ts'
import type { TestServer } from '../server.ts'
import { until } from '../wait.ts'
import { everybody, type Who } from './expected.ts'
import { scopeOf } from './http.ts'
import type { Answer, Driver } from './run.ts'
import type { World } from './world.ts'

const answerOf = ({ error }: WireAnswer): Answer => {
  if (!error) return { outcome: 'ok', message: '' }
  return { outcome: (error.data?.kind ?? 'internal') as Kind, message: error.message }
}
/** As CONTRACT says it of the codes. */
const codes: Partial<Record<Kind, number>> = { invalid: -32602, unauthenticated: -32001, forbidden: -32002 }

export async function createSocketDriver(
  server: TestServer,
  world: World,
): Promise<Driver & { close(): void }> {
  const limits = { max_active_sessions: 500, max_spawns_per_minute: 1000, max_agents_per_session: 1000 }
  const made = { action: 'create', name: 'droids of the matrix', limits, api_scope_grant: 'admin' }
  const home = (await world.admin('project', made)).project_id as string
  const path = socketOf({ server }, home)
  const keys = new Map<string, Promise<string>>()
  let dialled: Dialled | undefined

  async function spawn(by: World['admin'], api_scope: string): Promise<string> {
    const args = { action: 'spawn', project_id: home, prompt: 'sleep 900', new_session: true, api_scope }
    const session_id = (await by('session', args)).session_id as string
    const running = async () =>
      (await world.admin('session', { action: 'get', session_id })).status === 'running'
    await until(running, { what: 'the droid runs', deadline_ms: 30_000 })
    return keyOf({ server }, session_id)
  }
  async function spawnBy(token: string, scope = 'admin'): Promise<string> {
    const client = await connect(server, token)
    const key = await spawn(async (tool, args) => (await client.call(tool, args)).structured, scope)
    await client.close()
    return key
  }
  // The audit identifies the calls that count by the token behind them.
  const spawner = await world.token('admin')
  const expiring = await world.token('admin', 0.003)
  const expired = spawnBy(expiring.token)
  const revoking = await world.token('admin')
  const revoked = spawnBy(revoking.token)
  await Promise.all([expired, revoked])
  await world.admin('token', { action: 'revoke', token_id: revoking.token_id })

  async function keyFor(who: Who, project_id: string): Promise<string | undefined> {
    if (who === 'none') return undefined
    if (who === 'expired') return await expired
    if (who === 'revoked') return await revoked
    const scope = scopeOf(who, project_id, world.other_id)
    const known = keys.get(scope) ?? spawnBy(spawner.token, scope)
    keys.set(scope, known)
    return await known
  }

  async function ask(who: Who, project_id: string, method: string, params: object): Promise<WireAnswer> {
    const api_key = await keyFor(who, project_id)
    if (!dialled || dialled.isClosed()) dialled = await dial(path)
    const answer = await dialled.ask(method, api_key === undefined ? params : { api_key, ...params })
    const kind = answer.error?.data?.kind as Kind | undefined
    if (answer.error && answer.error.code !== (codes[kind ?? 'internal'] ?? -32000))
      throw new Error(`${kind} has code ${answer.error.code}`)
    return answer
  }
  const gone = async () => (await ask('expired', home, 'oubliette_tools', {})).error !== undefined
  await until(gone, { what: 'the token has expired', deadline_ms: 30_000 })

  return {
    via: 'socket',
    who: everybody,
    async call(who, project_id, tool, args) {
      const { action, ...rest } = args
      // Both forms are the same; the flat one half of the time.
      const flat = typeof action === 'string' && Object.keys(rest).length % 2 === 0
      const params = flat ? { tool: `${tool}_${action}`, arguments: rest } : { tool, arguments: args }
      return answerOf(await ask(who, project_id, 'oubliette_call_tool', params))
    },
    async list(who, project_id) {
      const { result } = await ask(who, project_id, 'oubliette_tools', {})
      const tools = result?.tools as {
        name: string
        inputSchema: { properties?: { action?: { enum?: string[] } } }
      }[]
      return new Map(tools.map((tool) => [tool.name, tool.inputSchema.properties?.action?.enum]))
    },
    close: () => dialled?.close(),
  }
}
