// Drives an agent that speaks the Agent Client Protocol on stdio. The library is loaded when the first such droid starts, to
// keep a supervisor that only runs scripts small.
import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import type { ClientContext, ContentBlock } from '@agentclientprotocol/sdk'
import type { AgentSetup } from '../../agents/agent.ts'
import { Fault, messageOf } from '../../fault.ts'
import { lockLimit, withLockLimit } from '../../lib/process/lock-limit.ts'
import { endProcesses, lowerPriority } from '../../lib/process/processes.ts'
import type { Autonomy } from '../../protocol/messages.ts'
import { decide, optionFor, type PermissionOption } from '../autonomy.ts'
import type { Droid, DroidTurn, Gone, PermissionOutcome, Sink, TurnEnd } from '../droid.ts'
import { outOfMemory } from '../process/out-of-memory.ts'
import { normalizedUsage } from '../usage.ts'
import { openAgent } from './session.ts'
import { acpStream } from './stream.ts'
import { createUpdates } from './updates.ts'

export type AcpOptions = {
  session_id: string
  workspace_dir: string
  env: Record<string, string>
  command: string
  args: string[]
  /** Whether bash is available to set the lock limit that marks processes; see `internal/lib/process/lock-limit.ts`. */
  marked: boolean
  autonomy: Autonomy
  setup: AgentSetup
  /** Time limit of a request that opens the session. */
  answer_seconds: number
  /** Longest time without output in a turn. */
  silence_seconds: number
  resume?: { agent_session_id: string }
  mcp_servers: { name: string; command: string; args: string[]; env: Record<string, string> }[]
  sink: Sink
}

const stderrChars = 4096
/** Updates may arrive after the answer to the prompt; a turn ends when none arrived for this long. */
const settleMs = 60
const maxSettleMs = 1000

function watch(child: ChildProcess) {
  let stderr = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-stderrChars)
  })
  return new Promise<Gone>((resolve) => {
    const gone = (what: string, exit_code: number | null, signal: string | null) => {
      const last = stderr.trim().toWellFormed()
      resolve({ reason: last === '' ? what : `${what}: ${last}`, exit_code, signal })
    }
    child.once('error', (error) => gone(`failed to start the agent: ${error.message}`, null, null))
    child.once('close', (code, signal) => {
      const killed = signal === 'SIGKILL' || code === 137
      const how = signal ? `the agent was killed by ${signal}` : `the agent exited with exit code ${code}`
      gone((killed ? outOfMemory() : undefined) ?? how, code, signal)
    })
  })
}

const idleChecks = 20

/**
 * Detects an agent that hangs in a turn: no output, no open question and no running tool. Settles after `limit_ms` of
 * inactivity. Time is counted in timer ticks, so that a pause of the container does not count.
 */
function createIdleTimeout(options: {
  limit_ms: number
  /** Changes with every output of the agent. */
  lastActivity: () => number
  /** The turn waits for something other than the agent. */
  suspended: () => boolean
}) {
  const { promise: expired, resolve } = Promise.withResolvers<void>()
  const tick_ms = options.limit_ms / idleChecks
  let last = options.lastActivity()
  let idle = 0
  const timer = setInterval(() => {
    const now = options.lastActivity()
    idle = now !== last || options.suspended() ? 0 : idle + 1
    last = now
    if (idle >= idleChecks) resolve()
  }, tick_ms)
  return { expired, [Symbol.dispose]: () => clearInterval(timer) }
}

/** A turn as ACP content: the text, and each file as a link, or as an image if the agent accepts images. */
function promptBlocks(turn: DroidTurn, images: boolean): ContentBlock[] {
  return [
    { type: 'text', text: turn.text },
    ...turn.files.map(({ path, media_type }): ContentBlock => {
      if (images && media_type?.startsWith('image/'))
        return { type: 'image', mimeType: media_type, data: readFileSync(path).toString('base64') }
      return {
        type: 'resource_link',
        name: basename(path),
        uri: pathToFileURL(path).href,
        ...(media_type ? { mimeType: media_type } : {}),
      }
    }),
  ]
}

export function startAcp(options: AcpOptions): Droid {
  const { sink } = options
  const mark = `OUBLIETTE_SESSION_ID=${options.session_id}`
  const [program = '', ...args] = options.marked
    ? withLockLimit(lockLimit(mark), [options.command, ...options.args])
    : [options.command, ...options.args]
  const child = spawn(program, args, {
    cwd: options.workspace_dir,
    env: options.env,
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
  })
  lowerPriority(child)
  // Write errors after the agent's exit are expected; the exit itself is reported.
  child.stdin.on('error', () => {})
  const died = watch(child)
  const updates = createUpdates((event) => sink.emit(event))
  const asked = new Map<string, (outcome: PermissionOutcome) => void>()
  let replaying = options.resume !== undefined
  let ending = false
  let agent: { context: ClientContext; sessionId: string; images: boolean } | undefined
  let turning: Promise<TurnEnd> | undefined
  let cancelled = false
  let killed_for: string | undefined

  async function permission(toolCall: Record<string, unknown>, choices: PermissionOption[]) {
    const answered = (option: string | undefined) => ({
      outcome:
        option === undefined
          ? { outcome: 'cancelled' as const }
          : { outcome: 'selected' as const, optionId: option },
    })
    if (cancelled || ending) return answered(undefined)
    // Some agents announce a tool call only by asking for permission.
    if (!updates.hasCall(toolCall.toolCallId)) updates.take({ ...toolCall, sessionUpdate: 'tool_call' })
    const granted = optionFor({ outcome: 'allow' }, choices)
    if (decide(options.autonomy, toolCall.kind as string | null) === 'allow' && granted !== undefined)
      return answered(granted)
    const request_id = `req_${randomUUID()}`
    const { promise, resolve } = Promise.withResolvers<PermissionOutcome>()
    asked.set(request_id, resolve)
    sink.emit({
      type: 'permission_request',
      request_id,
      tool_call: toolCall,
      options: choices.map(({ optionId, name, kind }) => ({ option_id: optionId, name, kind })),
    })
    const outcome = await promise
    asked.delete(request_id)
    sink.answered(request_id)
    return answered(optionFor(outcome, choices))
  }
  const withdraw = () => {
    for (const resolve of asked.values()) resolve({ outcome: 'cancelled' })
  }

  const stream = acpStream(child.stdin, child.stdout, sink, (update) => {
    // A loaded conversation is replayed from its beginning; its events are already stored.
    if (!replaying) updates.take(update)
  })
  const opening = openAgent(stream, options, permission).catch(async (error: unknown) => {
    // A crashing agent closes its pipe first; its exit, which follows at once, is the better explanation.
    await Promise.race([died, delay(settleMs)])
    throw error
  })
  const ready = Promise.race([
    opening,
    died.then(({ reason }) => Promise.reject(new Fault('unavailable', reason))),
  ]).then(async (opened) => {
    if (replaying) await delay(settleMs)
    replaying = false
    agent = opened
    const { sessionId: agent_session_id, resumed, resumable, why_not_resumed } = opened
    return {
      agent_session_id,
      resumed,
      resumable,
      ...(why_not_resumed === undefined ? {} : { why_not_resumed }),
    }
  })

  async function settle(): Promise<void> {
    const until = performance.now() + maxSettleMs
    do await delay(settleMs)
    while (performance.now() - updates.last_ms < settleMs && performance.now() < until)
  }

  /** Kills the agent. The session reports the reason and can be resumed by a new process. */
  function killIdle(): string {
    killed_for = `the agent produced no output for ${options.silence_seconds} s and was killed`
    void endProcesses(mark, child.pid, 0)
    return killed_for
  }

  async function prompt(turn: DroidTurn): Promise<TurnEnd> {
    if (!agent) throw new Fault('internal', 'the agent is not ready')
    updates.beginTurn(turn.turn_id)
    const asking = agent.context.request<{
      stopReason: string
      usage?: unknown
      _meta?: { usage?: unknown }
    }>('session/prompt', { sessionId: agent.sessionId, prompt: promptBlocks(turn, agent.images) })
    using idle = createIdleTimeout({
      limit_ms: options.silence_seconds * 1000,
      lastActivity: () => updates.last_ms,
      // Output is not read while the sink has no room.
      suspended: () => asked.size > 0 || updates.open_calls > 0 || sink.room() !== undefined,
    })
    const outcome = await Promise.race([
      asking.then(
        (answer) => ({ answer }),
        (error) => ({ error: messageOf(error) }),
      ),
      died.then(({ reason }) => ({ error: reason })),
      idle.expired.then(() => ({ error: killIdle() })),
    ])
    await settle()
    const final_text = updates.endTurn()
    if ('error' in outcome)
      return { stop_reason: cancelled ? 'cancelled' : 'error', final_text, error: outcome.error }
    const reported = outcome.answer.usage ?? outcome.answer._meta?.usage
    if (typeof reported !== 'object' || reported === null)
      return { stop_reason: outcome.answer.stopReason, final_text }
    const usage = normalizedUsage(reported)
    sink.emit({ ...usage, type: 'usage', turn_id: turn.turn_id })
    return { stop_reason: outcome.answer.stopReason, final_text, usage }
  }

  async function stop(grace_ms: number): Promise<void> {
    ending = true
    withdraw()
    await endProcesses(mark, child.pid, grace_ms)
  }

  return {
    ready,
    gone: new Promise((resolve) => {
      void died.then((gone) => !ending && resolve({ ...gone, reason: killed_for ?? gone.reason }))
    }),
    async turn(turn) {
      cancelled = false
      turning = prompt(turn).catch((error) => ({
        stop_reason: 'error',
        final_text: '',
        error: messageOf(error),
      }))
      const end = await turning
      turning = undefined
      return end
    },
    async cancel(grace_ms) {
      if (!turning || !agent) return
      cancelled = true
      withdraw()
      await agent.context.notify('session/cancel', { sessionId: agent.sessionId }).catch(() => {})
      const grace = new AbortController()
      const stopped = await Promise.race([
        turning.then(() => true),
        delay(grace_ms, false, { signal: grace.signal }).catch(() => true),
      ])
      grace.abort()
      // An agent that ignores the cancellation is killed; the session can be resumed by a new process.
      if (!stopped) await endProcesses(mark, child.pid, grace_ms)
      await turning
    },
    answer(request_id, outcome) {
      const resolve = asked.get(request_id)
      resolve?.(outcome)
      return resolve !== undefined
    },
    async end(grace_ms) {
      await stop(grace_ms)
      await turning
    },
  }
}
