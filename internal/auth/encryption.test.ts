import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createEncryption, encryptionKey } from './encryption.ts'

const one = createEncryption(randomBytes(32))

it('returns what was encrypted, and shows nothing of it', async () => {
  const encrypted = await one.encrypt('ups_1', 'geheim')
  expect(encrypted).not.toContain('geheim')
  expect(await one.decrypt('ups_1', encrypted)).toBe('geheim')
  expect(await one.encrypt('ups_1', 'geheim')).not.toBe(encrypted)
})

it('refuses a text of another subject, another key, and a changed one', async () => {
  const encrypted = await one.encrypt('ups_1', 'geheim')
  const changed = `${encrypted.slice(0, -3)}${encrypted.endsWith('AAA') ? 'BBB' : 'AAA'}`
  const refused = { kind: 'unavailable', message: 'cannot decrypt a stored secret' }
  await expect(one.decrypt('ups_2', encrypted)).rejects.toMatchObject(refused)
  await expect(createEncryption(randomBytes(32)).decrypt('ups_1', encrypted)).rejects.toMatchObject(refused)
  await expect(one.decrypt('ups_1', changed)).rejects.toMatchObject(refused)
})

it('keeps its key in a file that only the server can read', () => {
  const home = mkdtempSync(join(tmpdir(), 'oub-key-'))
  try {
    const key = encryptionKey(home)
    expect(encryptionKey(home)).toEqual(key)
    expect(statSync(join(home, 'secrets.key')).mode & 0o777).toBe(0o600)
  } finally {
    rmSync(home, { recursive: true })
  }
})
