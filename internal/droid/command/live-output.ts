// What a command writes, told while it runs: in pieces, not too often and not too much at once. What does not fit is left
// out and counted; the whole of it is in the result.
import { StringDecoder } from 'node:string_decoder'

const firstMs = 1000
const everyMs = 500
const pieceChars = 8 * 1024

export function createLiveOutput(tell: (text: string) => void) {
  const decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') }
  const began = performance.now()
  let pending = ''
  let left_out = 0
  let timer: NodeJS.Timeout | undefined

  const flush = () => {
    timer = undefined
    const note = left_out > 0 ? `\n[${left_out} characters left out]\n` : ''
    const text = pending.toWellFormed() + note
    pending = ''
    left_out = 0
    if (text !== '') tell(text)
  }

  return {
    push(stream: 'stdout' | 'stderr', chunk: Buffer): void {
      if (pending.length >= pieceChars) left_out += chunk.length
      else {
        const text = decoders[stream].write(chunk)
        const room = pieceChars - pending.length
        pending += text.slice(0, room)
        left_out += Math.max(0, text.length - room)
      }
      timer ??= setTimeout(flush, Math.max(everyMs, firstMs - (performance.now() - began))).unref()
    },
    stop: () => clearTimeout(timer),
  }
}
