// Runs work whose cost a tenant controls on threads that can be terminated. Each job has a deadline, in CPU time where the
// kernel provides it, so that a busy machine does not fail ordinary jobs; a thread that exceeds it or runs out of memory is
// terminated and replaced. Scheduling is fair: each tenant has one running job and a bounded queue, and a tenant with slow jobs
// waits in proportion, so that it never occupies more than part of a thread.
import { Worker } from 'node:worker_threads'
import { Fault } from '../fault.ts'
import { threadCpuMs, type WorkerMessage } from './worker-thread.ts'

/** The job exceeded its time or memory limit because of its input. */
export class TooCostly extends Fault {}

/** The worker refused the job. */
export class Refused extends Fault {}

export type WorkerPool = {
  /** `bytes` is the job's size in the queue. `admit` runs before the job starts; if it throws, the job does not start. */
  run(tenant: string, job: unknown, bytes: number, admit?: () => void): Promise<unknown>
  close(): Promise<void>
}

type Job = {
  input: unknown
  bytes: number
  admit: (() => void) | undefined
  done: PromiseWithResolvers<unknown>
}
type Lane = { jobs: Job[]; bytes: number; busy: boolean; not_before: number }
type Thread = {
  worker: Worker
  ready: boolean
  id?: number
  /** CPU time used up to the end of its last job. */
  cpu_ms?: number
  end?: (how: (job: Job) => void) => void
}

const startMs = 60_000
/** Wall-clock limit of a job as a multiple of its deadline, for a busy machine. */
const wallClockFactor = 20
const slowMs = 50
const slowFactor = 3
const queueJobs = 4096
const queueBytes = 32 * 1024 * 1024

export function createWorkerPool(options: {
  /** For messages: what the jobs are. */
  what: string
  script: URL
  threads: number
  deadline_ms: number
  memory_mb: number
}): WorkerPool {
  const { what, deadline_ms } = options
  const lanes = new Map<string, Lane>()
  const threads = new Set<Thread>()
  const idle: Thread[] = []
  let wake: NodeJS.Timeout | undefined
  let closed = false

  function start(): Thread {
    const worker = new Worker(options.script, {
      execArgv: [],
      env: {},
      resourceLimits: {
        maxOldGenerationSizeMb: options.memory_mb,
        maxYoungGenerationSizeMb: 16,
        stackSizeMb: 4,
      },
    })
    worker.unref()
    const thread: Thread = { worker, ready: false }
    threads.add(thread)
    // A running job has listeners of its own; an idle thread is only dropped.
    worker.on('error', () => drop(thread)).on('exit', () => drop(thread))
    return thread
  }

  function drop(thread: Thread): void {
    threads.delete(thread)
    const at = idle.indexOf(thread)
    if (at >= 0) idle.splice(at, 1)
    // The thread is not used again, whether or not this succeeds.
    thread.worker.terminate().catch(() => undefined)
  }

  function next(): [Lane, Job] | undefined {
    const now = performance.now()
    let soonest = Number.POSITIVE_INFINITY
    for (const [tenant, lane] of lanes) {
      if (lane.busy) continue
      const job = lane.not_before <= now ? lane.jobs.shift() : undefined
      if (job) {
        lane.bytes -= job.bytes
        // Moves the tenant to the end of the rotation.
        lanes.delete(tenant)
        lanes.set(tenant, lane)
        return [lane, job]
      }
      if (lane.jobs.length > 0) soonest = Math.min(soonest, lane.not_before)
      else if (lane.not_before <= now) lanes.delete(tenant)
    }
    clearTimeout(wake)
    if (soonest !== Number.POSITIVE_INFINITY) wake = setTimeout(work, soonest - now + 1).unref()
    return undefined
  }

  function work(): void {
    while (!closed && (idle.length > 0 || threads.size < options.threads)) {
      const found = next()
      if (!found) return
      const [lane, job] = found
      try {
        job.admit?.()
      } catch (error) {
        job.done.reject(error)
        continue
      }
      lane.busy = true
      void execute(idle.pop() ?? start(), lane, job)
    }
  }

  async function execute(thread: Thread, lane: Lane, job: Job): Promise<void> {
    const { worker } = thread
    const { promise: over, resolve: end } = Promise.withResolvers<(job: Job) => void>()
    thread.end = end
    let began = performance.now()
    let timer: NodeJS.Timeout
    const usedBy = (cpu_ms: number | undefined) =>
      cpu_ms === undefined || thread.cpu_ms === undefined ? undefined : cpu_ms - thread.cpu_ms
    const late = () => {
      const used = thread.ready ? usedBy(threadCpuMs(thread.id)) : undefined
      if (
        used !== undefined &&
        used < deadline_ms &&
        performance.now() - began < wallClockFactor * deadline_ms
      ) {
        timer = setTimeout(late, Math.max(20, deadline_ms - used))
        return
      }
      // An answer may already be queued in this iteration of the event loop.
      setImmediate(() => end(({ done }) => done.reject(tooLong(thread.ready))))
    }
    const watch = (ms: number) => {
      clearTimeout(timer)
      began = performance.now()
      timer = setTimeout(late, ms)
    }
    let used_ms: number | undefined
    const onMessage = (message: WorkerMessage) => {
      if ('ready' in message) {
        thread.ready = true
        if (message.ready !== undefined) thread.id = message.ready
        if (message.cpu_ms !== undefined) thread.cpu_ms = message.cpu_ms
        return watch(deadline_ms)
      }
      const { outcome: answer, cpu_ms } = message
      used_ms = usedBy(cpu_ms)
      if (cpu_ms !== undefined) thread.cpu_ms = cpu_ms
      end(({ done }) =>
        'value' in answer ? done.resolve(answer.value) : done.reject(new Refused('invalid', answer.problem)),
      )
    }
    const onError = (error: Error & { code?: string }) =>
      end(({ done }) =>
        done.reject(
          error.code === 'ERR_WORKER_OUT_OF_MEMORY'
            ? new TooCostly('exhausted', `${what} needs more than ${options.memory_mb} MiB of memory`)
            : new TooCostly('unavailable', `${what} failed: ${error.message}`, { cause: error }),
        ),
      )
    const onExit = () => end(({ done }) => done.reject(new Fault('unavailable', `${what} was interrupted`)))
    worker.on('message', onMessage).on('error', onError).on('exit', onExit)
    watch(thread.ready ? deadline_ms : startMs)
    let answered = false
    try {
      worker.postMessage(job.input)
      const settle = await over
      settle({
        ...job,
        done: {
          ...job.done,
          resolve: (value) => {
            answered = true
            job.done.resolve(value)
          },
          reject: (reason) => {
            answered = reason instanceof Refused
            job.done.reject(reason)
          },
        },
      })
    } catch (error) {
      job.done.reject(error)
    } finally {
      clearTimeout(timer!)
      worker.off('message', onMessage).off('error', onError).off('exit', onExit)
      delete thread.end
      const took = used_ms ?? performance.now() - began
      if (took > slowMs) lane.not_before = performance.now() + slowFactor * took
      lane.busy = false
      if (answered && !closed) idle.push(thread)
      else drop(thread)
      work()
    }
  }

  const tooLong = (ready: boolean) =>
    ready
      ? new TooCostly('timeout', `${what} took longer than ${deadline_ms} ms`)
      : new Fault('unavailable', `${what} failed: its thread did not start within ${startMs} ms`)

  return {
    run(tenant, input, bytes, admit) {
      if (closed) return Promise.reject(new Fault('unavailable', 'the server is stopping'))
      const lane = lanes.get(tenant) ?? { jobs: [], bytes: 0, busy: false, not_before: 0 }
      lanes.set(tenant, lane)
      if (lane.jobs.length >= queueJobs || lane.bytes + bytes > queueBytes)
        return Promise.reject(
          new Fault('exhausted', `this project has too many queued jobs for ${what}`, {
            hint: 'retry later',
          }),
        )
      const done = Promise.withResolvers<unknown>()
      lane.jobs.push({ input, bytes, admit, done })
      lane.bytes += bytes
      work()
      return done.promise
    },
    async close() {
      closed = true
      clearTimeout(wake)
      const stopping = new Fault('unavailable', 'the server is stopping')
      for (const lane of lanes.values()) for (const { done } of lane.jobs) done.reject(stopping)
      lanes.clear()
      for (const thread of threads) thread.end?.(({ done }) => done.reject(stopping))
      await Promise.allSettled([...threads].map(({ worker }) => worker.terminate()))
    },
  }
}
