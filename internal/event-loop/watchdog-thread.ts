// The thread of `event-loop/watchdog.ts`. The main thread cannot be asked for anything here: it is the one that stands still.
import { openSync, writeSync } from 'node:fs'
import { workerData } from 'node:worker_threads'
import { frozenMark, readLeft } from './in-flight.ts'
import type { WatchdogData } from './watchdog.ts'

const { beat, seconds, file } = workerData as WatchdogData
const count = new Int32Array(beat)
let last = Atomics.load(count, 0)
let still = 0

setInterval(() => {
  const now = Atomics.load(count, 0)
  still = now === last ? still + 1 : 0
  last = now
  if (still < seconds) return
  const working_on = readLeft(file).requests
  const entry = {
    at: new Date().toISOString(),
    level: 'error',
    message: 'event loop blocked, ending the process',
    seconds,
    working_on,
  }
  writeSync(2, `${JSON.stringify(entry)}\n`)
  writeSync(openSync(file, 'r+'), frozenMark, 0, 'latin1')
  process.kill(process.pid, 'SIGKILL')
}, 1000)
