// The ways to one tool that returns its message: directly with the client of the SDK, through Oubliette (by /mcp as a caller, by
// the socket of a container as a droid), and through programs from npm that connect MCP transports. Each gets an upstream of
// its own, so that no way waits for another's.
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createConnection } from 'node:net'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Client, StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { freePort } from '../../test/harness/free-port.ts'
import type { Place } from '../relay/server.ts'

export const echoServer = resolve(import.meta.dirname, '../../test/fixtures/upstream/echo-server.ts')
const peers = join(import.meta.dirname, 'peers')

export type Way = {
  name: string
  protocol: string
  /** Returns what the tool returned. */
  call(message: string): Promise<string>
  close(): Promise<void>
}

type Content = { content?: { text?: string }[] }
const textOf = (result: unknown): string => (result as Content).content?.[0]?.text ?? JSON.stringify(result)

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await Promise.race([ended, pause(3000)])
  child.kill('SIGKILL')
}

/** A server that listens on a port; ready when it answers any request. */
export async function listening(
  program: (port: number) => string[],
  path = '/mcp',
): Promise<{ url: string; stop(): Promise<void> }> {
  const port = await freePort()
  const child = spawn(process.execPath, program(port), {
    env: { ...process.env, PORT: String(port) },
    stdio: 'ignore',
  })
  for (let left = 300; ; left--) {
    if (left === 0 || child.exitCode !== null) throw new Error(`${program(port).join(' ')} does not listen`)
    const answer = await fetch(`http://127.0.0.1:${port}/`).catch(() => undefined)
    await answer?.body?.cancel()
    if (answer) return { url: `http://127.0.0.1:${port}${path}`, stop: () => end(child) }
    await pause(100)
  }
}

type SdkWay = {
  name: string
  transport: Transport
  /** Default: the newer revision where the other side has it, as the gateway itself does. */
  era?: 'auto' | 'legacy'
  call?: (message: string) => { name: string; arguments: Record<string, unknown> }
  resultOf?: (answer: unknown) => unknown
  stop?: () => Promise<void>
}

async function sdkWay({ name, transport, era = 'auto', call = echo, resultOf, stop }: SdkWay): Promise<Way> {
  const client = new Client(
    { name: 'bench', version: '1.0.0' },
    { versionNegotiation: { mode: era, probe: { timeoutMs: 2000 } } },
  )
  await client.connect(transport)
  return {
    name,
    protocol: client.getNegotiatedProtocolVersion() ?? 'unknown',
    async call(message) {
      const answer = await client.callTool(call(message))
      return textOf(resultOf ? resultOf(answer) : answer)
    },
    async close() {
      await client.close().catch(() => undefined)
      await stop?.()
    },
  }
}

const echo = (message: string) => ({ name: 'echo', arguments: { message } })
const overHttp = (url: string, headers: Record<string, string> = {}) =>
  new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })

export const directStdio = (): Promise<Way> =>
  sdkWay({
    name: 'direct',
    transport: new StdioClientTransport({ command: process.execPath, args: [echoServer] }),
  })

export const directHttp = (url: string): Promise<Way> => sdkWay({ name: 'direct', transport: overHttp(url) })

export const asCaller = (place: Place, server: string): Promise<Way> =>
  sdkWay({
    name: 'oubliette, /mcp',
    transport: overHttp(`${place.url}/mcp`, { authorization: `Bearer ${place.token}` }),
    call: (message) => ({
      name: 'mcp_server',
      arguments: { action: 'call', name: server, tool: 'echo', arguments: { message } },
    }),
    resultOf: (answer) =>
      (answer as { structuredContent?: { result?: unknown } }).structuredContent?.result ?? answer,
  })

type Wire = { id?: number; result?: unknown; error?: { message: string } }

/** As `oubliette-client` does it: one connection, a call_id for each call. */
export async function asDroid({ socket: path, api_key }: Place, server: string): Promise<Way> {
  const socket = createConnection(path)
  await once(socket, 'connect')
  const waiting = new Map<number, (message: Wire) => void>()
  let last = 0
  let rest = ''
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) {
      const message = JSON.parse(line) as Wire
      waiting.get(message.id ?? 0)?.(message)
      waiting.delete(message.id ?? 0)
    }
  })
  async function ask(method: string, params: object): Promise<unknown> {
    const id = ++last
    const { promise, resolve: take } = Promise.withResolvers<Wire>()
    waiting.set(id, take)
    socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`)
    const { result, error } = await promise
    if (error) throw new Error(error.message)
    return result
  }
  await ask('hello', { role: 'droid', api_key })
  const name = `mcp__${server}__echo`
  const isListed = async () =>
    ((await ask('oubliette_tools', {})) as { tools: { name: string }[] }).tools.some(
      (one) => one.name === name,
    )
  while (!(await isListed())) await pause(100)
  return {
    name: 'oubliette, socket',
    protocol: 'socket',
    call: async (message) =>
      textOf(
        await ask('oubliette_call_tool', {
          tool: name,
          arguments: { message },
          call_id: randomUUID(),
        }),
      ),
    close: async () => void socket.destroy(),
  }
}

export async function installPeers(): Promise<void> {
  if (
    existsSync(join(peers, 'node_modules/mcp-proxy')) &&
    existsSync(join(peers, 'node_modules/supergateway'))
  )
    return
  await promisify(execFile)('npm', ['install', '--no-save', '--ignore-scripts'], {
    cwd: peers,
    timeout: 300_000,
  })
}

const peer = (path: string) => join(peers, 'node_modules', path)

export async function mcpProxy(): Promise<Way> {
  const { url, stop } = await listening((port) => [
    peer('mcp-proxy/dist/bin/mcp-proxy.mjs'),
    ...[
      '--host',
      '127.0.0.1',
      '--port',
      String(port),
      '--server',
      'stream',
      '--',
      process.execPath,
      echoServer,
    ],
  ])
  return await sdkWay({ name: 'mcp-proxy', transport: overHttp(url), stop })
}

/**
 * One process of the upstream for each session: without `--stateful`, and for each request of the newer revision, it starts one
 * for each request.
 */
export async function supergatewayOfStdio(): Promise<Way> {
  const { url, stop } = await listening((port) => [
    peer('supergateway/dist/index.js'),
    ...['--stdio', `${process.execPath} ${echoServer}`, '--outputTransport', 'streamableHttp', '--stateful'],
    ...['--port', String(port), '--logLevel', 'none'],
  ])
  return await sdkWay({ name: 'supergateway', transport: overHttp(url), era: 'legacy', stop })
}

export const supergatewayOfHttp = (url: string): Promise<Way> =>
  sdkWay({
    name: 'supergateway',
    transport: new StdioClientTransport({
      command: process.execPath,
      args: [peer('supergateway/dist/index.js'), '--streamableHttp', url, '--logLevel', 'none'],
    }),
    era: 'legacy',
  })
