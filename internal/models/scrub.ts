// Keeps the provider's key out of answers: a provider, or a proxy in front of it, may echo the request. The key is masked with
// the same number of characters, so that lengths and framing stay valid, and bytes are held back only while they could be the
// beginning of a key.
import type { Credential } from '../config/models.ts'

/** A shorter one is no secret, and would be found in ordinary text. */
const shortest = 8

/** However base64 text begins, these characters are the same. */
function base64Forms(text: string): string[] {
  return [0, 1, 2].map((shift) => {
    const encoded = Buffer.from('\0'.repeat(shift) + text).toString('base64')
    const from = shift === 0 ? 0 : shift + 1
    const to = Math.floor(((shift + text.length) * 8) / 6)
    return encoded.slice(from, to)
  })
}

function formsOf(secret: string): string[] {
  if (secret.length < shortest) return []
  return [
    secret,
    encodeURIComponent(secret),
    JSON.stringify(secret).slice(1, -1),
    Buffer.from(secret).toString('hex'),
    ...base64Forms(secret),
    ...base64Forms(secret).map((it) => it.replaceAll('+', '-').replaceAll('/', '_')),
  ]
}

export type Scrubber = {
  /** Headers without those that contain a key. */
  headers(headers: Record<string, string>): Record<string, string>
  /**
   * For one body; gives what may be passed on already. In an answer that is no error only the key itself is looked for:
   * each further form is one more pass over every byte.
   */
  body(is_error: boolean): { take(chunk: Buffer): Buffer; end(): Buffer }
}

export function createScrubber(credential: Credential): Scrubber {
  const secrets = [credential.key, credential.session_token].flatMap((it) => (it ? [it.reveal()] : []))
  const texts = [...new Set(secrets.flatMap(formsOf))]
  const every_form = texts.map((form) => Buffer.from(form))
  const plain = secrets.filter((it) => it.length >= shortest).map((it) => Buffer.from(it))

  function mask(needles: Buffer[], bytes: Buffer): Buffer {
    let masked: Buffer | undefined
    for (const needle of needles)
      for (let at = bytes.indexOf(needle); at !== -1; at = (masked ?? bytes).indexOf(needle, at)) {
        // What was read may be shared with others.
        masked ??= Buffer.from(bytes)
        masked.fill('*', at, at + needle.length)
      }
    return masked ?? bytes
  }

  /** How many bytes at the end could be the beginning of a needle. */
  function openEnd(needles: Buffer[], bytes: Buffer): number {
    let open = 0
    for (const needle of needles) {
      const most = Math.min(needle.length - 1, bytes.length)
      for (let length = most; length > open; length--) {
        if (bytes[bytes.length - length] !== needle[0]) continue
        if (bytes.subarray(bytes.length - length).equals(needle.subarray(0, length))) open = length
      }
    }
    return open
  }

  return {
    headers: (headers) =>
      Object.fromEntries(
        Object.entries(headers).filter(([name, value]) => {
          const text = `${name} ${value}`
          return !texts.some((needle) => text.includes(needle))
        }),
      ),
    body(is_error) {
      const needles = is_error ? every_form : plain
      let held: Buffer = Buffer.alloc(0)
      return {
        take(chunk) {
          if (needles.length === 0) return chunk
          const bytes = mask(needles, held.length === 0 ? chunk : Buffer.concat([held, chunk]))
          const open = openEnd(needles, bytes)
          held = bytes.subarray(bytes.length - open)
          return bytes.subarray(0, bytes.length - open)
        },
        end: () => held,
      }
    },
  }
}
