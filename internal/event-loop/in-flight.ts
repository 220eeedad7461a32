// Records the requests that the event loop is processing in a small file that survives the process. Each request that begins in
// an iteration of the loop has a slot, and the slots are cleared at the end of the iteration. A server that crashes or freezes
// leaves its current requests in the file; one that is killed between iterations leaves nothing. The file is not synced to
// disk: it has to survive the process, not a power failure.
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'

const slotBytes = 192
const slots = 64

/** `key` identifies a request and is the same when it is repeated. */
export type Request = { project_id: string; key: string; what: string }
export type Left = {
  requests: Request[]
  /** The watchdog killed the process because the event loop was blocked. */
  frozen: boolean
}

export type InFlight = {
  begin(request: Request): void
  close(): void
}

export const inFlightFile = (home: string) => join(home, 'in-flight')

/** Content of the first slot if the loop was blocked. */
export const frozenMark = 'frozen'

const lineOf = ({ project_id, key, what }: Request) => `${project_id} ${key} ${what}`.slice(0, slotBytes)

export function encodeLeft({ requests, frozen }: Left): Buffer {
  const file = Buffer.alloc(slotBytes * (slots + 1))
  if (frozen) file.write(frozenMark, 0, 'latin1')
  for (const [at, request] of requests.entries())
    file.write(lineOf(request), slotBytes * (at + 1), slotBytes, 'latin1')
  return file
}

export function readLeft(file: string): Left {
  let bytes: Buffer
  try {
    bytes = readFileSync(file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    bytes = Buffer.alloc(0)
  }
  const texts = Array.from({ length: slots + 1 }, (_, at) => {
    const text = bytes.toString('latin1', at * slotBytes, (at + 1) * slotBytes)
    return text.slice(0, text.indexOf('\0') < 0 ? text.length : text.indexOf('\0'))
  })
  const requests = texts.slice(1).flatMap((text): Request[] => {
    const [project_id, key, ...what] = text.split(' ')
    return project_id && key ? [{ project_id, key, what: what.join(' ') }] : []
  })
  return { requests, frozen: texts[0] === frozenMark }
}

/** Clears the file; call `readLeft` first. `onDone` gets each request at the end of its iteration. */
export function openInFlight(
  home: string,
  onDone: (request: Request) => void,
  onError: (error: unknown) => void,
): InFlight {
  const path = inFlightFile(home)
  const file = openSync(path, 'w', 0o600)
  writeSync(file, Buffer.alloc(slotBytes * (slots + 1)))
  const slot = Buffer.alloc(slotBytes)
  const empty = Buffer.alloc(slotBytes * slots)
  const begun: Request[] = []
  let used = 0

  function write(bytes: Buffer, length: number, at: number): void {
    try {
      writeSync(file, bytes, 0, length, at)
    } catch (error) {
      // A disk error loses the record; it must not fail the request.
      onError(error)
    }
  }

  function done(): void {
    write(empty, used * slotBytes, slotBytes)
    used = 0
    for (const request of begun.splice(0)) onDone(request)
  }

  return {
    begin(request) {
      // Runs after the current callback and all promises that it settles: a tick that is queued from a microtask runs after
      // the last of them.
      if (used === 0) process.nextTick(() => queueMicrotask(() => process.nextTick(done)))
      const at = Math.min(used, slots - 1)
      const length = slot.write(lineOf(request), 0, 'latin1')
      slot.fill(0, length)
      write(slot, slotBytes, slotBytes * (at + 1))
      used = at + 1
      begun.push(request)
    },
    close() {
      done()
      closeSync(file)
    },
  }
}
