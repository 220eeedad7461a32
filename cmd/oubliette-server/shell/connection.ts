// The client side of a terminal: connects this process's terminal to one in a container. The protocol is described in
// `internal/http/terminal/connection.ts`.
import type { IncomingMessage } from 'node:http'
import { WebSocket } from 'ws'
import { Fault, type FaultShape, messageOf } from '../../../internal/fault.ts'
import { textOf } from '../client/http.ts'

export type Screen = {
  input: NodeJS.ReadableStream
  output: NodeJS.WritableStream
  size(): { rows: number; cols: number }
  /** Calls back when the size has changed; returns a function that stops it. */
  onResize(changed: () => void): () => void
}
type Handlers = {
  progress(message: string): void
  /** The terminal is open: input goes to it from now on. */
  ready(): void
}
type Message =
  | { type: 'progress'; message: string }
  | { type: 'ready' }
  | { type: 'exit'; exit_code: number }
  | { type: 'error'; error: FaultShape }

/** The server sends a ping more often than this. */
const silentMs = 75_000
const interruptKey = 0x03
const interruptedCode = 130
/** Sent, and not yet taken by the connection: then input is not read. */
const sentBytes = 256 * 1024

async function refusal(response: IncomingMessage, origin: string): Promise<Fault> {
  const text = await textOf(response)
  if (response.statusCode === 401)
    return new Fault('unauthenticated', `the server at ${origin} rejected the token`, {
      hint: 'check OUBLIETTE_TOKEN and OUBLIETTE_HOME',
    })
  try {
    return faultOf((JSON.parse(text) as { error: FaultShape }).error)
  } catch {
    return new Fault(
      'unavailable',
      `the server at ${origin} answered with HTTP status ${response.statusCode}`,
      {
        hint: 'an older server has no terminals: restart it',
      },
    )
  }
}

const faultOf = ({ kind, message, hint }: FaultShape): Fault => new Fault(kind, message, hint ? { hint } : {})

/** Resolves with the exit code of the program; rejects if the terminal ends for another reason. */
export function runTerminal(url: URL, token: string, screen: Screen, handlers: Handlers): Promise<number> {
  const address = new URL(url)
  address.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
  const web = new WebSocket(address, {
    headers: { authorization: `Bearer ${token}` },
    perMessageDeflate: false,
    maxPayload: 16 * 1024 * 1024,
  })
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  const send = (message: object) => web.readyState === web.OPEN && web.send(JSON.stringify(message))
  let silent: NodeJS.Timeout | undefined
  const heard = () => {
    clearTimeout(silent)
    silent = setTimeout(() => {
      reject(new Fault('unavailable', `the server sent nothing for ${silentMs / 1000} s`))
      web.terminate()
    }, silentMs)
  }

  let open = false
  const onInput = (chunk: Buffer) => {
    // Nothing handles an interrupt while the container starts.
    if (!open && chunk.includes(interruptKey)) return resolve(interruptedCode)
    if (web.readyState !== web.OPEN) return
    web.send(chunk, { binary: true }, () => web.bufferedAmount < sentBytes && screen.input.resume())
    if (web.bufferedAmount >= sentBytes) screen.input.pause()
  }
  const stopResize = screen.onResize(() => send({ type: 'resize', ...screen.size() }))
  screen.input.on('data', onInput)

  function control(message: Message): void {
    if (message.type === 'progress') handlers.progress(message.message)
    else if (message.type === 'ready') {
      open = true
      handlers.ready()
    } else if (message.type === 'exit') resolve(message.exit_code)
    else if (message.type === 'error') reject(faultOf(message.error))
  }

  web.on('open', heard)
  web.on('ping', heard)
  web.on('message', (data: Buffer, is_binary) => {
    heard()
    if (!is_binary) return control(JSON.parse(String(data)) as Message)
    // Acknowledged when the screen has taken it, so that the program waits for a slow one.
    screen.output.write(data, () => send({ type: 'ack', bytes: data.length }))
  })
  web.on('unexpected-response', (_, response) => {
    void refusal(response, url.origin).then(reject, reject)
  })
  web.on('error', (error) =>
    reject(
      new Fault('unavailable', `cannot connect to the server at ${url.origin}: ${messageOf(error)}`, {
        hint: 'run "./oubliette status" to check the server',
        cause: error,
      }),
    ),
  )
  web.on('close', () => reject(new Fault('unavailable', 'the connection to the server was lost')))
  return promise.finally(() => {
    clearTimeout(silent)
    stopResize()
    screen.input.off('data', onInput)
    web.terminate()
  })
}
