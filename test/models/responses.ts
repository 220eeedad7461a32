// OpenAI's responses.

import { type Event, type Json, type Protocol, pieces, textOf, usage } from './protocol.ts'
import type { Part } from './script.ts'

const counted = {
  input_tokens: usage.input,
  input_tokens_details: { cached_tokens: usage.cached },
  output_tokens: usage.output,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: usage.input + usage.output,
}

type Tool = { type: string; name?: string; tools?: Tool[] }
const namesOf = (tools: Tool[], prefix = ''): string[] =>
  tools.flatMap((tool) =>
    tool.tools ? namesOf(tool.tools, `${tool.name ?? ''}`) : tool.name ? [`${prefix}${tool.name}`] : [],
  )

/** A tool of a namespace is called by both its names. */
function item(part: Part, index: number, namespaces: Map<string, string>): Json {
  if (part.type === 'call') {
    const namespace = namespaces.get(part.name)
    return {
      type: 'function_call',
      id: `fc_${part.id}`,
      call_id: part.id,
      name: namespace ? part.name.slice(namespace.length) : part.name,
      ...(namespace ? { namespace } : {}),
      arguments: JSON.stringify(part.args),
      status: 'completed',
    }
  }
  if (part.type === 'thought')
    return { type: 'reasoning', id: `rs_${index}`, summary: [{ type: 'summary_text', text: part.text }] }
  return {
    type: 'message',
    id: `msg_${index}`,
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: part.text, annotations: [] }],
  }
}

const typed = (data: Json): Event => ({ event: String(data.type), data })
const lastNamespaces = new Map<string, string>()

export const responses: Protocol = {
  matches: (method, path) => method === 'POST' && path.endsWith('/responses'),
  read(body) {
    const input = (
      typeof body.input === 'string' ? [{ role: 'user', content: body.input }] : body.input
    ) as Json[]
    const tools = (body.tools ?? []) as Tool[]
    for (const tool of tools)
      if (tool.tools)
        for (const name of namesOf(tool.tools, tool.name)) lastNamespaces.set(name, tool.name ?? '')
    return {
      model: String(body.model),
      stream: body.stream === true,
      tools: namesOf(tools),
      turns: input.flatMap((one): { role: 'user' | 'assistant'; text: string }[] => {
        if (one.type === 'function_call' || one.type === 'custom_tool_call')
          return [{ role: 'assistant', text: '' }]
        if (one.role === 'assistant') return [{ role: 'assistant', text: textOf(one.content) }]
        return one.role === 'user' ? [{ role: 'user', text: textOf(one.content) }] : []
      }),
      results: input
        .filter(({ type }) => type === 'function_call_output' || type === 'custom_tool_call_output')
        .map(({ output }) => textOf(output)),
    }
  },
  *events(model, parts) {
    const response = {
      id: `resp_${Date.now()}`,
      object: 'response',
      created_at: 1,
      model,
      output: [] as Json[],
    }
    yield typed({ type: 'response.created', response: { ...response, status: 'in_progress' } })
    for (const [output_index, part] of parts.entries()) {
      const whole = item(part, output_index, lastNamespaces)
      yield typed({
        type: 'response.output_item.added',
        output_index,
        item: { ...whole, status: 'in_progress' },
      })
      if (part.type === 'text')
        for (const delta of pieces(part.text))
          yield typed({
            type: 'response.output_text.delta',
            item_id: whole.id,
            output_index,
            content_index: 0,
            delta,
          })
      else if (part.type === 'thought')
        for (const delta of pieces(part.text))
          yield typed({
            type: 'response.reasoning_summary_text.delta',
            item_id: whole.id,
            output_index,
            summary_index: 0,
            delta,
          })
      yield typed({ type: 'response.output_item.done', output_index, item: whole })
      response.output.push(whole)
    }
    yield typed({
      type: 'response.completed',
      response: { ...response, status: 'completed', usage: counted },
    })
  },
  whole: (model, parts) => ({
    id: `resp_${Date.now()}`,
    object: 'response',
    created_at: 1,
    model,
    status: 'completed',
    output: parts.map((part, index) => item(part, index, lastNamespaces)),
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
