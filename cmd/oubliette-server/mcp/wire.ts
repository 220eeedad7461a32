// The messages that pass through the stdio bridge, and the HTTP headers that each of them needs.
import type { OutgoingHttpHeaders } from 'node:http'

export type Id = string | number
export type Message = {
  id?: Id
  method?: string
  params?: Record<string, unknown> & { _meta?: Record<string, unknown> }
  result?: Record<string, unknown>
  error?: { code: number; message: string }
}

const versionKey = 'io.modelcontextprotocol/protocolVersion'
const subscriptionKey = 'io.modelcontextprotocol/subscriptionId'

/** The revision of a message of the stateless era, which every request of that era carries. */
export function statelessVersion({ params }: Message): string | undefined {
  const version = params?._meta?.[versionKey]
  return typeof version === 'string' ? version : undefined
}

export const isRequest = (message: Message): message is Message & { id: Id; method: string } =>
  message.id !== undefined && message.method !== undefined

export const isResponseTo = (message: Message, id: Id): boolean =>
  message.id === id && message.method === undefined

export const subscriptionOf = ({ params }: Message): unknown => params?._meta?.[subscriptionKey]

/** What `Mcp-Name` repeats of the body. */
function nameIn({ method, params }: Message): string | undefined {
  const name = method === 'resources/read' ? params?.uri : params?.name
  return typeof name === 'string' ? name : undefined
}

/** HTTP headers are ASCII; other names are sent in the encoded form of the protocol. */
const headerValue = (value: string): string =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !/^=\?base64\?.*\?=$/.test(value)
    ? value
    : `=?base64?${Buffer.from(value).toString('base64')}?=`

export function statelessHeaders(message: Message, version: string): OutgoingHttpHeaders {
  const name = nameIn(message)
  return {
    'mcp-protocol-version': version,
    ...(message.method ? { 'mcp-method': message.method } : {}),
    ...(name === undefined ? {} : { 'mcp-name': headerValue(name) }),
  }
}

export const errorResponse = (id: Id, message: string, code = -32000): Message => ({
  id,
  error: { code, message },
})
