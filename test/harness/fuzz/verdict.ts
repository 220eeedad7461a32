// What every answer to a bad request must be: a success after all, or a kind and a sentence without anything internal.
import { kinds } from '../../../internal/fault.ts'
import { messageIn, type Reply, type Send } from '../rpc.ts'

type Shape = { kind?: unknown; message?: unknown }

const internals =
  /node_modules|node:internal|\bat .*\.ts:\d|\.ts:\d|TypeError|ReferenceError|RangeError|SyntaxError|Cannot read prop|is not a function|ECONN|SQLSTATE|violates|relation "|invalid input syntax|internal error/

const sentence = (text: unknown) => typeof text === 'string' && text.trim().length > 3

function faulty(error: Shape | undefined): string | undefined {
  if (!error || !kinds.includes(error.kind as (typeof kinds)[number])) return 'an error without a kind'
  if (error.kind === 'internal') return 'an internal error'
  return sentence(error.message) ? undefined : 'an error without a sentence'
}

/** What is wrong with the answer, or nothing. */
export function problemOf(sent: Send, reply: Reply): string | undefined {
  if (reply.status >= 500) return `HTTP ${reply.status}`
  // An answer repeats no input but what it quotes shortly, so this cannot be our own text.
  const found = internals.exec(reply.text)
  if (found && reply.status !== 200) return `tells of its inside: ${found[0]}`
  if (reply.text === '') {
    const bodiless = sent.method === 'HEAD' || reply.status === 202 || reply.status === 204
    return bodiless ? undefined : `HTTP ${reply.status} without a body`
  }
  const message = messageIn(reply) as { error?: Shape & { code?: unknown; data?: Shape } } & Reply['headers']
  if (message === undefined) return 'a stream without an answer'
  const { error } = message
  if (error && 'code' in error) {
    if (!Number.isInteger(error.code)) return 'a JSON-RPC error without a code'
    return sentence(error.message) ? undefined : 'a JSON-RPC error without a sentence'
  }
  if (reply.status >= 400 || error) return faulty(error)
  const { result } = message as { result?: { isError?: boolean; structuredContent?: { error?: Shape } } }
  if (!result?.isError) return undefined
  if (found) return `tells of its inside: ${found[0]}`
  return faulty(result.structuredContent?.error)
}
