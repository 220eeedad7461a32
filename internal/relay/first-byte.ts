// Two protocols share a container's socket: our frames, which begin with `{`, and HTTP, which begins with the capital letter
// of a method. The first byte tells which, and nothing is taken from the stream.
import type { Socket } from 'node:net'

const isCapital = (byte: number | undefined) => byte !== undefined && byte >= 0x41 && byte <= 0x5a

/** Calls back once, as soon as something was said; a socket that ends or stays silent before is destroyed. */
export function onFirstByte(
  socket: Socket,
  silence_ms: number,
  then: (protocol: 'frames' | 'http') => void,
): void {
  const give_up = () => socket.destroy()
  const timer = setTimeout(give_up, silence_ms).unref()
  socket.once('error', give_up)
  socket.once('end', give_up)
  socket.once('close', () => clearTimeout(timer))
  socket.once('data', (chunk: Buffer) => {
    clearTimeout(timer)
    socket.off('error', give_up)
    socket.off('end', give_up)
    socket.pause()
    socket.unshift(chunk)
    then(isCapital(chunk[0]) ? 'http' : 'frames')
    socket.resume()
  })
}
