// Reads request bodies completely before they are forwarded, so that they can be inspected, signed, and repeated on another
// connection. They are collected in buffers of their own, which can be transferred to a thread without a copy.
import type { IncomingMessage } from 'node:http'
import { Fault } from '../fault.ts'

const maxBodyBytes = 64 * 1024 * 1024
const maxReadMs = 60_000
const pieceBytes = 256 * 1024

/** Copies what comes into pieces; what a sender only announces takes no memory beyond one. */
function createPieces(announced: number) {
  const pieces: Buffer[] = []
  let used = 0
  let left = announced
  return {
    add(part: Buffer): void {
      for (let from = 0; from < part.length; ) {
        const last = pieces.at(-1)
        if (!last || used === last.length) {
          pieces.push(Buffer.allocUnsafeSlow(Math.min(pieceBytes, Math.max(left, part.length - from))))
          used = 0
          continue
        }
        const copied = part.copy(last, used, from)
        from += copied
        used += copied
        left -= copied
      }
    },
    get(): Buffer[] {
      const last = pieces.pop()
      return last ? [...pieces, last.subarray(0, used)] : []
    },
  }
}

/** `hold` is called with the size of every part and may throw. */
export async function wholeBody(request: IncomingMessage, hold: (bytes: number) => void): Promise<Buffer[]> {
  const encoding = request.headers['content-encoding']
  if (encoding !== undefined && encoding !== 'identity')
    throw new Fault('invalid', `content-encoding "${encoding.slice(0, 50)}" is not accepted`, {
      hint: 'send the request uncompressed',
    })
  const pieces = createPieces(Number(request.headers['content-length']) || 0)
  let held = 0
  // The sender is local: a slow one must not hold memory that others need.
  const late = setTimeout(() => request.destroy(), maxReadMs)
  try {
    for await (const part of request as AsyncIterable<Buffer>) {
      held += part.length
      if (held > maxBodyBytes)
        throw new Fault('invalid', `the request is larger than ${maxBodyBytes / 1024 / 1024} MiB`)
      hold(part.length)
      pieces.add(part)
    }
  } finally {
    clearTimeout(late)
  }
  return pieces.get()
}

const containerBytes = 256 * 1024 * 1024

export type Hold = { add(bytes: number): void } & Disposable

/** Bounds the bytes of all bodies that the requests of one container hold together. */
export function createHolds(most = containerBytes): (project_id: string) => Hold {
  const held = new Map<string, number>()
  const change = (project_id: string, bytes: number) => {
    const now = (held.get(project_id) ?? 0) + bytes
    if (now > 0) held.set(project_id, now)
    else held.delete(project_id)
    return now
  }
  return (project_id) => {
    let mine = 0
    return {
      add(bytes) {
        mine += bytes
        if (change(project_id, bytes) > most)
          throw new Fault(
            'unavailable',
            `the open requests of this container exceed ${most / 1024 / 1024} MiB in total`,
            { hint: 'wait until some of them have ended', retry_after_seconds: 1 },
          )
      },
      [Symbol.dispose]: () => void change(project_id, -mine),
    }
  }
}
