// What each provider's protocol has to be able to do: read a request, and send an answer in its own events.
import type { Conversation, Part } from './script.ts'

export type Event = { event?: string; data: unknown } | { done: true }
export type Json = Record<string, unknown>

export type Protocol = {
  /** Undefined: not a request of this protocol. */
  matches(method: string, path: string): boolean
  read(body: Json, path: string): Conversation
  /** The whole answer as events; texts come in pieces, so that they can be slow. */
  events(model: string, parts: Part[]): Generator<Event>
  whole(model: string, parts: Part[]): unknown
  error(status: number, message: string): unknown
}

export const usage = { input: 100, cached: 40, output: 20 }

export function* pieces(text: string): Generator<string> {
  for (const piece of text.match(/\S+\s*|\s+/g) ?? []) yield piece
}

/** Contents are a string, or a list of parts that may have text. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.map((part: Json) => (typeof part?.text === 'string' ? part.text : '')).join('\n')
}
