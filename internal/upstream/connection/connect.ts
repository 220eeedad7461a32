// Opens one connection: transport, handshake of either era, news of changed lists. Everything that was opened is closed if a step
// fails or takes too long.
import {
  type AuthProvider,
  type Client,
  type RequestOptions,
  SdkError,
  SdkErrorCode,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  type Transport,
} from '@modelcontextprotocol/client'
import { UpstreamFault, upstreamFault } from '../faults.ts'
import { createHttpFetch } from '../transport/http-fetch.ts'
import type { RequestId } from '../transport/messages.ts'
import { StdioTransport } from '../transport/stdio.ts'
import type { Discovered, UpstreamSpec } from '../upstream.ts'
import { type Calls, createCalls } from './calls.ts'
import { asSent, createClient } from './client.ts'
import { discover } from './discover.ts'
import { followLists } from './list-changes.ts'

export type Era = 'legacy' | 'modern'

export type Connection = {
  era: Era
  protocol_version: string
  call: Calls['call']
  discover(signal: AbortSignal, timeout_ms: number): Promise<Discovered>
  request(
    method: string,
    params: Record<string, unknown>,
    options: RequestOptions,
  ): Promise<Record<string, unknown>>
  /** A cheap request that every upstream answers. */
  ping(signal: AbortSignal, timeout_ms: number): Promise<void>
  stderr(): string[]
  /** Resolves with the reason when the connection is lost or closed. */
  closed: Promise<string>
  close(): Promise<void>
}

export type ConnectOptions = {
  version: string
  signal: AbortSignal
  timeout_ms: number
  /** From an earlier connection: saves the probe. */
  known_era: Era | undefined
  onListChanged(): void
  onAmbiguousInput(): void
  onStderr(lines: () => string[]): void
  auth: AuthProvider | undefined
  /** Input schemas of tools that were discovered earlier. */
  schemas: Map<string, Record<string, unknown>>
}

type Opened = { transport: Transport; stderr(): string[]; reason(): string | undefined }

async function openTransport(
  { transport, max_result_bytes }: UpstreamSpec,
  auth: AuthProvider | undefined,
  signal: AbortSignal,
  onStreamEnd: () => void,
): Promise<Opened> {
  if (transport.kind === 'stdio') {
    const process = await transport.start(signal)
    const stdio = new StdioTransport(process, max_result_bytes)
    const stderr = () => [
      ...stdio.stderr_tail.lines(),
      ...(stdio.garbage_lines > 0
        ? [`(${stdio.garbage_lines} lines on stdout are no messages)`, ...stdio.garbage_tail.lines()]
        : []),
    ]
    return { transport: stdio, stderr, reason: () => stdio.end_reason }
  }
  const { kind, url, headers } = transport
  const fetch = createHttpFetch({ kind, url, headers, fetch: transport.fetch, max_result_bytes, onStreamEnd })
  const more = { fetch, ...(auth ? { authProvider: auth } : {}) }
  const made =
    kind === 'http'
      ? new StreamableHTTPClientTransport(new URL(url), more)
      : new SSEClientTransport(new URL(url), more)
  return { transport: made, stderr: () => [], reason: () => undefined }
}

export async function connect(spec: UpstreamSpec, options: ConnectOptions): Promise<Connection> {
  const late = AbortSignal.timeout(options.timeout_ms)
  const signal = AbortSignal.any([options.signal, late])
  try {
    return await attempt(spec, options, signal, options.known_era)
  } catch (error) {
    if (late.aborted && !options.signal.aborted)
      throw new UpstreamFault(
        'timeout',
        `upstream "${spec.name}" did not connect within ${options.timeout_ms / 1000} s`,
        {
          outcome: 'not_sent',
          cause: error,
        },
      )
    // Servers of the older era may end at a request that they do not know: the probe.
    if (spec.transport.kind === 'stdio' && isLostProbe(error) && !signal.aborted)
      return await attempt(spec, options, signal, 'legacy')
    throw upstreamFault(spec.name, error, false)
  }
}

const isLostProbe = (error: unknown): boolean =>
  error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed

async function attempt(
  spec: UpstreamSpec,
  options: ConnectOptions,
  signal: AbortSignal,
  known_era: Era | undefined,
): Promise<Connection> {
  signal.throwIfAborted()
  const lost = Promise.withResolvers<string>()
  let close = async () => {}
  const opened = await openTransport(spec, options.auth, signal, () => void close())
  const { transport } = opened
  options.onStderr(opened.stderr)
  // SSE knows no probe: it is a transport of the older era.
  const era = spec.transport.kind === 'sse' || known_era === 'legacy' ? 'legacy' : 'auto'
  const client = createClient(options.version, era)
  // Errors outside of requests: garbage, late answers. What matters shows in requests.
  client.onerror = () => undefined
  client.onclose = () => lost.resolve(opened.reason() ?? 'the connection was closed')
  const calls = createCalls({
    name: spec.name,
    client,
    onAmbiguousInput: options.onAmbiguousInput,
    schemaOf: async (tool, fresh, callSignal) => {
      if (spec.transport.kind !== 'http' || client.getProtocolEra() !== 'modern') return undefined
      if (fresh) remember((await discover(spec.name, client, callSignal, options.timeout_ms)).tools)
      return options.schemas.get(tool)
    },
  })
  const remember = (tools: Discovered['tools']) => {
    options.schemas.clear()
    for (const { name, inputSchema } of tools) options.schemas.set(name, inputSchema)
  }
  const send = transport.send.bind(transport)
  transport.send = (message, more) => {
    calls.sending(message as { method?: string; id?: RequestId })
    return send(message, more)
  }
  const stopped = new AbortController()
  close = async () => {
    stopped.abort()
    await endSession(transport)
    await client.close().catch(() => undefined)
    // A client that never connected does not close its transport.
    await transport.close().catch(() => undefined)
  }
  try {
    await handshake(client, transport, signal, options.timeout_ms)
  } catch (error) {
    await close()
    throw withReason(error, opened.reason())
  }
  followLists(client, options.onListChanged, stopped.signal)
  return {
    era: client.getProtocolEra() ?? 'legacy',
    protocol_version: client.getNegotiatedProtocolVersion() ?? '',
    call: calls.call,
    async discover(one, timeout_ms) {
      const found = await discover(spec.name, client, one, timeout_ms)
      remember(found.tools)
      return found
    },
    request: (method, params, request) => client.request({ method, params }, asSent, request),
    async ping(one, timeout_ms) {
      const method = client.getProtocolEra() === 'modern' ? 'server/discover' : 'ping'
      await client.request({ method }, asSent, { signal: one, timeout: timeout_ms })
    },
    stderr: opened.stderr,
    closed: lost.promise,
    close,
  }
}

/** The SDK does not watch a signal between its steps. */
async function handshake(
  client: Client,
  transport: Transport,
  signal: AbortSignal,
  timeout: number,
): Promise<void> {
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  const connected = client.connect(transport, { signal, timeout })
  connected.catch(() => undefined)
  try {
    await Promise.race([connected, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

const sessionEndMs = 1_000

/** Servers of the older era keep a session until they are told. */
async function endSession(transport: Transport): Promise<void> {
  if (!(transport instanceof StreamableHTTPClientTransport) || !transport.sessionId) return
  const late = Promise.withResolvers<void>()
  const timer = setTimeout(late.resolve, sessionEndMs)
  await Promise.race([transport.terminateSession().catch(() => undefined), late.promise])
  clearTimeout(timer)
}

/** Why the process ended says more than that the connection was closed. */
function withReason(error: unknown, reason: string | undefined): unknown {
  const isClosed = error instanceof SdkError && error.code === SdkErrorCode.ConnectionClosed
  return isClosed && reason !== undefined ? new Error(reason, { cause: error }) : error
}
