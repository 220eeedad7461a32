// Kills the process when its event loop is blocked for too long, so that a service manager restarts it. A separate thread
// watches and counts its own ticks, so that a suspended process is not mistaken for a blocked one.
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
