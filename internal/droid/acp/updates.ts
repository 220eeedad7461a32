// Converts an agent's updates to events. Text chunks are combined into deltas, and repeated as one whole message when another
// kind of update follows; unknown kinds are passed on unchanged.
import { createCoalescer } from '../coalesce.ts'
import type { DroidEvent } from '../droid.ts'
import { normalizedUsage } from '../usage.ts'

type Update = { sessionUpdate: string; [field: string]: unknown }

const messageChars = 256 * 1024
const finished = new Set(['completed', 'failed'])

const textOf = (update: Update): string | undefined => {
  const content = update.content as { type?: unknown; text?: unknown } | null | undefined
  return content?.type === 'text' && typeof content.text === 'string' ? content.text : undefined
}

const defined = (fields: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null))

/** A tool call, an update of it, or its result if it has finished. */
function toolEvent(update: Update): DroidEvent {
  const { toolCallId, rawInput, rawOutput, sessionUpdate: _kind, ...rest } = update
  if (finished.has(String(update.status)) && update.sessionUpdate === 'tool_call_update')
    return { type: 'tool_result', tool_call_id: toolCallId, ...defined({ ...rest, output: rawOutput }) }
  return {
    type: 'tool_call',
    tool_call_id: toolCallId,
    ...defined({ ...rest, input: rawInput, output: rawOutput }),
    ...(update.sessionUpdate === 'tool_call_update' ? { partial: true } : {}),
  }
}

/** The event of an update that is not a text chunk. */
export function eventOf(update: Update): DroidEvent {
  const { sessionUpdate, ...rest } = update
  switch (sessionUpdate) {
    case 'tool_call':
    case 'tool_call_update':
      return toolEvent(update)
    case 'plan':
      return { type: 'plan', ...rest }
    case 'usage_update':
      return { ...normalizedUsage(rest), type: 'usage' }
    default:
      return { type: 'update', update }
  }
}

export interface Updates {
  take(update: Update): void
  /** Whether this tool call was announced in this turn. */
  hasCall(tool_call_id: unknown): boolean
  /** Returns the last whole message of the turn. */
  endTurn(): string
  beginTurn(turn_id: string): void
  readonly last_ms: number
  /** Tool calls of this turn that have not finished. */
  readonly open_calls: number
}

export function createUpdates(emit: (event: DroidEvent) => void): Updates {
  const coalescer = createCoalescer(emit)
  let turn: { turn_id: string } | Record<string, never> = {}
  let message = ''
  let cut = false
  let final = ''
  let last_ms = 0
  const calls = new Set<unknown>()
  const open = new Set<unknown>()

  const endMessage = () => {
    coalescer.flush()
    if (message === '') return
    final = message.toWellFormed()
    emit({ type: 'message', ...turn, role: 'assistant', text: final, ...(cut ? { truncated: true } : {}) })
    message = ''
    cut = false
  }

  return {
    hasCall: (tool_call_id) => calls.has(tool_call_id),
    take(update) {
      last_ms = performance.now()
      if (update.toolCallId !== undefined) {
        calls.add(update.toolCallId)
        if (update.sessionUpdate === 'tool_call') open.add(update.toolCallId)
        if (finished.has(String(update.status))) open.delete(update.toolCallId)
      }
      const text = textOf(update)
      if (update.sessionUpdate === 'agent_message_chunk' && text !== undefined) {
        coalescer.push('message', { type: 'delta', ...turn, role: 'assistant' }, text)
        if (message.length + text.length > messageChars) cut = true
        message = (message + text).slice(0, messageChars)
        return
      }
      if (update.sessionUpdate === 'agent_thought_chunk' && text !== undefined) {
        endMessage()
        coalescer.push('thought', { type: 'thought', ...turn }, text)
        return
      }
      endMessage()
      emit({ ...eventOf(update), ...turn })
    },
    beginTurn(turn_id) {
      endMessage()
      turn = { turn_id }
      calls.clear()
      open.clear()
      final = ''
    },
    endTurn() {
      endMessage()
      return final
    },
    get last_ms() {
      return last_ms
    },
    get open_calls() {
      return open.size
    },
  }
}
