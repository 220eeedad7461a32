// A model that says what its script says, in the protocols of all providers, on loopback. It remembers what it was asked
// and with which key, and wants the right one.
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { anthropic } from './anthropic.ts'
import { chat } from './chat.ts'
import { gemini } from './gemini.ts'
import type { Event, Json, Protocol } from './protocol.ts'
import { responses } from './responses.ts'
import { type Conversation, createActor, type Part } from './script.ts'

const protocols: Protocol[] = [anthropic, chat, responses, gemini]

export type Asked = {
  method: string
  path: string
  headers: IncomingMessage['headers']
  body: string
  /** When it was read, by the clock of the process. */
  at_ms: number
  conversation?: Conversation
  /** How many events of the answer are out. */
  told?: number
  /** Whether the other side was still there at the end. */
  finished?: boolean
}
export type ScriptedModel = {
  url: string
  asked: Asked[]
  [Symbol.asyncDispose](): Promise<void>
}

const line = (event: Event): string => {
  if ('done' in event) return 'data: [DONE]\n\n'
  return `${event.event ? `event: ${event.event}\n` : ''}data: ${JSON.stringify(event.data)}\n\n`
}

async function tell(
  entry: Asked,
  response: ServerResponse,
  events: Generator<Event>,
  { every_ms, break_off }: { every_ms: number; break_off?: boolean },
): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  let told = 0
  for (const event of events) {
    if (response.destroyed) return
    if (!response.write(line(event))) await Promise.race([once(response, 'drain'), once(response, 'close')])
    told += 1
    entry.told = told
    if (break_off && told === 6) return void response.destroy()
    if (every_ms > 0) await pause(every_ms)
  }
  response.end()
}

const keyOf = ({ headers, url }: IncomingMessage): string =>
  String(
    headers['x-api-key'] ??
      headers['x-goog-api-key'] ??
      headers.authorization?.replace(/^Bearer /, '') ??
      new URL(url ?? '', 'http://x').searchParams.get('key'),
  )

export async function startScriptedModel(key: string): Promise<ScriptedModel> {
  const act = createActor()
  const asked: Asked[] = []

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = new URL(request.url ?? '/', 'http://model').pathname
    const method = request.method ?? 'GET'
    let body = ''
    for await (const chunk of request.setEncoding('utf8')) body += chunk
    const entry: Asked = { method, path, headers: request.headers, body, at_ms: performance.now() }
    asked.push(entry)
    response.once('close', () => {
      entry.finished = response.writableFinished
    })
    const json = (status: number, value: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
    const protocol = protocols.find((it) => it.matches(method, path))
    if (keyOf(request) !== key) return void json(401, { error: { message: 'this is not the key' } })
    if (!protocol) return void json(200, { data: [], models: [], totalTokens: 1, input_tokens: 1 })
    const conversation = protocol.read(JSON.parse(body) as Json, path)
    entry.conversation = conversation
    const next = act(conversation)
    if ('error' in next) return void json(next.error, protocol.error(next.error, next.message))
    const { model, stream } = conversation
    const parts: Part[] = next.parts
    if (stream) return await tell(entry, response, protocol.events(model, parts), next)
    json(200, protocol.whole(model, parts))
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => response.destroy(error as Error))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
