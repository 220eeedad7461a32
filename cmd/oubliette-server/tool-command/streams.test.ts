import { expect, test } from 'vitest'
import { readManifest } from './manifest.ts'
import { readFile, textArguments } from './streams.ts'

const { fields } = readManifest().workspace!.actions.write_file!

test('standard input is text, or base64 where the action accepts it', () => {
  expect(textArguments('content', Buffer.from('é\n'), fields)).toEqual({ content: 'é\n' })
  expect(textArguments('content', Buffer.from([0xff, 0x00]), fields)).toEqual({
    content: '/wA=',
    encoding: 'base64',
  })
  expect(() => textArguments('message', Buffer.from([0xff]), [])).toThrow(/not UTF-8/)
})

test('a file is read to its end, unless a part is asked for', async () => {
  const file = Buffer.from([...Buffer.from('héllo'), 0xff, 0x00])
  const asked: unknown[] = []
  const call = async (args: Record<string, unknown>) => {
    asked.push(args.offset)
    const from = Number(args.offset ?? 0)
    const part = file.subarray(from, from + 3)
    return { content: part.toString('base64'), encoding: 'base64', truncated: from + 3 < file.length }
  }
  expect(await readFile(call, {})).toEqual(file)
  expect(asked).toEqual([0, 3, 6])
  expect(await readFile(call, { offset: 1 })).toEqual(file.subarray(1, 4))
})
