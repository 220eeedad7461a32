// The keys of sessions. A key is derived from a secret of this installation, the session and the number of its start, so that
// it can be passed to the container again after a crash although only its hash is stored.
import { createHmac, randomBytes } from 'node:crypto'
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { hashOf } from './tokens.ts'

export type SessionKeys = {
  keyOf(session_id: string, generation: number): string
  hashOf(key: string): Buffer
}

export const sessionKeyPattern = /^oubs_[0-9a-f]{64}$/

export function createSessionKeys(secret: Buffer): SessionKeys {
  return {
    keyOf: (session_id, generation) =>
      `oubs_${createHmac('sha256', secret).update(`${session_id}.${generation}`).digest('hex')}`,
    hashOf,
  }
}

/** Created at the first start, readable by the server only. If it is lost, running droids must be restarted. */
export function sessionSecret(home: string): Buffer {
  const file = join(home, 'session.secret')
  if (!existsSync(file)) {
    writeFileSync(`${file}.new`, randomBytes(32), { mode: 0o600 })
    renameSync(`${file}.new`, file)
  }
  return readFileSync(file)
}
