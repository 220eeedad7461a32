// A server of the benchmark's own: a temporary home, its own PostgreSQL with every commit on the disk, one session.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { createSessionKeys, sessionSecret } from '../../internal/auth/session-keys.ts'
import { layoutOf } from '../../internal/manager/workspace/layout.ts'
import { stopEmbedded } from '../../internal/store/embedded/embedded.ts'
import { freePort } from '../../test/harness/free-port.ts'

const main = resolve(import.meta.dirname, '../../cmd/oubliette-server/main.ts')

export type Place = {
  url: string
  token: string
  session_id: string
  since: number
  socket: string
  api_key: string
}

/** `files` are written into its home before it starts. */
export async function startServer(
  config: object = {},
  files: Record<string, string> = {},
): Promise<{ place: Place; stop(): Promise<void> }> {
  const home = await mkdtemp(join(tmpdir(), 'oub-relay-'))
  const url = `http://127.0.0.1:${await freePort()}`
  // The benchmark is one token and one container; their limits are not what is measured.
  const rate = {
    per_token_per_second: 1_000_000,
    per_token_burst: 1_000_000,
    per_container_per_second: 1_000_000,
    per_container_burst: 1_000_000,
  }
  await writeFile(
    join(home, 'oubliette.jsonc'),
    JSON.stringify({ rate, log: { level: 'error' }, ...config }),
    {
      mode: 0o600,
    },
  )
  for (const [name, content] of Object.entries(files))
    await writeFile(join(home, name), content, { mode: 0o600 })
  const env = { ...process.env, OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: url.slice('http://'.length) }
  // For a profile of the server: BENCH_NODE_FLAGS='--cpu-prof --cpu-prof-dir=/tmp/profile'
  const flags = process.env.BENCH_NODE_FLAGS?.split(' ') ?? []
  const child: ChildProcess = spawn(process.execPath, [...flags, main, 'serve'], {
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  let project_id = ''
  const call = async (name: string, args: object): Promise<Record<string, unknown>> => {
    const token = (await readFile(join(home, 'admin.token'), 'utf8')).trim()
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': name,
    }
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    }
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name, arguments: args, _meta },
    })
    const text = await (await fetch(`${url}/mcp`, { method: 'POST', headers, body })).text()
    const { result } = JSON.parse(text.startsWith('{') ? text : text.slice(text.indexOf('data: {') + 6))
    if (!result || result.isError) throw new Error(`${name}: ${text}`)
    return result.structuredContent
  }
  async function stop() {
    if (project_id) await call('project', { action: 'delete', project_id })
    const gone = once(child, 'exit')
    child.kill('SIGTERM')
    await gone
    await stopEmbedded(home)
    await rm(home, { recursive: true, force: true })
  }
  for (let tries = 0; ; tries++) {
    const ready = await fetch(`${url}/readyz`).catch(() => undefined)
    if (ready?.ok) break
    if (tries > 600 || child.exitCode !== null) throw new Error('the server did not become ready')
    await pause(100)
  }
  try {
    project_id = String(
      (await call('project', { action: 'create', name: 'bench', network: 'none' })).project_id,
    )
    const tool = { name: 'echo', inputSchema: { type: 'object', properties: { number: { type: 'number' } } } }
    const { session_id } = (await call('session', {
      action: 'spawn',
      project_id,
      prompt: 'sleep 3600',
      caller_id: 'bench',
      caller_tools: [tool],
    })) as { session_id: string }
    let session: Record<string, unknown>
    do session = await call('session', { action: 'get', session_id })
    while (session.status !== 'running' && (await pause(50, true)))
    const token = (await readFile(join(home, 'admin.token'), 'utf8')).trim()
    const socket = join(layoutOf(home).socketDir(project_id), 'relay.sock')
    const api_key = createSessionKeys(sessionSecret(home)).keyOf(session_id, 1)
    return { place: { url, token, session_id, since: Number(session.last_index), socket, api_key }, stop }
  } catch (error) {
    await stop()
    throw error
  }
}
