// Encryption of what is stored and must be readable again: values of headers and environment variables, OAuth tokens. The key
// is a file of the home, so that a copy of the database alone reveals nothing. Each text is bound to what it belongs to: moved
// to another row it cannot be decrypted.
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { CompactEncrypt, compactDecrypt } from 'jose'
import { Fault } from '../fault.ts'

export type Encryption = {
  encrypt(subject: string, text: string): Promise<string>
  /** Throws `unavailable` if the key is another one, or the text belongs to another subject. */
  decrypt(subject: string, encrypted: string): Promise<string>
}

export function createEncryption(key: Uint8Array): Encryption {
  return {
    encrypt: async (sub, text) =>
      await new CompactEncrypt(new TextEncoder().encode(text))
        .setProtectedHeader({ alg: 'dir', enc: 'A256GCM', sub })
        .encrypt(key),
    async decrypt(subject, encrypted) {
      try {
        const { plaintext, protectedHeader } = await compactDecrypt(encrypted, key, {
          keyManagementAlgorithms: ['dir'],
          contentEncryptionAlgorithms: ['A256GCM'],
        })
        if (protectedHeader.sub !== subject) throw new Error('the text belongs to another subject')
        return new TextDecoder().decode(plaintext)
      } catch (cause) {
        throw new Fault('unavailable', 'cannot decrypt a stored secret', {
          hint: 'restore secrets.key of the home directory, or set the secret again',
          cause,
        })
      }
    },
  }
}

/** Created at the first start, readable by the server only. If it is lost, stored secrets must be set again. */
export function encryptionKey(home: string): Buffer {
  const file = join(home, 'secrets.key')
  if (!existsSync(file)) {
    writeFileSync(`${file}.new`, randomBytes(32), { mode: 0o600 })
    renameSync(`${file}.new`, file)
  }
  return readFileSync(file)
}
