// The events of an HTTP upstream, before the SDK sees them. The size of each event, the cost of parsing it and the rate of messages
// that were not asked for are limited. A stream that ends without the answer gets an error answer, because the SDK would wait
// for the time-out. Server requests on the stream of a call are marked with the id of this call.
import { setTimeout as pause } from 'node:timers/promises'
import { createParser } from 'eventsource-parser'
import { jsonProblem } from '../../event-loop/json-bounds.ts'
import { reasonOf } from '../reason.ts'
import { createMessageBudget, type MessageBudget } from './message-budget.ts'
import { idOf, lostCode, messageLimit, type RequestId, refusal, tooLarge } from './messages.ts'

/** In `_meta` of a server request: the id of the call on whose stream it arrived. */
export const callMetaKey = 'dev.oubliette/call'
/** Larger messages are answers: they are not parsed here. */
const maxUnaskedChars = 64 * 1024
const minRetryMs = 1_000

export type EventStreamOptions = {
  max_result_bytes: number
  /** Of the request that this stream answers; undefined for a stream of all answers or of none. */
  request_id?: RequestId | undefined
  budget?: MessageBudget
  /** Called for events that are no messages. */
  onOther?(event: string, data: string): void
  onEnd?(): void
}

type Unparsed = { method?: unknown; id?: RequestId; params?: { _meta?: Record<string, unknown> } }

const encode = (lines: string[]): string => `${lines.join('\n')}\n\n`
const dataLines = (data: string): string[] => data.split('\n').map((line) => `data: ${line}`)

export function filterEvents(
  body: ReadableStream<Uint8Array>,
  { max_result_bytes, request_id, budget = createMessageBudget(), onOther, onEnd }: EventStreamOptions,
): ReadableStream<Uint8Array> {
  const limit = messageLimit(max_result_bytes)
  const reader = body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .getReader()
  const encoder = new TextEncoder()
  let out: string[] = []
  let held = 0
  let wait_ms = 0
  let answered = false
  let resumable = false

  const refuse = (id: RequestId, reason: string, code?: number) => {
    if (id === request_id) answered = true
    return JSON.stringify(refusal(id, reason, code))
  }

  function message(data: string): string | undefined {
    const bytes = Buffer.byteLength(data)
    const costly = bytes > limit ? undefined : jsonProblem(data)
    const problem = bytes > limit ? tooLarge(bytes, max_result_bytes) : costly && `the result ${costly}`
    if (problem) {
      const id = idOf(data.slice(0, 256), data.slice(-256)) ?? request_id
      return id === undefined ? undefined : refuse(id, problem)
    }
    if (data.length > maxUnaskedChars) {
      if (idOf(data.slice(0, 256), data.slice(-256)) === request_id) answered = true
      return data
    }
    let parsed: Unparsed
    try {
      parsed = JSON.parse(data) as Unparsed
    } catch {
      wait_ms = Math.max(wait_ms, budget.spend(data.length))
      return undefined
    }
    if (typeof parsed !== 'object' || parsed === null) return undefined
    if (parsed.method === undefined) {
      if (parsed.id === request_id) answered = true
      return data
    }
    wait_ms = Math.max(wait_ms, budget.spend(data.length))
    if (parsed.id === undefined || request_id === undefined) return data
    const _meta = { ...parsed.params?._meta, [callMetaKey]: request_id }
    return JSON.stringify({ ...parsed, params: { ...parsed.params, _meta } })
  }

  const parser = createParser({
    onEvent({ id, event, data }) {
      held = 0
      if (id !== undefined) resumable = true
      const isMessage = event === undefined || event === 'message'
      if (!isMessage) {
        wait_ms = Math.max(wait_ms, budget.spend(data.length))
        onOther?.(event, data)
      }
      const passed = isMessage && data !== '' ? message(data) : data
      if (passed === undefined) return
      out.push(
        encode([
          ...(id === undefined ? [] : [`id: ${id}`]),
          ...(event === undefined ? [] : [`event: ${event}`]),
          ...dataLines(passed),
        ]),
      )
    },
    onRetry: (ms) => void out.push(`retry: ${Math.max(minRetryMs, ms)}\n`),
    onComment: () => {
      held = 0
      wait_ms = Math.max(wait_ms, budget.spend(0))
    },
  })

  /** The last event of a stream that can give no more. */
  function last(reason: string): void {
    if (request_id !== undefined && !answered && !resumable)
      out.push(encode(dataLines(refuse(request_id, reason, lostCode))))
  }

  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        while (out.length === 0) {
          const { value, done } = await reader.read()
          if (done) {
            last('it closed the connection without an answer')
            if (out.length > 0) controller.enqueue(encoder.encode(out.join('')))
            controller.close()
            onEnd?.()
            return
          }
          held += value.length
          parser.feed(value)
          if (held > limit) {
            if (request_id !== undefined && !answered)
              out.push(
                encode(
                  dataLines(
                    refuse(
                      request_id,
                      `the result has more than ${limit} bytes; the limit is ${max_result_bytes}`,
                    ),
                  ),
                ),
              )
            await reader.cancel().catch(() => undefined)
            if (out.length > 0) controller.enqueue(encoder.encode(out.join('')))
            controller.close()
            onEnd?.()
            return
          }
        }
        if (wait_ms > 0) {
          await pause(wait_ms, undefined, { ref: false })
          wait_ms = 0
        }
        controller.enqueue(encoder.encode(out.join('')))
        out = []
      } catch (error) {
        onEnd?.()
        if (resumable) {
          controller.error(error)
          return
        }
        last(reasonOf(error))
        if (out.length > 0) controller.enqueue(encoder.encode(out.join('')))
        controller.close()
      }
    },
    async cancel(reason) {
      await reader.cancel(reason)
      onEnd?.()
    },
  })
}
