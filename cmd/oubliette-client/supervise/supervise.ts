// The container's main process and the parent of all droids. It runs whether or not the server is connected: it recovers
// existing journals, connects, sends unacknowledged events, and executes each command at most once.
import { randomUUID } from 'node:crypto'
import { readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type ExecResult, exec } from '../../../internal/droid/command/exec.ts'
import { noteOutOfMemory } from '../../../internal/droid/process/out-of-memory.ts'
import { memoryBySession, processesOf } from '../../../internal/droid/process/table.ts'
import { Fault } from '../../../internal/fault.ts'
import type { Log } from '../../../internal/log.ts'
import { frameBytes } from '../../../internal/protocol/frames.ts'
import type {
  ExecCommand,
  ExecKill,
  ExecStart,
  ExecWait,
  HelloAnswer,
  StartSession,
} from '../../../internal/protocol/messages.ts'
import type { Handlers, Peer } from '../../../internal/protocol/peer.ts'
import { protocolVersion } from '../../../internal/protocol/wire.ts'
import { readEnvironment, socketOf } from '../environment.ts'
import { version } from '../version.ts'
import { openDetached } from './exec/detached.ts'
import { withGit } from './git.ts'
import { listenForMcp } from './mcp-listener.ts'
import { listenForModels } from './models.ts'
import { openSession, type Session } from './session/session.ts'
import { terminalHandlers } from './terminals.ts'
import { keepConnected } from './uplink.ts'

/** Ended sessions that are kept, so that a late repeat of a command gets its answer. */
const maxQuietSessions = 1000
const shutdownMs = 3000

/** Room for the rest of the frame. */
const resultBytes = frameBytes - 64 * 1024

/** Cuts output until the result fits into a frame. JSON can make text six times as long, so the JSON is measured. */
export function fitFrame(result: ExecResult, room = resultBytes): ExecResult {
  let fitted = result
  while (Buffer.byteLength(JSON.stringify(fitted)) > room) {
    const longest = fitted.stdout.length >= fitted.stderr.length ? 'stdout' : 'stderr'
    const text = fitted[longest]
    fitted = {
      ...fitted,
      [longest]: text.slice(0, Math.floor(text.length * 0.75)).toWellFormed(),
      truncated: true,
    }
  }
  return fitted
}

export async function supervise(env: NodeJS.ProcessEnv, log: Log, signal: AbortSignal): Promise<void> {
  const models = await listenForModels(socketOf(env), log)
  const mcp = await listenForMcp(socketOf(env), log)
  const environment = readEnvironment(env, log, { models_url: models.url, mcp_port: mcp.port })
  const boot_id = randomUUID()
  // Read once: a droid may delete or rename the directory, and another one may take its name.
  const default_dir = process.cwd()
  const detached = openDetached(environment, default_dir)
  const sessions = new Map<string, Session>()
  let peer: Peer | undefined

  const forget = async (session_id: string): Promise<void> => {
    const session = sessions.get(session_id)
    sessions.delete(session_id)
    await session?.drop()
    rmSync(join(environment.scratch_dir, session_id), { recursive: true, force: true })
  }
  const open = (session_id: string): Session => {
    const session = openSession(session_id, environment, () => void forget(session_id))
    sessions.set(session_id, session)
    return session
  }
  const known = (session_id: string): Session => {
    const session = sessions.get(session_id)
    if (!session) throw new Fault('not_found', `this container has no session ${session_id}`)
    return session
  }
  const prune = () => {
    const quiet = [...sessions.values()].filter((session) => session.quiet)
    for (const session of quiet.slice(0, Math.max(0, quiet.length - maxQuietSessions)))
      void forget(session.session_id)
  }

  const past = readdirSync(environment.journal_dir, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && /^gogol_[0-9a-z]+$/.test(entry.name))
    .map(({ name }) => ({ name, at: statSync(join(environment.journal_dir, name)).mtimeMs }))
    .sort((a, b) => a.at - b.at)
  for (const { name } of past)
    try {
      open(name).recover()
    } catch (error) {
      // A droid has modified or locked the files. The server fails the session, since no supervisor reports it.
      log.warn('failed to recover a session', { session_id: name, error })
      sessions.delete(name)
    }
  prune()

  const passOn =
    (name: 'prompt' | 'cancel' | 'end' | 'permission_answer' | 'hibernate') =>
    (params: unknown): Promise<unknown> => {
      const command = params as { session_id: string; command_id: string }
      return known(command.session_id).execute(name, command)
    }
  const handlers: Handlers = {
    start_session(params) {
      const command = params as StartSession
      const session = sessions.get(command.session_id) ?? open(command.session_id)
      if (peer) session.sender.attach(peer, session.acked_seq)
      prune()
      return session.execute('start_session', command)
    },
    prompt: passOn('prompt'),
    cancel: passOn('cancel'),
    end: passOn('end'),
    permission_answer: passOn('permission_answer'),
    hibernate: passOn('hibernate'),
    async forget(params) {
      await forget((params as { session_id: string }).session_id)
      return { accepted: true }
    },
    async exec(params, call) {
      const { git_key, ...request } = params as ExecCommand
      let reports = 0
      const env = withGit({ ...environment.env, ...request.env }, environment, git_key)
      const result = await exec(
        { ...request, env },
        {
          env: environment.env,
          default_dir,
          scratch_dir: environment.scratch_dir,
          pipes: environment.pipes,
          signal: call.signal,
          on_output: (message) => call.progress({ progress: ++reports, message }),
        },
      )
      return fitFrame(result)
    },
    exec_start: (params) => detached.start(params as ExecStart),
    exec_wait: (params, { signal: over }) => detached.wait(params as ExecWait, over),
    exec_kill: (params) => detached.kill(params as ExecKill),
    ...terminalHandlers(environment),
    ping: () => ({ now: new Date().toISOString() }),
    processes: (params) => processesOf((params as { session_id: string }).session_id),
    state: () => {
      const memory = memoryBySession()
      noteOutOfMemory()
      return {
        boot_id,
        rss_bytes: process.memoryUsage.rss(),
        sessions: [...sessions.values()]
          .filter((it) => !it.quiet)
          .map((it) => ({ ...it.state(), memory_bytes: memory.get(it.session_id) ?? 0 })),
      }
    },
  }

  await keepConnected({
    socket: environment.socket,
    handlers,
    log,
    signal,
    hello: () => ({
      role: 'supervisor',
      protocol: protocolVersion,
      client_version: version,
      proof: environment.proof(),
      boot_id,
      sessions: [...sessions.values()].filter((it) => !it.quiet).map((it) => it.state()),
      execs: detached.state(),
    }),
    connected(to, raw) {
      const answer = raw as HelloAnswer
      peer = to
      for (const session_id of answer.unknown) void forget(session_id)
      for (const [session_id, session] of sessions)
        session.sender.attach(to, answer.committed[session_id] ?? session.acked_seq)
      detached.connected(to, answer)
    },
  })
  // A droid that waits for a disconnected server must not delay the container's stop.
  await Promise.race([
    Promise.all([...sessions.values()].map((session) => session.end(shutdownMs))),
    delay(shutdownMs + 1000, undefined, { ref: false }),
  ])
  environment.pipes.dispose()
  models.close()
  mcp.close()
}
