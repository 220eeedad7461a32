// The thread's side of `worker-pool.ts`: runs jobs, answers each, and reports the CPU time it has used.
import { readFileSync, readlinkSync } from 'node:fs'
import { parentPort } from 'node:worker_threads'

export type Outcome = { value: unknown } | { problem: string }
export type WorkerMessage = { ready: number | undefined; cpu_ms: number | undefined } | WorkerAnswer
export type WorkerAnswer = { outcome: Outcome; cpu_ms: number | undefined }

/** CPU time of one thread of this process; undefined where the kernel does not provide it. */
export function threadCpuMs(thread_id: number | undefined): number | undefined {
  if (thread_id === undefined) return undefined
  try {
    const [nanoseconds] = readFileSync(`/proc/self/task/${thread_id}/schedstat`, 'utf8').split(' ')
    return Number(nanoseconds) / 1e6
  } catch {
    // Not Linux, or the thread has just ended: wall-clock time is used instead.
    return undefined
  }
}

function ownThreadId(): number | undefined {
  try {
    return Number(readlinkSync('/proc/thread-self').split('/').at(-1))
  } catch {
    // As above.
    return undefined
  }
}

export function serveJobs<Job>(answer: (job: Job) => Outcome): void {
  const ready = ownThreadId()
  const post = (message: WorkerMessage) => parentPort?.postMessage(message)
  parentPort?.on('message', (job: Job) => post({ outcome: answer(job), cpu_ms: threadCpuMs(ready) }))
  post({ ready, cpu_ms: threadCpuMs(ready) })
}
