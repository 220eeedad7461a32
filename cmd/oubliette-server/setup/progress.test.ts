import { expect, test } from 'vitest'
import { createProgress } from './progress.ts'

test('details are throttled without a terminal, and share one line on a terminal', () => {
  let time = 0
  let text = ''
  const write = (more: string) => {
    text += more
  }
  const plain = createProgress({ write }, () => time)
  plain.step('building…')
  plain.detail('one')
  time = 11_000
  plain.detail('two')
  plain.detail('three')
  plain.end()
  expect(text).toBe('oubliette: building…\n  two\n')

  text = ''
  const terminal = createProgress({ write, isTTY: true, columns: 10 }, () => time)
  terminal.detail('\x1b[31ma long line\x1b[0m')
  terminal.end()
  expect(text).toBe('\r\x1b[2K  a long\r\x1b[2K')
})
