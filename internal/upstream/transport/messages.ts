// What an upstream sends, before the SDK sees it: the size and the cost of parsing are limited, text that is no message is told
// apart, and an answer that is not let through becomes an error answer, so that its call does not wait for its time-out.
import type { JSONRPCMessage } from '@modelcontextprotocol/client'
import { jsonProblem } from '../../event-loop/json-bounds.ts'

export type RequestId = string | number

/** Beside a result: the envelope of JSON-RPC. */
const envelopeBytes = 64 * 1024

export const messageLimit = (max_result_bytes: number): number => max_result_bytes + envelopeBytes

// JSON-RPC leaves these to implementations. Error answers with these codes are made here.
/** The answer is not let through. */
export const refusedCode = -32_099
/** The stream ended without an answer. */
export const lostCode = -32_098

export const refusal = (id: RequestId, message: string, code: number = refusedCode): JSONRPCMessage => ({
  jsonrpc: '2.0',
  id,
  error: { code, message },
})

export const tooLarge = (bytes: number, max_result_bytes: number): string =>
  `the result has ${bytes} bytes; the limit is ${max_result_bytes}`

const id = '"id"\\s*:\\s*("(?:[^"\\\\]|\\\\.){0,200}"|-?\\d{1,16})'
const first = new RegExp(`^\\s*\\{\\s*(?:"jsonrpc"\\s*:\\s*"2\\.0"\\s*,\\s*)?${id}`)
const last = new RegExp(`,\\s*${id}\\s*(?:,\\s*"jsonrpc"\\s*:\\s*"2\\.0"\\s*)?\\}\\s*$`)

/** The id of a message that is not parsed: serializers put it first or last. */
export function idOf(head: string, tail: string): RequestId | undefined {
  const text = first.exec(head)?.[1] ?? last.exec(tail)?.[1]
  if (text === undefined) return undefined
  try {
    return JSON.parse(text) as RequestId
  } catch {
    return undefined
  }
}

export type Parsed =
  | { kind: 'messages'; messages: JSONRPCMessage[] }
  | { kind: 'refused'; reason: string; id: RequestId | undefined }
  | { kind: 'garbage' }

const isMessage = (value: unknown): value is JSONRPCMessage =>
  typeof value === 'object' && value !== null && (value as { jsonrpc?: unknown }).jsonrpc === '2.0'

const maxBatch = 1_000

export function parseMessages(text: string): Parsed {
  const begin = text.trimStart()[0]
  if (begin !== '{' && begin !== '[') return { kind: 'garbage' }
  const problem = jsonProblem(text)
  if (problem)
    return {
      kind: 'refused',
      reason: `the result ${problem}`,
      id: idOf(text.slice(0, 256), text.slice(-256)),
    }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return { kind: 'garbage' }
  }
  const messages = Array.isArray(value) ? value.slice(0, maxBatch) : [value]
  if (messages.length === 0 || !messages.every(isMessage)) return { kind: 'garbage' }
  return { kind: 'messages', messages }
}

export const isResponse = (message: JSONRPCMessage): message is JSONRPCMessage & { id: RequestId } =>
  'id' in message && !('method' in message)
