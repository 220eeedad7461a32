// One end of a JSON-RPC 2.0 connection: requests in both directions at once, notifications, progress and
// cancellation. It promises that a bad peer costs its own connection and nothing else: frames, open requests, bytes
// held for it and the time it may take are all bounded. What the methods do is up to the handlers.
import type { Socket } from 'node:net'
import { Fault, messageOf } from '../fault.ts'
import { createFrameQueue, type Frame } from './frame-queue.ts'
import { requestKey } from './frame-scan.ts'
import { createFrameReader } from './frames.ts'
import { defaults, loadReportBytes, type PeerLimits } from './peer-limits.ts'
import type { Throttle } from './throttle.ts'
import { codes, fromWireError, toWireError, type WireError } from './wire.ts'

export type Progress = { progress: number; total?: number; message?: string }
type Id = string | number
export type Call = {
  /** Aborted when the other side cancels this request or its connection ends. */
  signal: AbortSignal
  progress(update: Progress): void
  /** Set if the request crashed the server before: the handler throws it, or omits the content that caused it. */
  refused?: Fault
}
export type Handlers = Record<string, (params: unknown, call: Call) => unknown>

/** Looks at requests before they are parsed. */
export type Watch = {
  /** Whether the request may have crashed the server, and has to run alone. */
  isSuspect(key: string): boolean
  /** Processing begins. Returns a fault if the request must not be processed. */
  begin(request: { key: string; what: string }): Fault | undefined
}

export type RequestOptions = {
  signal?: AbortSignal
  timeout_ms?: number
  on_progress?: (update: Progress) => void
}

/** Parameters that are JSON text already; saves parsing what was only stored. */
export class RawJson {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

export interface Peer {
  request(method: string, params: unknown, options?: RequestOptions): Promise<unknown>
  notify(method: string, params: unknown): void
  close(why?: Fault): void
  /** Settles with the reason when the connection is over; never rejects. */
  readonly closed: Promise<Fault>
  readonly open: boolean
  /** Whether nothing was received since the last call. Always false while reading is paused. */
  wasSilent(): boolean
  /** What the peer makes this side hold: its open requests, and the bytes received or waiting to be sent. */
  readonly load: Load
}
export type Load = { requests: number; bytes: number }

type Waiting = {
  resolve(result: unknown): void
  reject(error: unknown): void
  on_progress?: (update: Progress) => void
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isId = (value: unknown): value is Id => typeof value === 'string' || typeof value === 'number'

export function createPeer(
  socket: Socket,
  options: {
    handlers: Handlers
    limits?: Partial<PeerLimits>
    /** Called for every complete frame. */
    on_frame?: () => void
    throttle?: Throttle
    watch?: Watch
    /** Frames with more structure than `jsonBounds` allows end the connection. Not for those who trust the other side. */
    bounded?: boolean
    /** The load has grown and should be checked. */
    on_load?: () => void
  },
): Peer {
  const limits = { ...defaults, ...options.limits }
  const reader = createFrameReader(limits.frame_bytes)
  const waiting = new Map<Id, Waiting>()
  /** What came without an id is known by a symbol: it counts, and it ends with the connection. */
  const running = new Map<Id | symbol, AbortController>()
  let running_bytes = 0
  let next_id = 0
  let over: Fault | undefined
  let ended: Fault | undefined
  let received = true
  let partial_timer: NodeJS.Timeout | undefined
  let write_timer: NodeJS.Timeout | undefined
  const { promise: closed, resolve: settleClosed } = Promise.withResolvers<Fault>()

  const close = (why = new Fault('unavailable', 'the connection was closed')): void => {
    if (over) return
    over = why
    intake.stop()
    reader.clear()
    clearTimeout(partial_timer)
    clearTimeout(write_timer)
    // A last error frame may still be in flight; what the peer does not read within a second is dropped. A peer that holds too
    // much is disconnected at once.
    if (why.kind === 'exhausted') socket.destroy()
    else socket.end()
    const late = setTimeout(() => socket.destroy(), 1000)
    if (socket.closed) clearTimeout(late)
    else socket.once('close', () => clearTimeout(late))
    for (const entry of waiting.values())
      entry.reject(new Fault('unavailable', `the connection ended: ${why.message}`, { cause: why }))
    waiting.clear()
    for (const controller of running.values()) controller.abort(why)
    running.clear()
    settleClosed(why)
  }

  const slow = (what: string) => close(new Fault('timeout', `the peer ${what} for ${limits.slow_ms} ms`))

  const balance = (): void => {
    if (over) return
    const choked =
      socket.writableLength > limits.held_bytes || running_bytes > limits.held_bytes || intake.waiting > 0
    if (choked && !socket.isPaused()) socket.pause()
    if (!choked && socket.isPaused()) socket.resume()
    if (socket.writableLength > limits.held_bytes) {
      write_timer ??= setTimeout(() => slow('did not read sent data'), limits.slow_ms).unref()
    } else {
      clearTimeout(write_timer)
      write_timer = undefined
    }
  }

  const writeText = (text: string) => {
    if (over) return
    socket.write(text)
    if (socket.writableLength > 4 * limits.held_bytes) return slow('did not read a large amount of sent data')
    if (socket.writableLength > limits.held_bytes) balance()
    if (socket.writableLength > loadReportBytes) options.on_load?.()
  }
  const fitting = (message: object): string => {
    const text = `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`
    if (text.length * 3 > limits.frame_bytes && Buffer.byteLength(text) > limits.frame_bytes)
      throw new Fault('invalid', `message exceeds the frame limit of ${limits.frame_bytes} bytes`, {
        hint: 'send less at once',
      })
    return text
  }
  const write = (message: object): void => writeText(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)

  const refuse = (id: Id | null, error: WireError) => {
    write({ id, error })
    close(new Fault('invalid', error.message))
  }

  async function serve(
    id: Id | undefined,
    method: string,
    params: unknown,
    weight: number,
    refused?: Fault,
  ): Promise<void> {
    const handler = Object.hasOwn(options.handlers, method) ? options.handlers[method] : undefined
    if (!handler) {
      if (id !== undefined) write({ id, error: { code: codes.method, message: `no method "${method}"` } })
      return
    }
    const controller = new AbortController()
    const key = id ?? Symbol(method)
    running.set(key, controller)
    running_bytes += weight
    if (running_bytes > limits.held_bytes) balance()
    options.on_load?.()
    try {
      const result = await handler(params, {
        ...(refused ? { refused } : {}),
        signal: controller.signal,
        progress: (update) => {
          if (id !== undefined && running.get(key) === controller)
            write({ method: 'progress', params: { id, ...update } })
        },
      })
      if (id !== undefined) writeText(fitting({ id, result: result === undefined ? null : result }))
    } catch (error) {
      if (id !== undefined) write({ id, error: toWireError(error) })
    } finally {
      if (running.get(key) === controller) running.delete(key)
      running_bytes -= weight
      if (socket.isPaused()) balance()
    }
  }

  function answer(message: Record<string, unknown>) {
    const entry = isId(message.id) ? waiting.get(message.id) : undefined
    // An answer to a request that was cancelled meanwhile is ignored.
    if (!entry) return
    waiting.delete(message.id as Id)
    if (message.error === undefined) return entry.resolve(message.result)
    const error = message.error
    if (!isObject(error) || typeof error.code !== 'number' || typeof error.message !== 'string')
      return entry.reject(new Fault('internal', 'the peer answered with a malformed error'))
    entry.reject(fromWireError(error as WireError))
  }

  function take(frame: Frame) {
    const request = options.watch ? requestKey(frame.text) : undefined
    if (!options.watch || !request) return takeNow(frame)
    const { watch } = options
    const begin = () => takeNow(frame, watch.begin(request))
    if (watch.isSuspect(request.key)) setImmediate(() => over || begin())
    else begin()
  }

  function takeNow({ text, weight, problem }: Frame, refused?: Fault) {
    if (problem && options.bounded)
      return refuse(null, { code: codes.request, message: `a frame ${problem}` })
    let message: unknown
    try {
      message = JSON.parse(text)
    } catch {
      return refuse(null, { code: codes.parse, message: 'a frame is not JSON' })
    }
    if (!isObject(message) || message.jsonrpc !== '2.0')
      return refuse(null, { code: codes.request, message: 'a frame is not a JSON-RPC 2.0 message' })
    if (message.method === undefined) return answer(message)
    const { id, method, params } = message
    if (typeof method !== 'string' || (id !== undefined && !isId(id)))
      return refuse(null, { code: codes.request, message: 'a request has a malformed method or id' })
    if (id === undefined && method === 'cancel' && isObject(params) && isId(params.id))
      return running.get(params.id)?.abort(new Fault('conflict', 'cancelled by the peer'))
    if (id === undefined && method === 'progress' && isObject(params) && isId(params.id))
      return waiting.get(params.id)?.on_progress?.(params as unknown as Progress)
    if (id !== undefined && running.has(id))
      return refuse(id, {
        code: codes.request,
        message: `request id ${JSON.stringify(id)} is already in use`,
      })
    if (running.size >= limits.open_requests)
      return refuse(id ?? null, {
        code: codes.request,
        message: `more than ${limits.open_requests} open requests`,
      })
    void serve(id, method, params, weight, refused)
  }

  const intake = createFrameQueue({
    take: (frame) => {
      if (!over) take(frame)
    },
    ...(options.throttle ? { throttle: options.throttle } : {}),
    onEmpty: () => (ended ? close(ended) : balance()),
  })

  /** Frames received before the end are still processed, unless the connection is throttled. */
  const end = (why: Fault): void => {
    if (intake.waiting === 0 || options.throttle) close(why)
    else ended ??= why
  }

  const watchPartial = (): void => {
    clearTimeout(partial_timer)
    partial_timer = undefined
    if (reader.partial_bytes === 0 || over) return
    partial_timer = setTimeout(() => {
      // Our own back-pressure is not the peer's slowness.
      if (socket.isPaused()) watchPartial()
      else slow('did not finish a frame')
    }, limits.slow_ms).unref()
  }

  socket.on('data', (chunk: Buffer) => {
    if (over) return
    received = true
    const had_partial = reader.partial_bytes > 0
    let frames: string[]
    try {
      frames = reader.push(chunk)
    } catch (error) {
      return refuse(null, { code: codes.parse, message: messageOf(error) })
    }
    if (frames.length > 0) options.on_frame?.()
    intake.push(frames)
    balance()
    if (frames.length > 0 || !had_partial) watchPartial()
    if (reader.partial_bytes > loadReportBytes) options.on_load?.()
  })
  socket.on('drain', balance)
  socket.on('error', (error) => close(new Fault('unavailable', error.message, { cause: error })))
  socket.on('end', () => end(new Fault('unavailable', 'the peer closed the connection')))
  socket.on('close', () => end(new Fault('unavailable', 'the connection closed')))

  return {
    async request(method, params, { signal, timeout_ms, on_progress } = {}) {
      if (over) throw new Fault('unavailable', `the connection ended: ${over.message}`)
      signal?.throwIfAborted()
      const id = next_id++
      const text =
        params instanceof RawJson
          ? `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params.text}}\n`
          : fitting({ id, method, params })
      const { promise, resolve, reject } = Promise.withResolvers<unknown>()
      const giveUp = (why: unknown) => {
        if (!waiting.delete(id)) return
        write({ method: 'cancel', params: { id } })
        reject(why)
      }
      const onAbort = () => giveUp(signal?.reason)
      const timer =
        timeout_ms === undefined
          ? undefined
          : setTimeout(
              () => giveUp(new Fault('timeout', `no answer to ${method} within ${timeout_ms} ms`)),
              timeout_ms,
            )
      signal?.addEventListener('abort', onAbort, { once: true })
      waiting.set(id, { resolve, reject, ...(on_progress ? { on_progress } : {}) })
      writeText(text)
      return promise.finally(() => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
      })
    },
    notify: (method, params) => write({ method, params }),
    close,
    closed,
    get open() {
      return over === undefined
    },
    wasSilent() {
      const silent = !received && !socket.isPaused()
      received = false
      return silent
    },
    get load() {
      const bytes = reader.partial_bytes + intake.waiting + running_bytes + socket.writableLength
      return { requests: running.size, bytes }
    },
  }
}
