// Ends the process when its event loop has stood still for too long, so that a service manager starts it again. A thread
// of its own watches: it counts its own seconds, so that a process that was suspended as a whole is not taken for frozen.
import { Worker } from 'node:worker_threads'
import { inFlightFile } from './in-flight.ts'

export type WatchdogData = { beat: SharedArrayBuffer; seconds: number; file: string }

export function startWatchdog(options: { home: string; seconds: number }): { stop(): Promise<void> } {
  const beat = new SharedArrayBuffer(4)
  const count = new Int32Array(beat)
  const timer = setInterval(() => Atomics.add(count, 0, 1), 500).unref()
  const workerData: WatchdogData = { beat, seconds: options.seconds, file: inFlightFile(options.home) }
  const worker = new Worker(new URL('./watchdog-thread.ts', import.meta.url), {
    workerData,
    env: {},
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 4 },
  })
  worker.unref()
  return {
    async stop() {
      clearInterval(timer)
      await worker.terminate()
    },
  }
}
