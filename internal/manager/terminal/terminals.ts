// Terminals in containers: opened for a caller, counted per project and per token, and ended with everything in them when the
// caller leaves. The supervisor runs the program; its bytes travel on a connection of their own and are not stored. If the
// server is killed, the supervisor loses its connection and ends the terminal.
import type { Socket } from 'node:net'
import type { Caller } from '../../auth/caller.ts'
import type { Config } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import { services } from '../../git/remote.ts'
import { newTerminalId } from '../../ids.ts'
import type { Log } from '../../log.ts'
import type { ByteStreams } from '../../relay/byte-streams.ts'
import type { SupervisorLink } from '../../relay/supervisor-side.ts'
import type { Attached, ExecHooks } from '../exec/attached.ts'
import type { GitUse } from '../project/git-use.ts'
import type { Workspaces } from '../workspace/workspaces.ts'

export type TerminalSize = { rows: number; cols: number }
type Request = TerminalSize & {
  project_id: string
  workspace_id?: string | undefined
  command?: string[] | undefined
  term: string
}
export type Terminal = {
  readonly terminal_id: string
  readonly project_id: string
  /** Input and output of the program. It ends after the last output. */
  readonly bytes: Socket
  /** Without a wait; sizes that arrive while one is being set are combined. */
  resize(size: TerminalSize): void
  /** Rejects if the terminal ended for another reason than its program. */
  readonly ended: Promise<{ exit_code: number }>
  /** Hangs up: everything in the terminal is ended. Safe to repeat. */
  close(): void
}

type Deps = {
  config: Config
  git: Pick<GitUse, 'issue'>
  byteStreams: ByteStreams
  attached: Pick<Attached, 'ensure'>
  workspaces: Pick<Workspaces, 'rootOf'>
  log: Log
}

const interrupted = (error: unknown) =>
  error instanceof Fault && error.kind === 'unavailable'
    ? new Fault('unavailable', `the terminal was interrupted: ${error.message}`, {
        hint: 'the container stopped, restarted or does not respond',
        cause: error,
      })
    : error

/** Counts by key; the returned function frees the place once. */
function createCount(most: number, whose: string, setting: string) {
  const open = new Map<string, number>()
  return (key: string): (() => void) => {
    const count = open.get(key) ?? 0
    if (count >= most)
      throw new Fault('exhausted', `${whose} has ${most} open terminals, which is the limit`, {
        hint: `close one before you open another; the limit is ${setting} in the config`,
      })
    open.set(key, count + 1)
    let held = true
    return () => {
      if (!held) return
      held = false
      const left = open.get(key)! - 1
      if (left > 0) open.set(key, left)
      else open.delete(key)
    }
  }
}

function createResize(link: SupervisorLink, terminal_id: string, log: Log) {
  let wanted: TerminalSize | undefined
  let sending = false
  return async (size: TerminalSize): Promise<void> => {
    wanted = size
    if (sending) return
    sending = true
    try {
      while (wanted) {
        const next = wanted
        wanted = undefined
        await link.send('terminal_resize', { terminal_id, ...next })
      }
    } catch (error) {
      // It may have ended meanwhile; a terminal of another size still works.
      log.debug('failed to resize a terminal', { terminal_id, reason: messageOf(error) })
    } finally {
      sending = false
    }
  }
}

export function createTerminals(deps: Deps) {
  const { per_project, per_token } = deps.config.terminals
  const ofProject = createCount(per_project, 'this project', 'terminals.per_project')
  const ofToken = createCount(per_token, 'this token', 'terminals.per_token')

  async function connect(
    link: SupervisorLink,
    request: Request & { working_dir: string },
    signal: AbortSignal,
  ): Promise<Terminal> {
    const { project_id, command, term, rows, cols, working_dir } = request
    const terminal_id = newTerminalId()
    const closing = new AbortController()
    const resize = createResize(link, terminal_id, deps.log)
    const { key, arrived } = deps.byteStreams.expect(project_id, AbortSignal.any([signal, closing.signal]))
    const issued = deps.git.issue(project_id, services)
    const ended = link
      .send(
        'terminal',
        {
          terminal_id,
          key,
          ...(command ? { command } : {}),
          working_dir,
          term,
          rows,
          cols,
          git_key: issued.key,
        },
        { signal: closing.signal },
      )
      .catch((error: unknown) => {
        throw interrupted(error)
      })
      .finally(() => issued[Symbol.dispose]())
    // Also awaited by those who use the terminal, later.
    ended.catch(() => undefined)
    try {
      const bytes = await Promise.race([
        arrived,
        ended.then(() => {
          throw new Fault('unavailable', 'the terminal ended before it was connected')
        }),
      ])
      ended.catch(() => bytes.destroy())
      return {
        terminal_id,
        project_id,
        bytes,
        resize: (size) => void resize(size),
        ended,
        close() {
          closing.abort(new Fault('conflict', 'the terminal was closed'))
          bytes.destroy()
        },
      }
    } catch (error) {
      closing.abort(error)
      // A connection that arrives later has no reader.
      arrived.then((socket) => socket.destroy()).catch(() => undefined)
      throw error
    }
  }

  async function open(
    caller: Pick<Caller, 'kind' | 'id' | 'token_id'>,
    request: Request,
    hooks: ExecHooks,
  ): Promise<Terminal> {
    const { project_id, workspace_id } = request
    const places = [ofProject(project_id)]
    const free = () => {
      for (const place of places) place()
    }
    try {
      places.push(ofToken(caller.token_id ?? `${caller.kind}:${caller.id}`))
      const { inside } = await deps.workspaces.rootOf(project_id, workspace_id)
      const link = await deps.attached.ensure(project_id, hooks)
      const terminal = await connect(link, { ...request, working_dir: inside }, hooks.signal)
      terminal.ended.then(free, free)
      return terminal
    } catch (error) {
      free()
      throw error
    }
  }

  return { open }
}
