// OpenAI's chat completions, which most others speak too.

import { type Json, type Protocol, pieces, textOf, usage } from './protocol.ts'
import type { Part } from './script.ts'

const counted = {
  prompt_tokens: usage.input,
  completion_tokens: usage.output,
  total_tokens: usage.input + usage.output,
  prompt_tokens_details: { cached_tokens: usage.cached },
}
const finish = (parts: Part[]) => (parts.some((part) => part.type === 'call') ? 'tool_calls' : 'stop')
const toolCall = (part: Extract<Part, { type: 'call' }>, index: number) => ({
  index,
  id: part.id,
  type: 'function',
  function: { name: part.name, arguments: JSON.stringify(part.args) },
})

export const chat: Protocol = {
  matches: (method, path) => method === 'POST' && path.endsWith('/chat/completions'),
  read(body) {
    const messages = (body.messages ?? []) as { role: string; content: unknown }[]
    return {
      model: String(body.model),
      stream: body.stream === true,
      tools: ((body.tools ?? []) as { function?: { name: string } }[]).flatMap(
        (tool) => tool.function?.name ?? [],
      ),
      turns: messages.map(({ role, content }) => ({
        role: role === 'assistant' ? 'assistant' : 'user',
        text: role === 'tool' ? '' : textOf(content),
      })),
      results: messages.filter(({ role }) => role === 'tool').map(({ content }) => textOf(content)),
    }
  },
  *events(model, parts) {
    const base = { id: `chatcmpl-${Date.now()}`, object: 'chat.completion.chunk', created: 1, model }
    const chunk = (delta: Json, finish_reason: string | null = null) => ({
      data: { ...base, choices: [{ index: 0, delta, finish_reason }] },
    })
    yield chunk({ role: 'assistant', content: '' })
    for (const [index, part] of parts.entries()) {
      if (part.type === 'call') yield chunk({ tool_calls: [toolCall(part, index)] })
      else
        for (const text of pieces(part.text))
          yield chunk(part.type === 'text' ? { content: text } : { reasoning_content: text })
    }
    yield chunk({}, finish(parts))
    yield { data: { ...base, choices: [], usage: counted } }
    yield { done: true }
  },
  whole: (model, parts) => ({
    id: `chatcmpl-${Date.now()}`,
    object: 'chat.completion',
    created: 1,
    model,
    choices: [
      {
        index: 0,
        finish_reason: finish(parts),
        message: {
          role: 'assistant',
          content: parts.map((part) => (part.type === 'text' ? part.text : '')).join(''),
          tool_calls: parts.flatMap((part, index) => (part.type === 'call' ? [toolCall(part, index)] : [])),
        },
      },
    ],
    usage: counted,
  }),
  error: (status, message) => ({
    error: {
      message,
      type: status === 429 ? 'rate_limit_exceeded' : 'server_error',
      param: null,
      code: null,
    },
  }),
}
