// Amazon's event stream encoding: length-prefixed messages of headers and a payload. Only payloads are of interest here;
// checksums are the receiving agent's business.

const preludeBytes = 12
const checksumBytes = 4
const largest = 16 * 1024 * 1024

/** Feed it chunks; it gives the payloads of the messages that are complete, as text. */
export function eventStreamMessages(): (chunk: Buffer) => string[] {
  let held: Buffer = Buffer.alloc(0)
  let lost = false
  return (chunk) => {
    if (lost) return []
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk])
    const found: string[] = []
    while (held.length >= preludeBytes) {
      const total = held.readUInt32BE(0)
      const headers = held.readUInt32BE(4)
      if (total > largest || total < preludeBytes + headers + checksumBytes) {
        // Not this encoding after all: nothing behind it can be found again.
        lost = true
        held = Buffer.alloc(0)
        return found
      }
      if (held.length < total) break
      found.push(held.toString('utf8', preludeBytes + headers, total - checksumBytes))
      held = held.subarray(total)
    }
    return found
  }
}
