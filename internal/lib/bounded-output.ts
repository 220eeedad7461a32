// Keeps output up to a limit. Further output is still accepted, so that the writer never blocks.

export type BoundedOutput = { push(data: Buffer): void; text(): string; readonly truncated: boolean }

/** The length of `data` without an incomplete character at its end. */
export function wholeCharacters(data: Buffer): number {
  for (let back = 1; back <= Math.min(4, data.length); back++) {
    const byte = data[data.length - back]!
    if ((byte & 0b1100_0000) === 0b1000_0000) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return length > back ? data.length - back : data.length
  }
  return data.length
}

export function createBoundedOutput(limit_bytes: number): BoundedOutput {
  const kept: Buffer[] = []
  let held = 0
  let truncated = false
  return {
    push(data) {
      const room = limit_bytes - held
      if (data.length > room) truncated = true
      if (room <= 0 || data.length === 0) return
      // A copy, because a slice would keep the whole underlying buffer in memory.
      const part = Buffer.from(data.subarray(0, room))
      kept.push(part)
      held += part.length
    },
    text() {
      const all = Buffer.concat(kept)
      return all.toString('utf8', 0, truncated ? wholeCharacters(all) : all.length)
    },
    get truncated() {
      return truncated
    },
  }
}
