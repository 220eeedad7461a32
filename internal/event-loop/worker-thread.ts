// The thread's side of `event-loop/worker-pool.ts`: takes jobs, answers each, and says how much processor time it has used.
import { readFileSync, readlinkSync } from 'node:fs'
import { parentPort } from 'node:worker_threads'

export type Outcome = { value: unknown } | { problem: string }
export type WorkerMessage = { ready: number | undefined; cpu_ms: number | undefined } | WorkerAnswer
export type WorkerAnswer = { outcome: Outcome; cpu_ms: number | undefined }

/** Of one thread of this process, by the kernel's count; undefined where the kernel does not tell. */
export function threadCpuMs(thread_id: number | undefined): number | undefined {
  if (thread_id === undefined) return undefined
  try {
    const [nanoseconds] = readFileSync(`/proc/self/task/${thread_id}/schedstat`, 'utf8').split(' ')
    return Number(nanoseconds) / 1e6
  } catch {
    // Another system than Linux, or a thread that has just ended: the clock has to do.
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
