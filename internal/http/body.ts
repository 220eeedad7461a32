// Reads a request body up to a limit, with or without Content-Length. It reads the IncomingMessage: the web `Request` around
// it would add a stream for every call.
import type { IncomingMessage } from 'node:http'
import type { Caller } from '../auth/caller.ts'
import { jsonBounds, measureJson } from '../event-loop/json-bounds.ts'
import { Fault } from '../fault.ts'
import { bounded, type Rate, rateKey } from './auth.ts'

export class BodyTooLarge extends Fault {
  constructor(max_bytes: number) {
    super('invalid', `the request body is larger than ${max_bytes} bytes`, {
      hint: 'the limit is max_body_bytes in oubliette.jsonc',
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

/** Parsing and checking a body of very many values takes as long as this many requests; a body of text does not. */
const valuesAtOnce = 1_000
const requestsPerThousand = 20
const worthMeasuring = 2 * valuesAtOnce

/** Refuses a body that costs more than the rate of its token allows. */
export function boundBody(rate: Rate, caller: Caller, body: Uint8Array): void {
  if (body.length < worthMeasuring) return
  // Only ASCII characters are counted, and no byte of another UTF-8 character equals one.
  const { containers, commas } = measureJson(
    Buffer.from(body.buffer, body.byteOffset, body.length).toString('latin1'),
    jsonBounds.values,
  )
  const cost = Math.floor((containers + commas) / valuesAtOnce) * requestsPerThousand
  if (cost > 0) bounded(rate, rateKey(caller), 'this token exceeds its rate of JSON values', cost)
}
