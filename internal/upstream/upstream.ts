// Connections to upstream MCP servers: connect, discover, call, health. One entry per upstream, opened when it is first used.
// This room knows transports and the protocol of both eras; it knows nothing of projects, rows, pins, policies or approvals,
// and stores nothing: the managers decide which upstreams exist, who may call them, and keep what was discovered.
import type { Readable, Writable } from 'node:stream'
import type { Secret } from '../log.ts'

/** A running stdio server. Its stdin ends when this process dies, so that it does not outlive it. */
export type StdioProcess = {
  stdin: Writable
  stdout: Readable
  stderr: Readable
  /** Resolves once, when all its processes are gone. */
  ended: Promise<{ exit_code: number | null; reason: string }>
  /** Ends the whole process tree; safe to repeat. */
  kill(): Promise<void>
}

/** `fetch` with the address policy of its owner: checked after DNS, at connect time, for redirects as well. */
export type GuardedFetch = (url: string | URL, init?: RequestInit) => Promise<Response>

/** Where the tokens of an upstream are kept. All values are stored encrypted by the managers. */
export type CredentialStore = {
  read(): Promise<OAuthState | undefined>
  write(state: OAuthState): Promise<void>
}
/** Opaque to everybody but this room: client registration, tokens, verifier, discovery. */
export type OAuthState = Record<string, unknown>

export type OAuthSettings = {
  redirect_url: string
  store: CredentialStore
  scope?: string
  client_id?: string
  client_secret?: Secret
  /** HTTPS address of this client's metadata, for authorization servers that take it as client id. */
  client_metadata_url?: string
  grant: 'authorization_code' | 'client_credentials'
}

export type UpstreamTransport =
  | { kind: 'stdio'; start(signal: AbortSignal): Promise<StdioProcess> }
  | {
      kind: 'http' | 'sse'
      url: string
      headers: Record<string, Secret>
      fetch: GuardedFetch
      oauth?: OAuthSettings
    }

export type UpstreamSpec = {
  /** Stable: the id of the registry entry. */
  id: string
  name: string
  transport: UpstreamTransport
  /** The same value tells that the transport did not change, although the object is another one. */
  revision?: string
  /** Of a call without progress; progress extends it. */
  timeout_seconds: number
  /** Calls under way at the same time; others wait, sessions in turns. */
  concurrency: number
  /** An unused connection is closed after this time; 0 keeps it open. */
  idle_seconds: number
  /** Larger results are an error that states the size. */
  max_result_bytes: number
}

export type UpstreamState = 'configured' | 'connecting' | 'connected' | 'degraded' | 'error'
export type CredentialState = 'none' | 'ok' | 'expiring' | 'needs_reauth' | 'revoked'

export type UpstreamStatus = {
  state: UpstreamState
  credentials: CredentialState
  /** Why it is degraded or in error; null otherwise. */
  reason: string | null
  /** Last lines of stderr of a stdio server, clipped. */
  stderr: string[]
  failures: number
  retry_at: string | null
  connected_at: string | null
  protocol_version: string | null
}

/** A definition exactly as the upstream sent it. */
export type UpstreamTool = {
  name: string
  title?: string
  description?: string
  inputSchema: Record<string, unknown>
  outputSchema?: Record<string, unknown>
  annotations?: Record<string, unknown>
  [key: string]: unknown
}

export type Discovered = {
  identity: { name: string; version: string; [key: string]: unknown }
  instructions: string | null
  capabilities: Record<string, unknown>
  tools: UpstreamTool[]
  resources: Record<string, unknown>[]
  resource_templates: Record<string, unknown>[]
  prompts: Record<string, unknown>[]
  /** How long the lists are valid, if the upstream says so. */
  ttl_ms: number | null
  cache_scope: 'public' | 'private' | null
}

/** Elicitation (form or URL) of either era, as the upstream sent it. */
export type InputRequest = { id: string; method: string; params: Record<string, unknown> }
export type InputResponse = { action: 'accept' | 'decline' | 'cancel'; content?: Record<string, unknown> }

export type CallRequest = {
  tool: string
  arguments: Record<string, unknown>
  timeout_seconds?: number
  /** Answers to an earlier `input_required` of the same call, with its state unchanged. */
  input?: { responses: Record<string, InputResponse>; request_state?: unknown }
}

export type CallOptions = {
  signal: AbortSignal
  progress(update: { progress: number; total?: number; message?: string }): void
  /** Calls wait in turns by this key: a session id or a token id. */
  fair_key: string
  /** Older era: the upstream asks while the call runs. Its time does not count towards the time-out. */
  onInput(request: InputRequest): Promise<InputResponse>
  /**
   * Called right before the request leaves this process: from here on its outcome may be unknown. Called again if the upstream
   * refused the request without running it, because it does not know the session any more.
   */
  onSent(): Promise<void>
}

export type CallOutcome =
  /** The result as the upstream sent it, `isError` results included. */
  | { kind: 'result'; result: Record<string, unknown> }
  /** Newer era: the call ended without a result; it is made again with the answers. */
  | { kind: 'input_required'; requests: Record<string, InputRequest>; request_state?: unknown }

export interface Upstreams {
  /** Adds or replaces; a changed transport closes the old connection. Opens nothing. */
  configure(spec: UpstreamSpec): void
  remove(id: string): Promise<void>
  status(id: string): UpstreamStatus
  /** Connects if necessary. Bounded by its own deadline (5 s); concurrent calls share one. */
  discover(id: string, signal?: AbortSignal): Promise<Discovered>
  /** Throws a fault: `unavailable` while the circuit is open, `timeout`, `exhausted` if too many calls wait. */
  call(id: string, request: CallRequest, options: CallOptions): Promise<CallOutcome>
  readResource(
    id: string,
    uri: string,
    options: Pick<CallOptions, 'signal' | 'fair_key'>,
  ): Promise<Record<string, unknown>>
  getPrompt(
    id: string,
    request: { name: string; arguments?: Record<string, string> },
    options: Pick<CallOptions, 'signal' | 'fair_key'>,
  ): Promise<Record<string, unknown>>
  /** Closes the connection and the process; the next use opens it. Resets backoff and circuit. */
  restart(id: string): Promise<void>
  /** Begins an OAuth consent; undefined if the stored credentials are valid. */
  authorize(id: string): Promise<{ url: string; state: string } | undefined>
  /** Ends it with the code of the callback. */
  finishAuthorization(id: string, answer: { code: string; state: string; iss?: string }): Promise<void>
  /** State and credential changes, and changed lists. */
  subscribe(
    listener: (news: { id: string; status: UpstreamStatus; list_changed: boolean }) => void,
  ): () => void
  close(): Promise<void>
}
