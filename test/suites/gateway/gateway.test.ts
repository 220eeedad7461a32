// The thin path: an admin adds a server, its tools are listed, stored and called, and a droid sees and calls them through
// `oubliette-client mcp`.
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { clientCommand, clientEnv, type Droid, droid } from '../../fixtures/droid-socket.ts'
import { everything, type HttpServer, startHttp } from '../../fixtures/upstream/servers.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let upstream: HttpServer
let project_id: string

beforeAll(async () => {
  upstream = await startHttp(everything, ['streamableHttp'], '/mcp')
  booted = await boot({ config: { log: { level: 'info' } } })
  project_id = await booted.project({ mcp_servers: ['everything'] })
})
afterAll(async () => {
  await booted?.stop()
  await upstream?.stop()
})

const add = (fields: object = {}) =>
  booted.ok('mcp_server', {
    action: 'add',
    name: 'everything',
    transport: 'http',
    url: upstream.url,
    ...fields,
  })

async function asDroid<T>(one: Droid, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ name: 'droid', version: '1.0.0' })
  await client.connect(new StdioClientTransport({ ...clientCommand, env: clientEnv(one) }))
  return await work(client).finally(() => client.close())
}

describe('a server that an admin adds', () => {
  let added: Answer
  beforeAll(async () => {
    added = await add()
  })

  it('is connected, and its tools are approved', async () => {
    expect(added).toMatchObject({
      name: 'everything',
      project_id: null,
      state: 'connected',
      unapproved: 0,
      server: { name: expect.stringContaining('everything') },
    })
    expect(added.tools).toBeGreaterThan(5)
    const { tools } = await booted.ok('mcp_server', { action: 'tools', name: 'everything' })
    expect(tools).toHaveLength(added.tools)
    expect(tools.find(({ name }: Answer) => name === 'echo')).toMatchObject({
      visible_name: 'mcp__everything__echo',
      status: 'approved',
      pin: expect.stringMatching(/^[0-9a-f]{64}$/),
      inputSchema: { type: 'object' },
    })
  })

  it('is called by a caller', async () => {
    const call = { action: 'call', name: 'everything', tool: 'echo', arguments: { message: 'hello' } }
    const { result } = await booted.ok('mcp_server', call)
    expect(JSON.stringify(result.content)).toContain('hello')
  })

  it('is used by a droid in a container without network, and audited', async () => {
    const one = await droid(booted, project_id)
    await asDroid(one, async (client) => {
      const { tools } = await client.listTools()
      const names = tools.map(({ name }) => name)
      expect(names).toContain('mcp__everything__echo')
      expect(names.every((name) => name.startsWith('mcp__everything__'))).toBe(true)
      const answer = await client.callTool({
        name: 'mcp__everything__echo',
        arguments: { message: 'from inside' },
      })
      expect(JSON.stringify(answer.content)).toContain('from inside')
    })
    const audited = await until(
      async () => {
        const rows = await booted.query<Answer>(
          "select tool, action, outcome, via, project_id from audit where session_id = $1 and tool like 'mcp:%'",
          [one.session_id],
        )
        return rows.some(({ outcome }) => outcome !== 'pending') && rows
      },
      { what: 'the call is audited' },
    )
    expect(audited).toEqual([
      { tool: 'mcp:everything', action: 'mcp_tool_call', outcome: 'ok', via: 'socket', project_id },
    ])
    const row = await until(
      async () =>
        (
          await booted.query<Answer>(
            "select * from upstream_calls where session_id = $1 and status <> 'sent'",
            [one.session_id],
          )
        )[0],
      { what: 'the end of the call is recorded' },
    )
    expect(row).toMatchObject({ tool: 'echo', status: 'done', arguments: { message: 'from inside' } })
  })
})
