// Runs inspections: short bodies inline, others in one of two threads, so that neither the event loop nor another project's short
// request waits for a long one. Each thread serves projects in rotation, and a job that takes too long is terminated with it.
import { Worker } from 'node:worker_threads'
import { Fault, type Kind } from '../../fault.ts'
import type { UsageReading } from '../usage/usage.ts'
import { type Inspect, type Inspection, inspect } from './inspect.ts'

export type Job = { parts: Uint8Array[] } & ({ kind: 'inspection'; how: Inspect } | { kind: 'usage' })
export type JobAnswer =
  | { kind: 'inspection'; inspection: Inspection }
  | { kind: 'usage'; readings: (UsageReading | undefined)[] }
  | { kind: 'fault'; fault: { kind: Kind; message: string; hint?: string } }

/** Takes at most a millisecond to parse, with any content. */
const inlineBytes = 8 * 1024
const shortBytes = 1024 * 1024
const maxJobMs = 30_000
const threadMb = 1024

type Waiting = { job: Job; done: PromiseWithResolvers<JobAnswer> }

const failed = (reason: string) => new Fault('invalid', `failed to inspect the request: ${reason}`)

/** One thread, started when it is first needed and again after a job that broke it. */
function createThread() {
  const queues = new Map<string, Waiting[]>()
  let worker: Worker | undefined
  let current: (Waiting & { late: NodeJS.Timeout }) | undefined

  function end(outcome: JobAnswer | Fault): void {
    const ended = current
    current = undefined
    if (!ended) return
    clearTimeout(ended.late)
    if (outcome instanceof Fault) ended.done.reject(outcome)
    else ended.done.resolve(outcome)
    next()
  }

  function lose(reason: string): void {
    const lost = worker
    worker = undefined
    void lost?.terminate()
    end(failed(reason))
  }

  function start(): Worker {
    const started = new Worker(new URL('./worker.ts', import.meta.url), {
      name: 'models',
      resourceLimits: { maxOldGenerationSizeMb: threadMb },
      env: {},
      execArgv: [],
    })
    started.unref()
    started.on('message', (answer: JobAnswer) => {
      if (started === worker) end(answer)
    })
    started.on('error', (error) => {
      if (started === worker) lose(error.message)
    })
    started.on('exit', () => {
      if (started === worker) lose('its thread ended')
    })
    return started
  }

  /** The project that waited longest for its turn. */
  function take(): Waiting | undefined {
    for (const [project_id, queue] of queues) {
      queues.delete(project_id)
      const first = queue.shift()
      if (queue.length > 0) queues.set(project_id, queue)
      if (first) return first
    }
    return undefined
  }

  function next(): void {
    if (current) return
    const taken = take()
    if (!taken) return
    worker ??= start()
    current = { ...taken, late: setTimeout(() => lose('time limit exceeded'), maxJobMs) }
    const { parts } = taken.job
    worker.postMessage(
      taken.job,
      parts.map(({ buffer }) => buffer as ArrayBuffer),
    )
  }

  return {
    run(project_id: string, job: Job): Promise<JobAnswer> {
      const done = Promise.withResolvers<JobAnswer>()
      const queue = queues.get(project_id) ?? []
      queue.push({ job, done })
      queues.set(project_id, queue)
      next()
      return done.promise
    },
    close(): void {
      const stopping = failed('the server is stopping')
      for (const queue of queues.values()) for (const { done } of queue) done.reject(stopping)
      queues.clear()
      const ended = worker
      worker = undefined
      void ended?.terminate()
      end(stopping)
    },
  }
}

/** Memory that is not shared, so that it can be transferred to a thread. */
function owned(part: Buffer): Uint8Array {
  const { buffer, byteOffset, byteLength } = part
  return byteOffset === 0 && byteLength === buffer.byteLength ? part : new Uint8Array(part)
}

export function createInspections() {
  const short = createThread()
  const long = createThread()

  /** The parts must not be used afterwards. */
  async function inThread(project_id: string, job: Job): Promise<JobAnswer> {
    const bytes = job.parts.reduce((sum, part) => sum + part.length, 0)
    const answer = await (bytes <= shortBytes ? short : long).run(project_id, job)
    if (answer.kind !== 'fault') return answer
    const { kind, message, hint } = answer.fault
    throw new Fault(kind, message, hint ? { hint } : {})
  }

  return {
    async inspect(project_id: string, parts: Buffer[], how: Inspect): Promise<Inspection> {
      if (parts.reduce((sum, part) => sum + part.length, 0) <= inlineBytes)
        return inspect(Buffer.concat(parts), how)
      const answer = await inThread(project_id, { kind: 'inspection', how, parts: parts.map(owned) })
      if (answer.kind !== 'inspection') throw new Error('unexpected answer from the inspection thread')
      const { body } = answer.inspection
      return { ...answer.inspection, body: Buffer.from(body.buffer, body.byteOffset, body.byteLength) }
    },
    /** Token usage of an answer that is too long to be parsed on the event loop. */
    async usage(project_id: string, parts: Buffer[]): Promise<UsageReading[]> {
      // The parts are also being sent to the droid.
      const copies = parts.map((part) => new Uint8Array(part))
      const answer = await inThread(project_id, { kind: 'usage', parts: copies })
      return answer.kind === 'usage' ? answer.readings.filter((it) => it !== undefined) : []
    },
    close(): void {
      short.close()
      long.close()
    },
  }
}
