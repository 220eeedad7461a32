// Amazon's event stream encoding: length-prefixed messages of headers and a payload. Only payloads are of interest here;
// checksums are the receiving agent's business.

const prelude_bytes = 12
const checksum_bytes = 4
const largest = 16 * 1024 * 1024

/** Feed it chunks; it gives the payloads of the messages that are complete, as text. */
export function eventStreamMessages(): (chunk: Buffer) => string[] {
  let held: Buffer = Buffer.alloc(0)
  let lost = false
  return (chunk) => {
    if (lost) return []
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk])
    const found: string[] = []
    while (held.length >= prelude_bytes) {
      const total = held.readUInt32BE(0)
      const headers = held.readUInt32BE(4)
      if (total > largest || total < prelude_bytes + headers + checksum_bytes) {
        // Not this encoding after all: nothing behind it can be found again.
        lost = true
        held = Buffer.alloc(0)
        return found
      }
      if (held.length < total) break
      found.push(held.toString('utf8', prelude_bytes + headers, total - checksum_bytes))
      held = held.subarray(total)
    }
    return found
  }
}
