// One WebSocket and its terminal. Binary messages are input and output. Text messages are JSON:
//
//   client → server  {"type":"resize","rows":R,"cols":C}   {"type":"ack","bytes":N}
//   server → client  {"type":"progress","message":…}   {"type":"ready","terminal_id":…}
//                    {"type":"exit","exit_code":N}   {"type":"error","error":{…}}
//
// The client acknowledges the output that it has processed. While too much is unacknowledged, the program in the terminal
// waits: neither the server nor the client buffers without bound, and an interrupt takes effect soon.
import type { RawData, WebSocket } from 'ws'
import type { Caller } from '../../auth/caller.ts'
import type { OpenStreams } from '../../auth/open-streams.ts'
import { createRate } from '../../auth/rate.ts'
import { Fault, toFault } from '../../fault.ts'
import type { Terminal, TerminalSize } from '../../manager/terminal/terminals.ts'
import { mustYield, waitForSlice } from '../../protocol/time-slice.ts'
import { terminalSize } from '../../tools/declarations/terminal.ts'
import type { CallContext } from '../../tools/tool.ts'
import type { OutputRate } from './output-rate.ts'

type Options = {
  caller: Caller
  streams: OpenStreams
  rate: OutputRate
  idle_minutes: number
  open(signal: AbortSignal, progress: CallContext['progress']): Promise<Terminal>
  /** Logs a failure and returns it as a fault. */
  failed(thrown: unknown): Fault
}

/** Output that the client has not acknowledged. */
const windowBytes = 512 * 1024
/** Input that arrives before the terminal is open, or that its program does not read. */
const inputBytes = 256 * 1024
const inputRate = { per_second: 1024 * 1024, burst: 2 * 1024 * 1024 }
const messageRate = { per_second: 1_000, burst: 2_000 }
const pingMs = 20_000
const missedPings = 3
const lastMs = 2_000

const codes = { ended: 1000, leaving: 1001, refused: 1008, failed: 1011 }

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    const message: unknown = JSON.parse(text)
    return typeof message === 'object' && message !== null ? (message as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

function bytesOf(data: RawData): Buffer {
  if (Array.isArray(data)) return Buffer.concat(data)
  return data instanceof ArrayBuffer ? Buffer.from(data) : data
}

export function createConnection(web: WebSocket, options: Options): void {
  const leaving = new AbortController()
  const input = createRate(inputRate)
  const messages = createRate(messageRate)
  let terminal: Terminal | undefined
  let early: Buffer[] | undefined = []
  let early_bytes = 0
  let unacknowledged = 0
  let onAcknowledged = () => {}
  let active_ms = performance.now()
  let heard = 0
  let over = false
  let free = () => {}

  const tell = (message: object) => {
    if (web.readyState === web.OPEN) web.send(JSON.stringify(message))
  }

  function end(code: number, last?: object): void {
    if (over) return
    over = true
    clearInterval(beat)
    free()
    leaving.abort(new Fault('conflict', 'the terminal was closed'))
    terminal?.close()
    onAcknowledged()
    if (last) tell(last)
    web.close(code)
    setTimeout(() => web.terminate(), lastMs).unref()
  }
  const refuse = (fault: Fault, code = codes.refused) => end(code, { type: 'error', error: fault.shape() })

  /** A message beyond the rate stops the reading of further ones; the peer waits. */
  function throttle(bytes: number): void {
    const taken = [messages.take('', 1), input.take('', bytes)]
    const wait = Math.max(...taken.map((one) => (one.ok ? 0 : one.retry_after_seconds)))
    if (wait === 0 || web.isPaused) return
    web.pause()
    setTimeout(() => resume(), wait * 1000)
  }
  function resume(): void {
    if (web.isPaused && (terminal?.bytes.writableLength ?? 0) < inputBytes) web.resume()
  }

  function write(bytes: Buffer): void {
    if (terminal) {
      if (
        terminal.bytes.destroyed ||
        terminal.bytes.write(bytes) ||
        terminal.bytes.writableLength < inputBytes
      )
        return
      web.pause()
      terminal.bytes.once('drain', resume)
      return
    }
    early_bytes += bytes.length
    if (early_bytes <= inputBytes) early?.push(bytes)
    else refuse(new Fault('exhausted', 'too much input before the terminal was open'))
  }

  /** A size that arrives before the terminal is open is applied then. */
  let wanted: TerminalSize | undefined

  function control(text: string): void {
    const message = parsed(text)
    if (message?.type === 'ack' && Number.isSafeInteger(message.bytes) && Number(message.bytes) > 0) {
      unacknowledged = Math.max(0, unacknowledged - Number(message.bytes))
      onAcknowledged()
      return
    }
    const { type, ...size } = message ?? {}
    const checked = terminalSize.safeParse(size)
    if (type === 'resize' && checked.success) {
      wanted = checked.data
      terminal?.resize(wanted)
    } else
      refuse(new Fault('invalid', 'unknown message', { hint: 'send "resize" with rows and cols, or "ack"' }))
  }

  async function mayContinue(bytes: number, project_id: string): Promise<void> {
    if (mustYield()) await new Promise<void>((resolve) => waitForSlice(resolve))
    await options.rate.take(project_id, bytes)
    while (unacknowledged >= windowBytes && !over)
      await new Promise<void>((resolve) => {
        onAcknowledged = resolve
      })
  }

  async function forward({ bytes, project_id }: Terminal): Promise<void> {
    for await (const chunk of bytes as AsyncIterable<Buffer>) {
      await mayContinue(chunk.length, project_id)
      if (over) return
      active_ms = performance.now()
      unacknowledged += chunk.length
      // Called when the socket has taken it, also if that fails.
      await new Promise<void>((resolve) => web.send(chunk, { binary: true }, () => resolve()))
    }
  }

  async function run(): Promise<void> {
    const opened = await options.open(leaving.signal, ({ message }) => {
      if (message) tell({ type: 'progress', message })
    })
    if (over) return opened.close()
    terminal = opened
    tell({ type: 'ready', terminal_id: opened.terminal_id })
    if (wanted) opened.resize(wanted)
    const typed = early ?? []
    early = undefined
    for (const bytes of typed) write(bytes)
    await forward(opened).catch((error: unknown) => {
      // Cut by the end of the terminal, which says why.
      if (!opened.bytes.destroyed) throw error
    })
    if (over) return
    end(codes.ended, { type: 'exit', ...(await opened.ended) })
  }

  const beat = setInterval(
    () => {
      heard = web.isPaused ? 0 : heard + 1
      if (heard > missedPings) return web.terminate()
      if (performance.now() - active_ms > options.idle_minutes * 60_000)
        return refuse(
          new Fault('timeout', `the terminal was idle for ${options.idle_minutes} minutes`, {
            hint: 'the limit is terminals.idle_minutes in the config',
          }),
        )
      web.ping()
    },
    Math.min(pingMs, options.idle_minutes * 60_000),
  ).unref()

  web.on('error', () => web.terminate())
  web.on('close', () => end(codes.leaving))
  web.on('pong', () => {
    heard = 0
  })
  web.on('ping', () => throttle(0))
  web.on('message', (data, is_binary) => {
    if (over) return
    heard = 0
    const bytes = bytesOf(data)
    throttle(bytes.length)
    if (!is_binary) return control(bytes.toString('utf8'))
    active_ms = performance.now()
    write(bytes)
  })

  const start = async () => {
    free = options.streams.open(options.caller, (why) =>
      refuse(why ?? new Fault('unavailable', 'the server is stopping'), why ? codes.refused : codes.leaving),
    )
    if (over) return free()
    await run()
  }
  start().catch((thrown: unknown) => {
    if (over) return
    const fault = options.failed(toFault(thrown))
    refuse(fault, fault.kind === 'internal' ? codes.failed : codes.refused)
  })
}
