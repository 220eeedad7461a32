// Google's generateContent.

import { type Json, type Protocol, pieces, textOf, usage } from './protocol.ts'
import type { Part } from './script.ts'

const usageMetadata = {
  promptTokenCount: usage.input,
  cachedContentTokenCount: usage.cached,
  candidatesTokenCount: usage.output,
  totalTokenCount: usage.input + usage.output,
}

const candidate = (model: string, parts: Json[], last: boolean) => ({
  candidates: [{ content: { role: 'model', parts }, index: 0, ...(last ? { finishReason: 'STOP' } : {}) }],
  modelVersion: model,
  responseId: 'scripted',
  ...(last ? { usageMetadata } : {}),
})

const part = (one: Part): Json => {
  if (one.type === 'call') return { functionCall: { id: one.id, name: one.name, args: one.args } }
  return one.type === 'thought' ? { text: one.text, thought: true } : { text: one.text }
}

export const gemini: Protocol = {
  matches: (method, path) => method === 'POST' && /:(?:streamG|g)enerateContent$/.test(path),
  read(body, path) {
    const contents = (body.contents ?? []) as { role?: string; parts?: unknown }[]
    const tools = (body.tools ?? []) as { functionDeclarations?: { name: string }[] }[]
    return {
      model: /models\/([^/:]+):/.exec(path)?.[1] ?? 'unknown',
      stream: path.endsWith(':streamGenerateContent'),
      tools: tools.flatMap((tool) => (tool.functionDeclarations ?? []).map(({ name }) => name)),
      turns: contents.map(({ role, parts }) => ({
        role: role === 'model' ? 'assistant' : 'user',
        text: textOf(parts),
      })),
      results: contents.flatMap(({ parts }) =>
        (Array.isArray(parts) ? (parts as Json[]) : []).flatMap(({ functionResponse }) =>
          functionResponse ? [JSON.stringify((functionResponse as Json).response)] : [],
        ),
      ),
    }
  },
  *events(model, parts) {
    for (const one of parts) {
      if (one.type === 'call') yield { data: candidate(model, [part(one)], false) }
      else
        for (const text of pieces(one.text)) yield { data: candidate(model, [part({ ...one, text })], false) }
    }
    yield { data: candidate(model, [{ text: '' }], true) }
  },
  whole: (model, parts) => candidate(model, parts.map(part), true),
  error: (code, message) => ({
    error: { code, message, status: code === 429 ? 'RESOURCE_EXHAUSTED' : 'INTERNAL' },
  }),
}
