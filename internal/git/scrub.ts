// Removes a credential from a remote's answer, in case the remote echoes it. The replacement has the same length, so that the
// framing of git's protocol and Content-Length stay valid.
import { Transform } from 'node:stream'

/** Shorter secrets are not searched for: they would match by chance. */
const minSecretLength = 8

export const scrubText = (text: string, secrets: readonly string[]): string =>
  secrets.reduce((clean, secret) => (secret === '' ? clean : clean.replaceAll(secret, '***')), text)

/** How many bytes at the end of `data` may be the beginning of `needle`. */
function begun(data: Buffer, needle: Buffer): number {
  for (let length = Math.min(needle.length - 1, data.length); length > 0; length -= 1)
    if (data.subarray(data.length - length).equals(needle.subarray(0, length))) return length
  return 0
}

export function createScrub(secrets: readonly string[]): Transform {
  const needles = secrets
    .filter((secret) => secret.length >= minSecretLength)
    .map((secret) => Buffer.from(secret))
  let held: Buffer = Buffer.alloc(0)
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      let data = held.length > 0 ? Buffer.concat([held, chunk]) : chunk
      for (const needle of needles)
        for (let at = data.indexOf(needle); at >= 0; at = data.indexOf(needle, at + needle.length)) {
          if (data === chunk) data = Buffer.from(chunk)
          data.fill('*', at, at + needle.length)
        }
      const keep = Math.max(0, ...needles.map((needle) => begun(data, needle)))
      held = data.subarray(data.length - keep)
      done(null, data.subarray(0, data.length - keep))
    },
    flush(done) {
      done(null, held)
    },
  })
}
