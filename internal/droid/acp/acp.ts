// Any agent that speaks the Agent Client Protocol on stdio. The library is loaded when the first such droid starts,
// because a supervisor that only runs scripts should stay small.
import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import type { ClientContext, ContentBlock } from '@agentclientprotocol/sdk'
import type { AgentSetup } from '../../agents/agent.ts'
import { Fault, messageOf } from '../../fault.ts'
import type { Autonomy } from '../../protocol/messages.ts'
import { decide, optionFor, type PermissionOption } from '../autonomy.ts'
import type { Droid, DroidTurn, Gone, PermissionOutcome, Sink, TurnEnd } from '../droid.ts'
import { lockLimit, withLockLimit } from '../process/lock-limit.ts'
import { outOfMemory } from '../process/out-of-memory.ts'
import { endProcesses, lowerPriority } from '../process/processes.ts'
import { openAgent } from './session.ts'
import { acpStream } from './stream.ts'
import { createUpdates } from './updates.ts'

export type AcpOptions = {
  session_id: string
  workspace_dir: string
  env: Record<string, string>
  command: string
  args: string[]
  /** There is a bash to set the mark that outlives the environment. */
  marked: boolean
  autonomy: Autonomy
  setup: AgentSetup
  /** How long it may take to answer a request of the opening. */
  answer_seconds: number
  /** How long it may be silent in a turn. */
  silence_seconds: number
  resume?: { agent_session_id: string }
  mcp_servers: { name: string; command: string; args: string[]; env: Record<string, string> }[]
  sink: Sink
}

const stderrChars = 4096
/** Updates may come after the answer to the prompt; a turn closes when none came for this long. */
const lateMs = 60
const lateAtMostMs = 1000

function watch(child: ChildProcess) {
  let complaint = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    complaint = (complaint + text).slice(-stderrChars)
  })
  return new Promise<Gone>((resolve) => {
    const gone = (what: string, exit_code: number | null, signal: string | null) => {
      const last = complaint.trim().toWellFormed()
      resolve({ reason: last === '' ? what : `${what}: ${last}`, exit_code, signal })
    }
    child.once('error', (error) => gone(`the agent cannot be started (${error.message})`, null, null))
    child.once('close', (code, signal) => {
      const killed = signal === 'SIGKILL' || code === 137
      const how = signal ? `the agent was ended by ${signal}` : `the agent ended with exit code ${code}`
      gone((killed ? outOfMemory() : undefined) ?? how, code, signal)
    })
  })
}

const looks = 20

/**
 * Settles when nothing was heard for `limit_ms`. Time is counted in ticks, so that a container that was paused meanwhile
 * does not make its agents late.
 */
function createSilence(options: {
  limit_ms: number
  /** Changes with every sign of life. */
  heard: () => number
  /** Something other than the agent is waited for. */
  excused: () => boolean
}) {
  const { promise: over, resolve } = Promise.withResolvers<void>()
  const tick_ms = options.limit_ms / looks
  let last = options.heard()
  let silent = 0
  const timer = setInterval(() => {
    const now = options.heard()
    silent = now !== last || options.excused() ? 0 : silent + 1
    last = now
    if (silent >= looks) resolve()
  }, tick_ms)
  return { over, [Symbol.dispose]: () => clearInterval(timer) }
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
  // Writing to an agent that has gone is not news: its end is told by itself.
  child.stdin.on('error', () => {})
  const died = watch(child)
  const updates = createUpdates((event) => sink.emit(event))
  const asked = new Map<string, (outcome: PermissionOutcome) => void>()
  let replaying = options.resume !== undefined
  let ending = false
  let agent: { context: ClientContext; sessionId: string; images: boolean } | undefined
  let turning: Promise<TurnEnd> | undefined
  let cancelled = false
  let given_up: string | undefined

  async function permission(toolCall: Record<string, unknown>, choices: PermissionOption[]) {
    const answered = (option: string | undefined) => ({
      outcome:
        option === undefined
          ? { outcome: 'cancelled' as const }
          : { outcome: 'selected' as const, optionId: option },
    })
    if (cancelled || ending) return answered(undefined)
    // Some agents tell of a call for the first time by asking for it.
    if (!updates.told(toolCall.toolCallId)) updates.take({ ...toolCall, sessionUpdate: 'tool_call' })
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
    // A conversation that is loaded again is told from its beginning; we have all of it already.
    if (!replaying) updates.take(update)
  })
  const opening = openAgent(stream, options, permission).catch(async (error: unknown) => {
    // An agent that dies closes its pipe first; how it ended says more, and follows at once.
    await Promise.race([died, delay(lateMs)])
    throw error
  })
  const ready = Promise.race([
    opening,
    died.then(({ reason }) => Promise.reject(new Fault('unavailable', reason))),
  ]).then(async (opened) => {
    if (replaying) await delay(lateMs)
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
    const until = performance.now() + lateAtMostMs
    do await delay(lateMs)
    while (performance.now() - updates.last_ms < lateMs && performance.now() < until)
  }

  /** It is ended; the session says why, and can be taken up again by a new process. */
  function giveUp(): string {
    given_up = `the agent said nothing for ${options.silence_seconds} s and was ended`
    void endProcesses(mark, child.pid, 0)
    return given_up
  }

  async function prompt(turn: DroidTurn): Promise<TurnEnd> {
    if (!agent) throw new Fault('internal', 'the agent is not ready')
    updates.beginTurn(turn.turn_id)
    const asking = agent.context.request<{
      stopReason: string
      usage?: unknown
      _meta?: { usage?: unknown }
    }>('session/prompt', { sessionId: agent.sessionId, prompt: promptBlocks(turn, agent.images) })
    using silence = createSilence({
      limit_ms: options.silence_seconds * 1000,
      heard: () => updates.last_ms,
      // While there is no room for what it says, it is not read.
      excused: () => asked.size > 0 || updates.open_calls > 0 || sink.room() !== undefined,
    })
    const outcome = await Promise.race([
      asking.then(
        (answer) => ({ answer }),
        (error) => ({ error: messageOf(error) }),
      ),
      died.then(({ reason }) => ({ error: reason })),
      silence.over.then(() => ({ error: giveUp() })),
    ])
    await settle()
    const final_text = updates.endTurn()
    if ('error' in outcome)
      return { stop_reason: cancelled ? 'cancelled' : 'error', final_text, error: outcome.error }
    const usage = outcome.answer.usage ?? outcome.answer._meta?.usage
    if (usage) sink.emit({ type: 'usage', turn_id: turn.turn_id, ...(usage as object) })
    return { stop_reason: outcome.answer.stopReason, final_text, ...(usage ? { usage } : {}) }
  }

  async function stop(grace_ms: number): Promise<void> {
    ending = true
    withdraw()
    await endProcesses(mark, child.pid, grace_ms)
  }

  return {
    ready,
    gone: new Promise((resolve) => {
      void died.then((gone) => !ending && resolve({ ...gone, reason: given_up ?? gone.reason }))
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
      const patience = new AbortController()
      const stopped = await Promise.race([
        turning.then(() => true),
        delay(grace_ms, false, { signal: patience.signal }).catch(() => true),
      ])
      patience.abort()
      // An agent that does not listen is ended; the session can be taken up again by a new process.
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
