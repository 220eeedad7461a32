// Reads what a client sends, up to a limit, whether it announces a length or not. It reads the socket's own message:
// the web `Request` around it would add a stream for every call.
import type { IncomingMessage } from 'node:http'
import { Fault } from '../fault.ts'

export class BodyTooLarge extends Fault {
  constructor(max_bytes: number) {
    super('invalid', `the request body is larger than ${max_bytes} bytes`, {
      hint: 'max_body_bytes of oubliette.jsonc is the limit',
    })
  }
}

export function readBody(incoming: IncomingMessage, max_bytes: number): Promise<Uint8Array> {
  if (Number(incoming.headers['content-length']) > max_bytes)
    return Promise.reject(new BodyTooLarge(max_bytes))
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    const stop = () => incoming.off('data', take).off('end', done).off('close', gone).off('error', gone)
    const take = (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes > max_bytes) {
        stop()
        incoming.pause()
        reject(new BodyTooLarge(max_bytes))
      } else chunks.push(chunk)
    }
    const done = () => {
      stop()
      resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
    }
    const gone = () => {
      stop()
      reject(new Fault('invalid', 'the request body ended early'))
    }
    incoming.on('data', take).on('end', done).on('close', gone).on('error', gone)
  })
}
