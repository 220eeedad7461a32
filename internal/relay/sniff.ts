// Detects what a container's connection is from its first bytes, without consuming them. Two protocols share the socket: our
// frames, which begin with `{`, and HTTP, which begins with the capital letter of a method. The path of the first HTTP request
// selects the service, and the connection stays with it.
import type { Socket } from 'node:net'

const isCapital = (byte: number | undefined) => byte !== undefined && byte >= 0x41 && byte <= 0x5a

/** Calls back once with the protocol of the first byte; a socket that ends or sends nothing in time is destroyed. */
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

/** Longer than any method. */
const methodBytes = 20

/** Whether the path of a request line begins like this; undefined while too little was read. */
export function pathBegins(read: Buffer, prefix: string): boolean | undefined {
  const space = read.subarray(0, methodBytes).indexOf(0x20)
  if (space < 0) return read.length < methodBytes ? undefined : false
  const path = read.subarray(space + 1, space + 1 + prefix.length).toString('latin1')
  if (!prefix.startsWith(path)) return false
  return path.length === prefix.length ? true : undefined
}

/** The first of the prefixes that the path begins with; `none`, or undefined while too little was read. */
function prefixOf(read: Buffer, prefixes: readonly string[]): string | 'none' | undefined {
  const found = prefixes.map((prefix) => pathBegins(read, prefix))
  const matching = found.indexOf(true)
  if (matching >= 0) return prefixes[matching]
  return found.includes(undefined) ? undefined : 'none'
}

/** Calls back once; a socket that ends or sends too little in time is destroyed. */
export function onRequestPath<Prefix extends string>(
  socket: Socket,
  options: { prefixes: readonly Prefix[]; silence_ms: number },
  then: (matching: Prefix | 'none') => void,
): void {
  let read: Buffer = Buffer.alloc(0)
  const give_up = () => socket.destroy()
  const timer = setTimeout(give_up, options.silence_ms).unref()
  socket.once('error', give_up)
  socket.once('end', give_up)
  socket.once('close', () => clearTimeout(timer))
  const look = (chunk: Buffer) => {
    read = Buffer.concat([read, chunk])
    const matching = prefixOf(read, options.prefixes)
    if (matching === undefined) return
    clearTimeout(timer)
    socket.off('data', look)
    socket.off('error', give_up)
    socket.off('end', give_up)
    socket.pause()
    socket.unshift(read)
    then(matching as Prefix | 'none')
    socket.resume()
  }
  socket.on('data', look)
}
