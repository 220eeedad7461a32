// The program inside containers. `supervise` is the container's main process; `mcp` is what a droid starts as its MCP
// server; `call` is the same from a shell.
import { messageOf } from '../../internal/fault.ts'
import { createLog } from '../../internal/log.ts'
import { version } from './version.ts'

const help = `oubliette-client ${version}

  oubliette-client supervise        the container's main process: starts droids, keeps what they say, talks to the server
  oubliette-client mcp              an MCP server on stdin and stdout with the tools of this session
  oubliette-client call TOOL JSON   calls one tool and prints its result as JSON; exit code 1 if it failed
  oubliette-client call             lists the tools

  OUBLIETTE_SOCKET      the server's socket (default /run/oubliette/relay.sock)
  OUBLIETTE_API_KEY     the key of this session (mcp, call)
  OUBLIETTE_MCP_PORT    the MCP server that the sessions of this container share (mcp; without it: one of its own)
  OUBLIETTE_STATE_DIR   where journals are kept (supervise; default ~/.oubliette)
`

async function main(args: string[]): Promise<number> {
  const [verb, ...rest] = args
  const stop = new AbortController()
  for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(name, () => stop.abort())
  switch (verb) {
    case 'supervise': {
      const { supervise } = await import('./supervise/supervise.ts')
      const log = createLog()
      // The parent of all droids does not die of what one of them did.
      process.on('uncaughtException', (error) => log.error('a fault was not handled', { error }))
      await supervise(process.env, log, stop.signal)
      return 0
    }
    case 'mcp': {
      const { serveMcp } = await import('./mcp/mcp.ts')
      return serveMcp(process.env, stop.signal)
    }
    // Started by the supervisor only.
    case 'mcp-shared': {
      const { shareMcp } = await import('./mcp/shared.ts')
      const log = createLog()
      // What one session did does not end the others.
      process.on('uncaughtException', (error) =>
        log.error('failed to handle a message of a droid', { error }),
      )
      await shareMcp(process.env, stop.signal)
      return 0
    }
    case 'call': {
      const { call } = await import('./mcp/call.ts')
      return call(rest, process.env, stop.signal)
    }
    case '--version':
      process.stdout.write(`${version}\n`)
      return 0
    case '--help':
    case undefined:
      process.stdout.write(help)
      return 0
    default:
      process.stderr.write(`unknown command "${verb}"\n\n${help}`)
      return 2
  }
}

main(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (error) => {
    process.stderr.write(`oubliette-client: ${messageOf(error)}\n`)
    process.exit(1)
  },
)
