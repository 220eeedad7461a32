// The engine sends stdout and stderr through one connection in frames: a kind, three zeros, a length, the bytes.

export type Frame = { stream: 'stdout' | 'stderr'; data: Buffer }

const headerBytes = 8

/** Give it chunks as they come; it gives back the frames that are complete. */
export function createDemux(): (chunk: Buffer) => Frame[] {
  let pending: Buffer[] = []
  let held = 0
  let needed = headerBytes
  return (chunk) => {
    pending.push(chunk)
    held += chunk.length
    // Joining on every chunk would make a frame of many chunks quadratic.
    if (held < needed) return []
    let buffer = pending.length === 1 ? chunk : Buffer.concat(pending)
    const frames: Frame[] = []
    needed = headerBytes
    while (buffer.length >= headerBytes) {
      const end = headerBytes + buffer.readUInt32BE(4)
      if (buffer.length < end) {
        needed = end
        break
      }
      frames.push({ stream: buffer[0] === 2 ? 'stderr' : 'stdout', data: buffer.subarray(headerBytes, end) })
      buffer = buffer.subarray(end)
    }
    pending = buffer.length > 0 ? [buffer] : []
    held = buffer.length
    return frames
  }
}
