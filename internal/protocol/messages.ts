// Every message between the server and the programs in a container.
//
// One Unix socket per container; the socket identifies the container. Frames are newline-delimited JSON-RPC 2.0.
// The first frame selects the kind of connection:
//
// 1. Supervisor: `hello {role: 'supervisor', …}`. One at a time per container; a second one is refused while the first
//    is connected. The server answers with what it has committed of each session and with the sessions it does not
//    know (those are killed and dropped). From then on
//    - server → supervisor: the commands below (`SupervisorCommands`). Those with a `command_id` are executed at most
//      once, also over restarts of either side: repeat them until answered, the answer will be the same. They answer as
//      soon as they are accepted; events report the outcome.
//    - supervisor → server: `events {session_id, events}`, answered by `{committed_seq}` after the commit, or by
//      `{unknown: true}`. Sequence numbers start at 0 per session (or at `next_seq` of `start_session`) and have no gap.
//      A batch may repeat what is committed already; a batch never leaves a gap behind `committed_seq`.
//    - supervisor → server: `execs_ended {execs}`, answered by `{settled}` after the commit: how detached commands ended.
//      It is repeated, here or in the next hello, until it is settled.
// 2. Droid side: `oubliette-client mcp`, `oubliette-client call`, or any program that speaks the protocol. Either `hello
//    {role: 'droid', api_key}` once, or `api_key` in the parameters of each request. Methods: `droidMethods`.
//
// In both directions `cancel {id}` cancels a request and `progress {id, progress, total?, message?}` reports its progress.
//
// The proof in the supervisor's hello is a secret that the server writes beside the socket, readable by the container's
// user. It shows that the speaker can read that directory, which the socket's own mode shows as well; it is there for
// uplinks that are not a Unix socket. Droids run as the same user as the supervisor, so within one container it is no
// wall between them, and neither would any other secret be: the wall is the container.

import { z } from 'zod'
import { patterns } from '../ids.ts'
import { type FinalStatus, sessionStatuses } from './session-status.ts'

/** A list that is refused at its first invalid entry: describing thousands of errors costs more than the validation. */
const listOf = <T>(entry: z.ZodType<T>, most: number, least = 0) =>
  z
    .array(z.unknown())
    .min(least)
    .max(most)
    .transform((given, context): T[] => {
      const entries: T[] = []
      for (const [at, one] of given.entries()) {
        const parsed = entry.safeParse(one)
        if (!parsed.success) {
          const [issue] = parsed.error.issues
          context.addIssue({ code: 'custom', message: issue!.message, path: [at, ...issue!.path] })
          return z.NEVER
        }
        entries.push(parsed.data)
      }
      return entries
    })

const session_id = z.string().regex(patterns.session)
const seq = z.int().min(0)
const committed = z.int().min(-1)
const name = z.string().min(1).max(200)

const eventTypes = [
  'status',
  'message',
  'delta',
  'thought',
  'tool_call',
  'tool_result',
  'plan',
  'usage',
  'permission_request',
  'completion',
  'error',
  'warning',
  'update',
] as const

/**
 * What the supervisor reports about a session. Fields by type, next to `turn_id` where a turn is under way:
 * - status {status, reason?, agent_session_id?, resumed?, resumable?, requires?, exit_code?, signal?}
 * - delta {text, stream: 'stdout' | 'stderr'} (shell) or {text, role: 'assistant'} (acp); message {role, text}; thought {text}
 * - tool_call {tool_call_id, title, kind, status, input, content, locations}; tool_result {tool_call_id, status, content, output}
 * - plan {entries}; usage {input_tokens?, output_tokens?, cache_read_tokens?, cost_usd?, …}; update {update} for whatever has no type of its own
 * - permission_request {request_id, tool_call, options: [{option_id, name, kind}]}
 * - completion {final_text, stop_reason, exit_code?, usage?}: exactly one for each accepted turn. `stop_reason` is ACP's
 *   (end_turn, max_tokens, max_turn_requests, refusal, cancelled), or `error` (droid died, script's exit code not 0), or
 *   `not_run` (the session was over before its turn came)
 * - error {message, …}; warning {message, dropped_events, dropped_bytes}: what an ended session said and was not stored
 */
const supervisorEvent = z.looseObject({ seq, type: z.enum(eventTypes), at: z.iso.datetime() })
export type SupervisorEvent = z.infer<typeof supervisorEvent>

export const eventBatch = z.strictObject({ session_id, events: listOf(supervisorEvent, 10_000, 1) })
export type EventBatch = z.infer<typeof eventBatch>
export type EventsAnswer = { committed_seq: number } | { unknown: true }

const sessionState = z.strictObject({
  session_id,
  status: z.enum(sessionStatuses),
  /** Whether its droid is there to take prompts. */
  live: z.boolean(),
  last_seq: committed,
  agent_session_id: z.string().nullable(),
  turn_id: z.string().nullable(),
  queued_turn_ids: z.array(z.string()),
  /** Of its processes, in answers to `state`. */
  memory_bytes: z.int().min(0).optional(),
})
export type SessionState = z.infer<typeof sessionState>

/** The end of a detached command. `lost`: not observed, because the container ended first. */
const execEnding = z.strictObject({
  exec_id: z.string().regex(patterns.exec),
  status: z.enum(['exited', 'timed_out', 'killed', 'lost']),
  exit_code: z.int().min(0).max(255).nullable(),
  reason: z
    .string()
    .max(500)
    // The database has no place for it.
    .transform((text) => text.replaceAll('\0', ''))
    .nullable(),
  ended_at: z.iso.datetime(),
  /** All that was written, also what was not kept. */
  stdout_bytes: z.int().min(0),
  stderr_bytes: z.int().min(0),
})
export type ExecEnding = z.infer<typeof execEnding>

export const execsEnded = z.strictObject({ execs: listOf(execEnding, 1000, 1) })
export type ExecsEnded = z.infer<typeof execsEnded>
/** The reported commands that need not be reported again. */
export type ExecsSettled = { settled: string[] }

export const supervisorHello = z.strictObject({
  role: z.literal('supervisor'),
  protocol: z.int(),
  client_version: name,
  proof: z.string().max(200),
  /** New at each start of the supervisor, that is of the container. */
  boot_id: name,
  sessions: listOf(sessionState, 10_000),
  /** Detached commands: those that run, and those whose end is not settled. An older client sends none. */
  execs: z
    .strictObject({
      running: listOf(z.string().regex(patterns.exec), 1000),
      ended: listOf(execEnding, 1000),
    })
    .default({ running: [], ended: [] }),
})
export type SupervisorHello = z.infer<typeof supervisorHello>
export type HelloAnswer = {
  /** Of each session in the hello that the server knows: the last sequence number it has, -1 if none. */
  committed: Record<string, number>
  /** Of the hello, but unknown or over for good: killed and dropped by the supervisor. */
  unknown: string[]
  /** Detached commands of the hello that the server does not know: killed and dropped by the supervisor. */
  unknown_execs: string[]
  settled_execs: string[]
}

export const droidHello = z.strictObject({
  role: z.literal('droid'),
  protocol: z.int().optional(),
  api_key: z.string().min(1).max(8192),
})

const key = { api_key: z.string().min(1).max(8192).optional() }
/** Not validated further: a schema would visit and copy each of many fields. */
const args = z.custom<Record<string, unknown>>(
  (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  'must be an object',
)
/** Set by the caller, so that a repeat after a lost connection joins the call that is still open. */
const call_id = z.string().min(8).max(100).optional()

/** CONTRACT, "Socket". The key may be left out after a `hello` that gave it. */
export const droidMethods = {
  oubliette_tools: z.strictObject({ ...key }),
  oubliette_call_tool: z.strictObject({ ...key, tool: name, arguments: args.default({}), call_id }),
  caller_tools: z.strictObject({ ...key }),
  caller_tool: z.strictObject({ ...key, tool: name, arguments: args.default({}), call_id }),
  session_message: z.looseObject({ ...key, message: z.string() }),
  session_events: z.looseObject({ ...key, session_id, since_index: z.int().min(-1).default(-1) }),
} as const
export type DroidMethod = keyof typeof droidMethods
export type DroidParams<M extends DroidMethod> = Omit<z.infer<(typeof droidMethods)[M]>, 'api_key'>

const attachment = z.strictObject({
  name,
  media_type: z.string().optional(),
  encoding: z.enum(['utf8', 'base64']).default('utf8'),
  data: z.string(),
})
export type Attachment = z.infer<typeof attachment>
export type Autonomy = 'off' | 'low' | 'medium' | 'high'
export type Turn = { turn_id: string; text: string; attachments?: Attachment[] }

export type StartSession = {
  command_id: string
  session_id: string
  /** One after the last sequence number that the server has, so that a lost journal leaves no gap and no clash. */
  next_seq?: number
  droid: {
    kind: 'shell' | 'acp'
    command?: string
    args?: string[]
    env?: Record<string, string>
    /** Which agent it is, if one whose settings the client knows. */
    agent?: string
    /** The container type that has it. */
    image?: string
  }
  workspace_dir: string
  env?: Record<string, string>
  api_key?: string
  autonomy?: Autonomy
  model?: string
  reasoning_level?: string
  tools_allowed?: string[]
  tools_disallowed?: string[]
  /** The model provider that it uses through the server, which counts what it uses. */
  provider?: string
  /** Time limit of a request that opens the session, and of inactivity in a turn. */
  agent_limits?: { answer_seconds: number; silence_seconds: number }
  /** Resume an earlier conversation if the agent supports it; `resumed` in the next status reports whether it did. */
  resume?: { agent_session_id: string }
  turn?: Turn
}
export type PromptCommand = { command_id: string; session_id: string } & Turn
/** Without `turn_id`: the running turn. */
export type CancelCommand = {
  command_id: string
  session_id: string
  turn_id?: string
  grace_seconds?: number
}
export type EndCommand = {
  command_id: string
  session_id: string
  status?: FinalStatus
  reason?: string
  grace_seconds?: number
}
export type PermissionAnswer = {
  command_id: string
  session_id: string
  request_id: string
  outcome: { outcome: 'selected'; option_id: string } | { outcome: 'allow' | 'deny' | 'cancelled' }
}
/** A command to run in a container. */
export type ExecRequest = {
  command: string[]
  working_dir?: string
  env?: Record<string, string>
  stdin?: string
  timeout_seconds: number
  output_bytes: number
}
export type ExecCommand = ExecRequest & {
  /** The key that git in this command presents to the git proxy of the server. */
  git_key?: string
}
/** Accepted once for each `exec_id`; a repeat changes nothing. */
export type ExecStart = ExecCommand & {
  exec_id: string
  /** Detached commands that may run at once, those that are over and kept, and the bytes of all their output. */
  most_running: number
  most_kept: number
  total_bytes: number
}
/** Answers when more output than this is kept, when the command is over, or after `wait_ms`. */
export type ExecWait = { exec_id: string; stdout_offset: number; stderr_offset: number; wait_ms: number }
export const killSignals = [
  'SIGKILL',
  'SIGTERM',
  'SIGINT',
  'SIGHUP',
  'SIGQUIT',
  'SIGUSR1',
  'SIGUSR2',
] as const
/** To everything that the command started. `SIGKILL` answers when all of it is gone. */
export type ExecKill = { exec_id: string; signal: (typeof killSignals)[number] }

/** A terminal. Its bytes travel on a connection of their own, which the supervisor opens with the single-use key. */
export type TerminalCommand = {
  terminal_id: string
  key: string
  /** Without one, a login shell. */
  command?: string[]
  working_dir: string
  /** Type of the caller's terminal, as in `TERM`. */
  term: string
  rows: number
  cols: number
  git_key?: string
}
export type TerminalResize = Pick<TerminalCommand, 'terminal_id' | 'rows' | 'cols'>

const accepted = z.strictObject({ accepted: z.literal(true) })
const execResult = z.strictObject({
  exit_code: z.int(),
  stdout: z.string(),
  stderr: z.string(),
  truncated: z.boolean(),
  timed_out: z.boolean(),
  duration_ms: z.number(),
})
const supervisorState = z.strictObject({
  boot_id: name,
  rss_bytes: z.int(),
  sessions: listOf(sessionState, 10_000),
})

const count = z.number().min(0).max(Number.MAX_SAFE_INTEGER)
const processList = z.strictObject({
  /** Of the session, also those that are not listed. */
  total: z.int().min(0),
  processes: listOf(
    z.strictObject({
      pid: z.int().min(0),
      ppid: z.int().min(0),
      command: z.string().max(200),
      cpu_seconds: count,
      cpu_percent: count,
      memory_bytes: z.int().min(0),
    }),
    200,
  ),
})

/** The answer of each command, validated because a container is not trusted. */
export const commandResults = {
  start_session: accepted,
  prompt: accepted,
  cancel: accepted,
  end: accepted,
  permission_answer: accepted,
  hibernate: accepted,
  forget: accepted,
  exec: execResult,
  exec_start: accepted,
  exec_wait: accepted,
  exec_kill: accepted,
  terminal: z.strictObject({ exit_code: z.int().min(0).max(255) }),
  terminal_resize: accepted,
  ping: z.strictObject({ now: z.iso.datetime() }),
  state: supervisorState,
  processes: processList,
} as const
export type CommandName = keyof typeof commandResults

export type CommandParams = {
  start_session: StartSession
  prompt: PromptCommand
  cancel: CancelCommand
  /** Answers when everything the session started is gone and its terminal event is journalled. */
  end: EndCommand
  permission_answer: PermissionAnswer
  /** Stops the process of an idle agent; refused while there is a turn. Answers when it is gone; there is no event. */
  hibernate: { command_id: string; session_id: string }
  /** Kill what is left of it and remove its journal. */
  forget: { session_id: string }
  /** Its output is also sent as progress while it runs. The command ends with the connection. */
  exec: ExecCommand
  exec_start: ExecStart
  exec_wait: ExecWait
  exec_kill: ExecKill
  /** Answers when the terminal has ended and all its processes are gone. It ends with the connection. */
  terminal: TerminalCommand
  terminal_resize: TerminalResize
  ping: Record<string, never>
  state: Record<string, never>
  /** The processes of one session, measured for a fraction of a second. */
  processes: { session_id: string }
}
export type CommandResult<C extends CommandName> = z.infer<(typeof commandResults)[C]>
