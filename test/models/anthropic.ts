// Anthropic's Messages.

import { type Event, type Json, type Protocol, pieces, textOf, usage } from './protocol.ts'
import type { Part } from './script.ts'

const counted = {
  input_tokens: usage.input - usage.cached,
  cache_read_input_tokens: usage.cached,
  cache_creation_input_tokens: 0,
}
const stop = (parts: Part[]) => (parts.some((part) => part.type === 'call') ? 'tool_use' : 'end_turn')

function* block(part: Part): Generator<Json> {
  if (part.type === 'text') for (const text of pieces(part.text)) yield { type: 'text_delta', text }
  else if (part.type === 'call') yield { type: 'input_json_delta', partial_json: JSON.stringify(part.args) }
  else {
    for (const thinking of pieces(part.text)) yield { type: 'thinking_delta', thinking }
    yield { type: 'signature_delta', signature: 'c2NyaXB0ZWQ=' }
  }
}

const begun = (part: Part): Json => {
  if (part.type === 'text') return { type: 'text', text: '' }
  if (part.type === 'call') return { type: 'tool_use', id: part.id, name: part.name, input: {} }
  return { type: 'thinking', thinking: '', signature: '' }
}

const typed = (data: Json): Event => ({ event: String(data.type), data })

export const anthropic: Protocol = {
  matches: (method, path) => method === 'POST' && /\/v1\/messages$/.test(path),
  read(body) {
    const messages = (body.messages ?? []) as { role: 'user' | 'assistant'; content: unknown }[]
    return {
      model: String(body.model),
      stream: body.stream === true,
      tools: ((body.tools ?? []) as { name: string }[]).map(({ name }) => name),
      turns: messages.map(({ role, content }) => ({ role, text: textOf(content) })),
      results: messages.flatMap(({ content }) =>
        (Array.isArray(content) ? (content as Json[]) : [])
          .filter((part) => part.type === 'tool_result')
          .map((part) => textOf(part.content)),
      ),
    }
  },
  *events(model, parts) {
    yield typed({
      type: 'message_start',
      message: {
        id: `msg_${Date.now()}`,
        type: 'message',
        role: 'assistant',
        model,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { ...counted, output_tokens: 1 },
      },
    })
    for (const [index, part] of parts.entries()) {
      yield typed({ type: 'content_block_start', index, content_block: begun(part) })
      for (const delta of block(part)) yield typed({ type: 'content_block_delta', index, delta })
      yield typed({ type: 'content_block_stop', index })
    }
    yield typed({
      type: 'message_delta',
      delta: { stop_reason: stop(parts), stop_sequence: null },
      usage: { output_tokens: usage.output },
    })
    yield typed({ type: 'message_stop' })
  },
  whole: (model, parts) => ({
    id: `msg_${Date.now()}`,
    type: 'message',
    role: 'assistant',
    model,
    content: parts.map((part) =>
      part.type === 'call'
        ? { type: 'tool_use', id: part.id, name: part.name, input: part.args }
        : { type: 'text', text: part.text },
    ),
    stop_reason: stop(parts),
    stop_sequence: null,
    usage: { ...counted, output_tokens: usage.output },
  }),
  error: (status, message) => ({
    type: 'error',
    error: { type: status === 429 ? 'rate_limit_error' : 'api_error', message },
  }),
}
