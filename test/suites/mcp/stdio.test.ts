// `oubliette mcp stdio` with real clients that only start programs: both eras, and a server that is killed and started again
// while they are connected.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const main = resolve(import.meta.dirname, '../../../cmd/oubliette-server/main.ts')

let booted: Booted
let project_id: string
beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

const environment = () => ({
  PATH: process.env.PATH ?? '',
  OUBLIETTE_URL: booted.server.url,
  OUBLIETTE_TOKEN: booted.server.admin_token,
})
const program = (env: Record<string, string> = {}) => ({
  command: process.execPath,
  args: [main, 'mcp', 'stdio'],
  env: { ...environment(), ...env },
})

type Result = { structuredContent?: Record<string, unknown>; isError?: boolean }
type Progress = (update: { progress: number; message?: string }) => void
type Connected = {
  tools(): Promise<string[]>
  call(name: string, args: object, how?: { progress?: Progress; signal?: AbortSignal }): Promise<Result>
  close(): Promise<void>
}

const eras: Record<string, () => Promise<Connected>> = {
  async '2026-07-28'() {
    const client = new Client({ name: 'suite', version: '1' }, { versionNegotiation: { mode: 'auto' } })
    await client.connect(new StdioClientTransport(program()))
    expect(client.getNegotiatedProtocolVersion()).toBe('2026-07-28')
    return {
      tools: async () => (await client.listTools()).tools.map(({ name }) => name),
      call: async (name, args, { progress, signal } = {}) =>
        (await client.callTool(
          { name, arguments: args as Record<string, unknown> },
          { ...(progress ? { onprogress: progress } : {}), ...(signal ? { signal } : {}) },
        )) as Result,
      close: () => client.close(),
    }
  },
  async '2025-11-25'() {
    const client = new OldClient({ name: 'suite', version: '1' })
    await client.connect(new OldTransport(program()))
    return {
      tools: async () => (await client.listTools()).tools.map(({ name }) => name),
      call: async (name, args, { progress, signal } = {}) =>
        (await client.callTool({ name, arguments: args as Record<string, unknown> }, undefined, {
          ...(progress ? { onprogress: progress } : {}),
          ...(signal ? { signal } : {}),
        })) as Result,
      close: () => client.close(),
    }
  },
}

const exec = (command: string, more = {}) => ({ action: 'exec', project_id, command, ...more })

describe.each(Object.keys(eras))('a client of %s', (era) => {
  let client: Connected
  beforeAll(async () => {
    client = await eras[era]!()
  })
  afterAll(() => client?.close())

  test('lists and calls tools, and receives errors as results', async () => {
    expect(await client.tools()).toEqual(expect.arrayContaining(['project', 'session', 'container']))
    const { structuredContent } = await client.call('container', exec('echo über'))
    expect(structuredContent).toMatchObject({ stdout: 'über\n', exit_code: 0 })
    const { isError, structuredContent: fault } = await client.call('project', { action: 'nonsense' })
    expect(isError).toBe(true)
    expect(fault).toMatchObject({ error: { kind: 'invalid' } })
  })

  test('receives progress while a call runs', async () => {
    const seen: string[] = []
    const { structuredContent } = await client.call(
      'container',
      exec('for i in 1 2 3; do echo step $i; sleep 0.7; done'),
      { progress: ({ message }) => void seen.push(message ?? '') },
    )
    expect(structuredContent).toMatchObject({ exit_code: 0 })
    expect(seen.join('')).toContain('step 1')
  })

  test('cancels a call on the server', async () => {
    const mark = `cancel-${era}`
    const stop = new AbortController()
    const running = client.call('container', exec(`exec -a ${mark} sleep 100`, { timeout_seconds: 100 }), {
      signal: stop.signal,
    })
    const alive = async () => (await booted.exec(project_id, `pgrep -f '^${mark} 100' || true`)).stdout !== ''
    await until(alive, { what: 'the command runs' })
    stop.abort()
    await expect(running).rejects.toThrow()
    await until(async () => !(await alive()), { what: 'the command is gone' })
  })

  test('goes on after the server was killed and started again', async () => {
    const lost = client.call('container', exec('sleep 60', { timeout_seconds: 60 })).then(
      () => 'answered',
      (error: Error) => error.message,
    )
    const running = async () => (await booted.exec(project_id, 'pgrep -fx "sleep 60" || true')).stdout !== ''
    await until(running, { what: 'the command runs' })
    await booted.server.kill('SIGKILL')
    // Sent while no server listens: it waits for the next one.
    const waiting = client.call('container', exec('echo after'))
    await booted.server.restart('SIGKILL')
    expect((await waiting).structuredContent).toMatchObject({ stdout: 'after\n' })
    expect(await lost).toMatch(/may have taken effect/)
    expect(await client.tools()).toContain('project')
  })
})

test('the program ends when stdin closes, and leaves no session', async () => {
  const sessions = async () =>
    Number((await booted.query<{ count: string }>('select count(*) from mcp_sessions'))[0]?.count)
  const before = await sessions()
  const child = spawn(process.execPath, [main, 'mcp', 'stdio'], {
    env: environment(),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const say = (message: object) => child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  child.stdin.write('this is no JSON\n')
  expect(JSON.parse(String((await lines.next()).value))).toMatchObject({ error: { code: -32700 } })
  const clientInfo = { name: 'raw', version: '1' }
  say({
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo },
  })
  expect(JSON.parse(String((await lines.next()).value))).toMatchObject({ id: 1, result: expect.anything() })
  say({ method: 'notifications/initialized' })
  await until(async () => (await sessions()) === before + 1, { what: 'the session is open' })
  child.stdin.end()
  const [code] = await once(child, 'exit')
  expect(code).toBe(0)
  expect(await sessions()).toBe(before)
})

test('a wrong token and a server that is not there are errors of the call', async () => {
  const connect = async (env: Record<string, string>) => {
    const client = new OldClient({ name: 'suite', version: '1' })
    await client.connect(new OldTransport(program(env)))
  }
  await expect(connect({ OUBLIETTE_TOKEN: `oub_${'0'.repeat(64)}` })).rejects.toThrow(/token/)
})
