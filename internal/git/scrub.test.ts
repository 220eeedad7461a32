import { expect, test } from 'vitest'
import { createScrub, scrubText } from './scrub.ts'

const secret = 'tok-abcabcabd-0123456789'

async function through(chunks: Buffer[], secrets = [secret]): Promise<Buffer> {
  const scrub = createScrub(secrets)
  const read: Buffer[] = []
  scrub.on('data', (chunk: Buffer) => read.push(chunk))
  for (const chunk of chunks) scrub.write(chunk)
  scrub.end()
  await new Promise((done) => scrub.once('end', done))
  return Buffer.concat(read)
}

test('a secret is found however the stream is cut, and the length stays', async () => {
  const text = Buffer.from(`tok-abc ${secret}${secret} tok-abcabcab ${secret.slice(0, -1)}`)
  const clean = text.toString().replaceAll(secret, '*'.repeat(secret.length))
  for (let first = 0; first <= text.length; first += 1)
    for (const second of [first, first + 1, first + 7]) {
      const chunks = [text.subarray(0, first), text.subarray(first, second), text.subarray(second)]
      expect((await through(chunks)).toString()).toBe(clean)
    }
  expect((await through([...text].map((byte) => Buffer.from([byte])))).toString()).toBe(clean)
})

test('what holds no secret is passed on unchanged, and a short secret is not searched for', async () => {
  const bytes = Buffer.from(Array.from({ length: 4096 }, (_, at) => (at * 31) % 256))
  expect(await through([bytes.subarray(0, 1000), bytes.subarray(1000)])).toEqual(bytes)
  expect(await through([bytes], [])).toEqual(bytes)
  expect((await through([Buffer.from('git git')], ['git'])).toString()).toBe('git git')
})

test('text is scrubbed of every form', () => {
  expect(scrubText(`a ${secret} b ${secret}`, [secret, ''])).toBe('a *** b ***')
})
