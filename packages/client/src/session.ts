// One session: prompts and their answers, the application's tools, and the end.
import type { Json } from './call.ts'
import { type Answering, type Caller, type CallerTools, declarationOf } from './caller-tools.ts'
import { OublietteError } from './error.ts'
import type { EventsOptions } from './events.ts'
import {
  type Attachment,
  type OpenRequest,
  type SentPrompt,
  type SessionEvent,
  type SessionInfo,
  type SpawnFields,
  type Usage,
  usageSince,
} from './types.ts'

/** Tools that the application offers to the droid; `caller_id` is required with `tools`. */
type Offer = { caller_id: string; tools: CallerTools } | { caller_id?: undefined; tools?: undefined }
/** An existing session, or the fields of a new one. */
export type SessionOptions = ({ session_id: string } | SpawnFields) & Offer

export type PromptOptions = { attachments?: Attachment[]; signal?: AbortSignal }
export type AskOptions = PromptOptions & {
  /** Called with each event of the turn. */
  onEvent?: (event: SessionEvent) => void
  onError?: (error: unknown, request: OpenRequest) => void
}
export type AttendOptions = EventsOptions &
  Offer & {
    /** Called with each event after `since`. */
    onEvent?: (event: SessionEvent) => void
    /** Called with each error of a tool, and with each answer that the server refused. */
    onError?: (error: unknown, request: OpenRequest) => void
  }

/** The end of a turn. */
export type Answer = {
  session_id: string
  turn_id: string
  final_text: string
  /** `end_turn`, `max_tokens`, `max_turn_requests`, `refusal`, `cancelled`, `error` or `not_run`. */
  stop_reason: string
  /** Of the script, if the droid is `shell`. */
  exit_code: number | undefined
  /** Tokens and cost of the session since the prompt was sent. */
  usage: Usage
  /** All events of the turn. */
  events: SessionEvent[]
}

export interface Session {
  /** Undefined until the session is spawned. */
  readonly session_id: string | undefined
  /** Starts the session with its first prompt, and returns at once. */
  spawn(prompt: string, options?: PromptOptions): Promise<SentPrompt>
  /** Sends a message and returns at once; the droid reads it after its running turn. */
  message(text: string, options?: PromptOptions): Promise<SentPrompt>
  /**
   * Sends a prompt, spawning the session if necessary, and returns at the end of the turn. Calls of the session's tools are
   * answered meanwhile. Aborting stops waiting; the turn goes on until `cancel` or `end`.
   */
  ask(prompt: string, options?: AskOptions): Promise<Answer>
  /**
   * Answers calls of the tools, also those that are open from before, and returns the session when it has ended. If the
   * signal is aborted, it rejects with the reason of the signal, and unanswered calls stay open.
   */
  attend(options?: AttendOptions): Promise<SessionInfo>
  events(options?: EventsOptions): AsyncGenerator<SessionEvent, void, undefined>
  get(options?: { signal?: AbortSignal }): Promise<SessionInfo>
  /** Stops the running turn; the session stays usable. */
  cancel(): Promise<SessionInfo>
  /** Ends the session for good, with its droid and its child sessions. */
  end(options?: { wait_seconds?: number }): Promise<SessionInfo>
}

type Parts = {
  /** Retries while the server is unreachable: only for calls that are safe to repeat. */
  call(tool: string, args: Json, signal?: AbortSignal): Promise<Json>
  follow(
    session_id: string,
    options: EventsOptions,
    known?: SessionInfo,
  ): AsyncGenerator<SessionEvent, void, undefined>
  answering: Answering
}

/** `crypto.randomUUID` is missing in browsers on pages without TLS. */
const newKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join(
    '',
  )

const callerOf = ({ caller_id, tools }: Offer): Caller | undefined =>
  caller_id === undefined ? undefined : { caller_id, tools }

export function createSession({ call, follow, answering }: Parts, options: SessionOptions): Session {
  const { caller_id: _id, tools: _tools, ...place } = options
  const own = callerOf(options)
  let session_id = 'session_id' in place ? place.session_id : undefined

  function requireId(): string {
    if (session_id !== undefined) return session_id
    throw new OublietteError({
      kind: 'invalid',
      message: 'the session is not spawned yet',
      hint: 'call spawn or ask first, or give a session_id to client.session',
    })
  }

  /** The key makes a repeated call safe after a lost connection. */
  async function send(fields: Json, { attachments, signal }: PromptOptions): Promise<SentPrompt> {
    const args = {
      ...fields,
      ...(own ? declarationOf(own) : {}),
      ...(attachments ? { attachments } : {}),
      idempotency_key: newKey(),
    }
    const sent = (await call('session', args, signal)) as SentPrompt
    session_id = sent.session_id
    return sent
  }

  async function spawn(prompt: string, options: PromptOptions = {}): Promise<SentPrompt> {
    if ('session_id' in place || session_id !== undefined)
      throw new OublietteError({
        kind: 'invalid',
        message: `session ${session_id} exists already`,
        hint: 'use message or ask; for a new session, call client.session with a project_id',
      })
    return await send({ action: 'spawn', ...place, prompt }, options)
  }

  const message = async (text: string, options: PromptOptions = {}): Promise<SentPrompt> =>
    await send({ action: 'message', session_id: requireId(), message: text }, options)

  const get = async (signal?: AbortSignal): Promise<SessionInfo> =>
    (await call('session', { action: 'get', session_id: requireId() }, signal)) as SessionInfo

  async function ask(prompt: string, options: AskOptions = {}): Promise<Answer> {
    const { signal, onEvent, onError } = options
    const sent = await (session_id === undefined ? spawn : message)(prompt, options)
    const { turn_id, since_index } = sent
    const attending = own && answering.attend(sent, own, { signal, onError })
    const events: SessionEvent[] = []
    let begun = sent.spawned
    for await (const event of follow(sent.session_id, { since: since_index, signal }, sent)) {
      attending?.take(event)
      begun ||= event.turn_id === turn_id
      if (!begun) continue
      events.push(event)
      onEvent?.(event)
      if (event.type !== 'completion' || event.turn_id !== turn_id) continue
      const { final_text, stop_reason, exit_code } = event
      const usage = usageSince(sent.usage, (await get(signal)).usage)
      return { session_id: sent.session_id, turn_id, final_text, stop_reason, exit_code, usage, events }
    }
    const { status, reason } = await get(signal)
    throw new OublietteError({
      kind: 'unavailable',
      message: `session ${sent.session_id} ended (${status}) before the turn${reason ? `: ${reason}` : ''}`,
      hint: 'the events of the session show why; spawn a new session',
    })
  }

  async function attend(options: AttendOptions = {}): Promise<SessionInfo> {
    const { since = -1, signal, onEvent, onError } = options
    const caller = callerOf(options) ?? own
    const info = await get(signal)
    const attending = caller && answering.attend(info, caller, { signal, onError })
    // `open_requests` is limited in size. The history has all of them.
    const from = info.requires.length > info.open_requests.length ? -1 : since
    for await (const event of follow(info.session_id, { since: from, signal }, info)) {
      attending?.take(event)
      if (event.index > since) onEvent?.(event)
    }
    return await get(signal)
  }

  return {
    get session_id() {
      return session_id
    },
    spawn,
    message,
    ask,
    attend,
    events: (options = {}) => follow(requireId(), options),
    get: ({ signal } = {}) => get(signal),
    cancel: async () => (await call('session', { action: 'cancel', session_id: requireId() })) as SessionInfo,
    end: async ({ wait_seconds } = {}) =>
      (await call('session', {
        action: 'end',
        session_id: requireId(),
        ...(wait_seconds === undefined ? {} : { wait_seconds }),
      })) as SessionInfo,
  }
}
