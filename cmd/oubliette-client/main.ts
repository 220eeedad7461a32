// The program inside containers. `supervise` is the container's main process; `mcp` is the MCP server that a droid starts;
// `call` calls the same tools from a shell.
import { messageOf } from '../../internal/fault.ts'
import { createLog } from '../../internal/log.ts'
import { version } from './version.ts'

const help = `oubliette-client ${version}

  oubliette-client supervise        Run the container's main process: start droids, journal their events, connect to the server
  oubliette-client mcp              Serve the tools of this session as an MCP server on stdin and stdout
  oubliette-client call TOOL JSON   Call one tool and print its result as JSON; exit code 1 if it failed
  oubliette-client call             List the tools

  OUBLIETTE_SOCKET      Path of the server's socket (default /run/oubliette/relay.sock)
  OUBLIETTE_API_KEY     Key of this session (mcp, call)
  OUBLIETTE_MCP_PORT    Port of the MCP server that the sessions of this container share (mcp; default: a process of its own)
  OUBLIETTE_STATE_DIR   Directory of the journals (supervise; default ~/.oubliette)
`

async function main(args: string[]): Promise<number> {
  const [verb, ...rest] = args
  const stop = new AbortController()
  for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(name, () => stop.abort())
  switch (verb) {
    case 'supervise': {
      const { supervise } = await import('./supervise/supervise.ts')
      const log = createLog()
      // The parent of all droids must survive an error that one of them causes.
      process.on('uncaughtException', (error) => log.error('uncaught exception', { error }))
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
      // An error that one session causes must not end the others.
      process.on('uncaughtException', (error) =>
        log.error('failed to handle a message from a droid', { error }),
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
