// The thread of `watchdog.ts`. It must not depend on the main thread, which is the one that is blocked.
import { openSync, writeSync } from 'node:fs'
import { workerData } from 'node:worker_threads'
import { frozenMark, readLeft } from './in-flight.ts'
import type { WatchdogData } from './watchdog.ts'

const { beat, seconds, file } = workerData as WatchdogData
const count = new Int32Array(beat)
let last = Atomics.load(count, 0)
let stalled = 0

setInterval(() => {
  const now = Atomics.load(count, 0)
  stalled = now === last ? stalled + 1 : 0
  last = now
  if (stalled < seconds) return
  const working_on = readLeft(file).requests
  const entry = {
    at: new Date().toISOString(),
    level: 'error',
    message: 'event loop blocked, killing the process',
    seconds,
    working_on,
  }
  writeSync(2, `${JSON.stringify(entry)}\n`)
  writeSync(openSync(file, 'r+'), frozenMark, 0, 'latin1')
  process.kill(process.pid, 'SIGKILL')
}, 1000)
