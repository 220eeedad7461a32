// The terminals of this container, by id. A terminal belongs to the request that opened it: when that is cancelled or its
// connection to the server is lost, everything in the terminal is ended.
import { openTerminal, type Terminal } from '../../../internal/droid/terminal/terminal.ts'
import { Fault } from '../../../internal/fault.ts'
import type { TerminalCommand, TerminalResize } from '../../../internal/protocol/messages.ts'
import type { Handlers } from '../../../internal/protocol/peer.ts'
import type { Environment } from '../environment.ts'
import { withGit } from './git.ts'

export function terminalHandlers(environment: Environment): Handlers {
  const open = new Map<string, Terminal>()

  return {
    async terminal(params, { signal }) {
      const command = params as TerminalCommand
      const env = withGit(environment.env, environment, command.git_key)
      const terminal = await openTerminal(command, { socket: environment.socket, env, signal })
      open.set(command.terminal_id, terminal)
      const onAbort = () => void terminal.close()
      signal.addEventListener('abort', onAbort, { once: true })
      if (signal.aborted) onAbort()
      try {
        return { exit_code: await terminal.ended }
      } finally {
        open.delete(command.terminal_id)
        signal.removeEventListener('abort', onAbort)
      }
    },
    async terminal_resize(params) {
      const { terminal_id, rows, cols } = params as TerminalResize
      const terminal = open.get(terminal_id)
      if (!terminal) throw new Fault('not_found', `this container has no terminal ${terminal_id}`)
      await terminal.resize({ rows, cols })
      return { accepted: true }
    },
  }
}
