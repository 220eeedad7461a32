// What a client posted, as JSON. Depth is bounded here: everything behind may then walk a value by recursion.
const max_depth = 128
const decoder = new TextDecoder('utf-8', { fatal: true })

export type Parsed = { ok: true; value: unknown } | { ok: false; problem: string }

export function isJson(content_type: string | null): boolean {
  return content_type?.split(';', 1)[0]?.trim().toLowerCase() === 'application/json'
}

export function parseBody(bytes: Uint8Array | undefined): Parsed {
  if (!bytes?.length) return { ok: false, problem: 'the body is empty' }
  if (tooDeep(bytes)) return { ok: false, problem: `the body nests deeper than ${max_depth} levels` }
  try {
    return { ok: true, value: JSON.parse(decoder.decode(bytes)) }
  } catch {
    return { ok: false, problem: 'the body is not JSON in UTF-8' }
  }
}

/** Counts brackets outside of strings. A short body cannot be deep, so the usual call is not scanned at all. */
function tooDeep(bytes: Uint8Array): boolean {
  if (bytes.length <= max_depth) return false
  let depth = 0
  let quoted = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (quoted) {
      if (byte === 0x5c) at++
      else if (byte === 0x22) quoted = false
    } else if (byte === 0x22) quoted = true
    else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > max_depth) return true
    } else if (byte === 0x7d || byte === 0x5d) depth--
  }
  return false
}
