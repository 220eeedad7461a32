// Calls on one connection: time-out, progress, cancellation, and the questions that upstreams of the older era ask meanwhile.
import {
  type Client,
  isInputRequiredResult,
  ProtocolError,
  type RequestOptions,
  type Tool,
} from '@modelcontextprotocol/client'
import { Fault } from '../../fault.ts'
import { UpstreamFault, upstreamFault } from '../faults.ts'
import { callMetaKey } from '../transport/event-stream.ts'
import type { RequestId } from '../transport/messages.ts'
import type { CallOptions, CallOutcome, CallRequest, InputRequest, InputResponse } from '../upstream.ts'
import { asSent } from './client.ts'
import { createDeadline, type Deadline } from './deadline.ts'

const progressIntervalMs = 50
/** Timers hold 31 bits; the time-out is kept here. */
const unlimitedMs = 2 ** 31 - 1
const headerMismatch = -32_020
const urlElicitationRequired = -32_042

type Active = {
  request_id: RequestId | undefined
  fair_key: string
  deadline: Deadline
  onInput: CallOptions['onInput']
}

export type CallContext = {
  name: string
  client: Client
  /** Its input schema, for arguments that are mirrored in headers; asks the upstream again if `fresh`. */
  schemaOf(tool: string, fresh: boolean, signal: AbortSignal): Promise<Record<string, unknown> | undefined>
  /** The upstream asked something, and more than one call could be meant. */
  onAmbiguousInput(): void
}

export function createCalls({ name, client, schemaOf, onAmbiguousInput }: CallContext) {
  const active = new Map<object, Active>()
  let questions = 0

  /** The call that a question belongs to; undefined if it cannot be told. */
  function askedBy(tag: unknown): Active | undefined {
    const calls = [...active.values()]
    if (tag !== undefined) return calls.find(({ request_id }) => request_id === tag)
    const first = calls[0]
    return first && calls.every(({ fair_key }) => fair_key === first.fair_key) ? calls.at(-1) : undefined
  }

  async function ask(params: Record<string, unknown>): Promise<InputResponse> {
    const { [callMetaKey]: tag, ...meta } = (params._meta ?? {}) as Record<string, unknown>
    const call = askedBy(tag)
    if (!call) {
      onAmbiguousInput()
      return { action: 'cancel' }
    }
    const { _meta, ...rest } = params
    const request: InputRequest = {
      id: typeof params.elicitationId === 'string' ? params.elicitationId : `input-${++questions}`,
      method: 'elicitation/create',
      params: Object.keys(meta).length > 0 ? { ...rest, _meta: meta } : rest,
    }
    const resume = call.deadline.suspend()
    try {
      return await call.onInput(request)
    } finally {
      resume()
    }
  }

  const setRequestHandler = client.setRequestHandler.bind(client) as (
    method: string,
    schemas: { params: typeof asSent },
    handler: (params: Record<string, unknown>) => Promise<unknown>,
  ) => void
  setRequestHandler('elicitation/create', { params: asSent }, ask)

  function paramsOf({ tool, arguments: given, input }: CallRequest) {
    const params: Record<string, unknown> = { name: tool, arguments: { ...given } }
    // The older era knows no answers in a request: what it asked for happened elsewhere.
    if (!input || client.getProtocolEra() !== 'modern') return params
    if (Object.keys(input.responses).length > 0) params.inputResponses = input.responses
    if (input.request_state !== undefined) params.requestState = input.request_state
    return params
  }

  async function send(
    params: Record<string, unknown>,
    options: RequestOptions,
    fresh: boolean,
  ): Promise<unknown> {
    const name = params.name as string
    const schema = await schemaOf(name, fresh, options.signal!)
    return await client.callTool(params as Parameters<Client['callTool']>[0], {
      ...options,
      // Without an output schema, structured content is not checked here.
      toolDefinition: { name, inputSchema: (schema ?? { type: 'object' }) as Tool['inputSchema'] },
    })
  }

  function outcomeOf(result: unknown): CallOutcome {
    if (!isInputRequiredResult(result)) return { kind: 'result', result: result as Record<string, unknown> }
    const { inputRequests = {}, requestState } = result as {
      inputRequests?: Record<string, { method: string; params?: Record<string, unknown> }>
      requestState?: unknown
    }
    const requests = Object.fromEntries(
      Object.entries(inputRequests).map(([id, { method, params = {} }]) => [id, { id, method, params }]),
    )
    return {
      kind: 'input_required',
      requests,
      ...(requestState === undefined ? {} : { request_state: requestState }),
    }
  }

  /** An error of the older era that asks to visit a page and to repeat the call. */
  function pagesToVisit(thrown: unknown): CallOutcome | undefined {
    if (!(thrown instanceof ProtocolError) || thrown.code !== urlElicitationRequired) return undefined
    const { elicitations } = (thrown.data ?? {}) as { elicitations?: Record<string, unknown>[] }
    if (!Array.isArray(elicitations) || elicitations.length === 0) return undefined
    const requests = elicitations.map((params, at): InputRequest => {
      const id = typeof params.elicitationId === 'string' ? params.elicitationId : `input-${at + 1}`
      return { id, method: 'elicitation/create', params: { mode: 'url', ...params } }
    })
    return { kind: 'input_required', requests: Object.fromEntries(requests.map((one) => [one.id, one])) }
  }

  return {
    /** Learns the ids of requests as they leave. */
    sending(message: { method?: string; id?: RequestId; params?: { arguments?: object } }): void {
      const call = message.method === 'tools/call' && active.get(message.params?.arguments ?? {})
      if (call) call.request_id = message.id
    },

    async call(request: CallRequest, timeout_ms: number, options: CallOptions): Promise<CallOutcome> {
      const deadline = createDeadline(timeout_ms)
      const params = paramsOf(request)
      const call: Active = {
        request_id: undefined,
        fair_key: options.fair_key,
        deadline,
        onInput: options.onInput,
      }
      active.set(params.arguments as object, call)
      let told_at = Number.NEGATIVE_INFINITY
      let sent = false
      const signal = AbortSignal.any([options.signal, deadline.signal])
      const requestOptions: RequestOptions = {
        signal,
        timeout: unlimitedMs,
        allowInputRequired: true,
        onprogress: (update) => {
          deadline.extend()
          const now = performance.now()
          if (now - told_at < progressIntervalMs && update.progress !== update.total) return
          told_at = now
          options.progress(update)
        },
      }
      try {
        await options.onSent()
        signal.throwIfAborted()
        sent = true
        try {
          return outcomeOf(await send(params, requestOptions, false))
        } catch (error) {
          // It was refused before it ran: the definition of the tool has changed.
          if (!(error instanceof ProtocolError) || error.code !== headerMismatch) throw error
          return outcomeOf(await send(params, requestOptions, true))
        }
      } catch (error) {
        const pages = pagesToVisit(error)
        if (pages) return pages
        if (deadline.expired)
          throw new UpstreamFault(
            'timeout',
            `tool "${request.tool}" of upstream "${name}" did not answer within ${timeout_ms / 1000} s`,
            { outcome: sent ? 'unknown' : 'not_sent', hint: 'raise timeout_seconds, or check the upstream' },
          )
        if (options.signal.aborted)
          throw new UpstreamFault('unavailable', `the call of tool "${request.tool}" was cancelled`, {
            outcome: sent ? 'unknown' : 'not_sent',
            cause: options.signal.reason,
          })
        if (!sent && error instanceof Fault) throw error
        throw upstreamFault(name, error, sent)
      } finally {
        deadline.clear()
        active.delete(params.arguments as object)
      }
    },
  }
}
export type Calls = ReturnType<typeof createCalls>
