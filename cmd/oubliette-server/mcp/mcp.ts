// `./oubliette mcp`: connects MCP clients. `stdio` is an MCP server on stdin and stdout for clients that only start programs,
// and forwards to the running server; `setup` writes the configuration of a client.
import { createInterface } from 'node:readline'
import { endpoint, tokenOf } from '../client/call.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { type Bridge, createBridge } from './bridge.ts'
import { errorResponse, type Message } from './wire.ts'

const reconnect_ms = 60_000

function target() {
  const config = place()
  const url = process.env.OUBLIETTE_URL
  if (!url) return endpoint(config, baseUrl(config))
  if (!URL.canParse(url)) throw new Usage(`OUBLIETTE_URL "${url}" is not a URL`)
  return { url: new URL('/mcp', url), token: tokenOf(process.env, config.home) }
}

const write = (message: object) => void process.stdout.write(`${JSON.stringify(message)}\n`)

function parse(line: string): Message[] {
  const value = JSON.parse(line) as Message | Message[]
  const messages = Array.isArray(value) ? value : [value]
  if (messages.some((message) => typeof message !== 'object' || message === null))
    throw new Error('is not a JSON-RPC message')
  return messages
}

async function forwardAll(bridge: Bridge): Promise<void> {
  for await (const line of createInterface({ input: process.stdin, terminal: false })) {
    if (line.trim() === '') continue
    let messages: Message[]
    try {
      messages = parse(line)
    } catch (error) {
      write({
        jsonrpc: '2.0',
        ...errorResponse(null as never, `Parse error: ${(error as Error).message}`, -32700),
      })
      continue
    }
    for (const message of messages) await bridge.receive(message)
  }
}

async function stdio(args: string[]): Promise<number> {
  options(args, {})
  const bridge = createBridge({
    where: target(),
    write,
    warn: (text) => process.stderr.write(`oubliette: ${text}\n`),
    reconnect_ms,
  })
  // The client is gone: there is no one left to answer.
  process.stdout.on('error', () => process.exit(0))
  await forwardAll(bridge)
  await bridge.close()
  return 0
}

const subcommands: Record<string, (args: string[]) => Promise<number>> = {
  stdio,
  setup: async (args) => (await import('./setup.ts')).setup(args),
}

export const mcp: Command = {
  about: 'Connect MCP clients',
  usage: 'stdio | setup CLIENT [OPTIONS]',
  details: `"mcp setup" creates a token and writes the server into the configuration of a client: claude-code, claude-desktop,
cursor, vscode, codex, gemini or opencode. A second setup replaces the entry and revokes the previous token.

"mcp stdio" speaks MCP on stdin and stdout and forwards to the running server: that of OUBLIETTE_URL, or else of
OUBLIETTE_HOME. The token is OUBLIETTE_TOKEN, or else the admin token of the home. It reconnects after a restart of the
server and ends when stdin closes.`,
  options: [
    ['--project NAME|ID', 'setup: restrict the client to one project'],
    ['--read-only', 'setup: the client can read, not change'],
    ['--print', 'setup: print the entry, write nothing'],
    ['--remove', 'setup: remove the entry and revoke its token'],
  ],
  examples: [
    './oubliette mcp setup claude-code',
    './oubliette mcp setup codex --project demo --read-only',
    './oubliette mcp setup claude-code --remove',
    './oubliette mcp stdio',
  ],
  async run([name, ...args]) {
    const run = name === undefined ? undefined : subcommands[name]
    if (!run)
      throw new Usage(
        name === undefined ? 'missing subcommand' : `unknown subcommand "${name}"`,
        `subcommands: ${Object.keys(subcommands).join(', ')}`,
      )
    return await run(args)
  },
}
