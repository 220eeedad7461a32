// MCP over the streams of a process. The process is hostile: its lines may be split, joined, endless or no messages at all, it may
// flood, stop reading, or close one stream and go on.
import { setTimeout as pause } from 'node:timers/promises'
import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client'
import { messageOf } from '../../fault.ts'
import type { StdioProcess } from '../upstream.ts'
import { createLineSplitter, type Line } from './line-splitter.ts'
import { createMessageBudget } from './message-budget.ts'
import {
  idOf,
  isResponse,
  messageLimit,
  parseMessages,
  type RequestId,
  refusal,
  tooLarge,
} from './messages.ts'
import { createTextTail, type TextTail } from './text-tail.ts'

/** After its stdin was closed. */
const graceMs = 500
/** What is not read by the process yet; it is limited, since a process may never read. */
const maxUnreadBytes = 32 * 1024 * 1024
/** A line that is longer by this factor than the limit ends the connection. */
const endlessFactor = 16
const stderrBytesPerPause = 1024 * 1024
const stderrPauseMs = 100

export class StdioTransport implements Transport {
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: JSONRPCMessage) => void
  // The SDK recognizes stdio by these two.
  readonly stderr = null
  readonly pid = null
  readonly stderr_tail: TextTail = createTextTail()
  readonly garbage_tail: TextTail = createTextTail()
  garbage_lines = 0
  /** Why it was closed; undefined while it is open. */
  end_reason: string | undefined
  readonly #process: StdioProcess
  readonly #max_result_bytes: number
  readonly #splitter
  readonly #budget = createMessageBudget()
  readonly #waiting = new Set<RequestId>()
  #closing: Promise<void> | undefined
  #told = false

  constructor(process: StdioProcess, max_result_bytes: number) {
    this.#process = process
    this.#max_result_bytes = max_result_bytes
    this.#splitter = createLineSplitter(messageLimit(max_result_bytes))
    let stderr_bytes = 0
    process.stderr.on('data', (chunk: Buffer) => {
      this.stderr_tail.push(chunk.toString('utf8'))
      stderr_bytes += chunk.length
      if (stderr_bytes < stderrBytesPerPause) return
      stderr_bytes = 0
      process.stderr.pause()
      setTimeout(() => process.stderr.resume(), stderrPauseMs).unref()
    })
    process.stderr.on('error', () => undefined)
    process.stdin.on('error', (error) => this.#end(`its stdin failed: ${messageOf(error)}`))
    process.stdout.on('error', (error) => this.#end(`its stdout failed: ${messageOf(error)}`))
    process.ended.then(
      async ({ reason }) => {
        // What it wrote before its end may be unread.
        if (!process.stdout.readableEnded)
          await Promise.race([new Promise((resolve) => process.stdout.once('end', resolve)), pause(graceMs)])
        this.#end(reason)
      },
      (error: unknown) => this.#end(messageOf(error)),
    )
  }

  async start(): Promise<void> {
    this.#process.stdout.on('data', (chunk: Buffer) => this.#read(chunk))
    this.#process.stdout.once('end', () => {
      // The exit code is a better reason, if there is one soon.
      setTimeout(() => this.#end('it closed its stdout'), graceMs).unref()
    })
  }

  #read(chunk: Buffer): void {
    let wait_ms = 0
    for (const line of this.#splitter.push(chunk)) wait_ms = Math.max(wait_ms, this.#line(line))
    if (this.#splitter.held_bytes > messageLimit(this.#max_result_bytes) * endlessFactor)
      this.#end(`it sent a line of more than ${this.#splitter.held_bytes} bytes`)
    if (wait_ms === 0) return
    this.#process.stdout.pause()
    setTimeout(() => this.#process.stdout.resume(), wait_ms).unref()
  }

  /** How long to stop reading. */
  #line(line: Line): number {
    if (!('text' in line)) {
      this.#refuse(idOf(line.head, line.tail), tooLarge(line.too_long_bytes, this.#max_result_bytes))
      return this.#budget.spend(line.too_long_bytes)
    }
    if (line.text.trim() === '') return this.#budget.spend(0)
    const parsed = parseMessages(line.text)
    if (parsed.kind === 'garbage') {
      this.garbage_lines++
      this.garbage_tail.push(`${line.text.slice(0, 1_000)}\n`)
      return this.#budget.spend(line.text.length)
    }
    if (parsed.kind === 'refused') {
      this.#refuse(parsed.id, parsed.reason)
      return this.#budget.spend(line.text.length)
    }
    let wait_ms = 0
    for (const message of parsed.messages) {
      const asked = isResponse(message) && this.#waiting.delete(message.id)
      if (!asked) wait_ms = Math.max(wait_ms, this.#budget.spend(line.text.length / parsed.messages.length))
      // An answer to no request is of no use, and the SDK would serialize it for an error message.
      if (asked || !isResponse(message)) this.onmessage?.(message)
    }
    return wait_ms
  }

  #refuse(id: RequestId | undefined, reason: string): void {
    // Without an id, only an answer to the single open request can be told.
    const known = id ?? (this.#waiting.size === 1 ? [...this.#waiting][0] : undefined)
    if (known === undefined || !this.#waiting.delete(known)) this.onerror?.(new Error(reason))
    else this.onmessage?.(refusal(known, reason))
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const { stdin } = this.#process
    if (this.end_reason !== undefined || !stdin.writable)
      throw new Error(this.end_reason ?? 'its stdin is closed')
    if (stdin.writableLength > maxUnreadBytes) throw new Error('it does not read its stdin')
    if ('method' in message && 'id' in message) this.#waiting.add(message.id)
    // An answer to a cancelled request is not waited for, and costs like any other message.
    if ('method' in message && message.method === 'notifications/cancelled')
      this.#waiting.delete((message.params as { requestId: RequestId }).requestId)
    stdin.write(`${JSON.stringify(message)}\n`)
  }

  #end(reason: string): void {
    this.end_reason ??= reason
    void this.close()
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.end_reason ??= 'closed'
    if (!this.#told) {
      this.#told = true
      queueMicrotask(() => this.onclose?.())
    }
    const { stdin, stdout, stderr, ended } = this.#process
    stdin.end()
    // Output that nobody reads would keep it from ending.
    stdout.removeAllListeners('data')
    stdout.resume()
    const over = ended.then(
      () => true,
      () => true,
    )
    if (!(await Promise.race([over, pause(graceMs, false, { ref: false })]))) await this.#process.kill()
    stdin.destroy()
    stdout.destroy()
    stderr.destroy()
  }
}
