// Runs in a thread: inspects bodies that would block the event loop.
import { setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { toFault } from '../../fault.ts'
import { readUsage } from '../usage/usage.ts'
import { inspect } from './inspect.ts'
import type { Job, JobAnswer } from './inspections.ts'

// Lower priority than the event loop, for machines with few cores. Linux has a priority per thread.
if (process.platform === 'linux') setPriority(0, 10)

function answerOf(job: Job): JobAnswer {
  const bytes = Buffer.concat(job.parts.map((part) => Buffer.from(part)))
  if (job.kind === 'usage') {
    try {
      const value: unknown = JSON.parse(bytes.toString('utf8'))
      return { kind: 'usage', readings: (Array.isArray(value) ? value : [value]).map(readUsage) }
    } catch {
      // Not JSON, or incomplete: there is no usage, and the worst case is charged.
      return { kind: 'usage', readings: [] }
    }
  }
  try {
    return { kind: 'inspection', inspection: inspect(bytes, job.how) }
  } catch (error) {
    const { kind, message, hint } = toFault(error)
    return { kind: 'fault', fault: { kind, message, ...(hint ? { hint } : {}) } }
  }
}

parentPort!.on('message', (job: Job) => {
  const answer = answerOf(job)
  if (answer.kind !== 'inspection') return parentPort!.postMessage(answer)
  const { buffer, byteOffset, byteLength } = answer.inspection.body
  const whole = byteOffset === 0 && byteLength === buffer.byteLength && buffer instanceof ArrayBuffer
  parentPort!.postMessage(answer, whole ? [buffer] : [])
})
