import { createInterface } from 'node:readline'
import { PassThrough } from 'node:stream'
import { expect, test } from 'vitest'
import { createEmulator } from '../../../test/fixtures/terminal/emulator.ts'
import { createScreen } from './screen.ts'
import type { Piece } from './transcript/renderer.ts'

const said = (text: string, more: Partial<Extract<Piece, { kind: 'text' }>> = {}): Piece => ({
  kind: 'text',
  stream: 'stdout',
  text,
  agent: true,
  ...more,
})
const lines = (...texts: string[]): Piece => ({ kind: 'lines', lines: texts })
const thought = (text: string): Piece => ({ kind: 'thought', text })
const live = (text: string | undefined, plain = false): Piece => ({ kind: 'live', text, plain })

/** Both streams in files. */
function files(quiet = false) {
  const written = { out: '', err: '' }
  let now_ms = 0
  const to = (name: 'out' | 'err') => ({
    write: (text: string) => {
      written[name] += text
    },
  })
  const screen = createScreen({
    out: to('out'),
    err: to('err'),
    columns: () => 80,
    colours: false,
    quiet,
    now: () => now_ms,
  })
  const wait = (ms: number) => {
    now_ms += ms
  }
  return { screen, written, wait }
}

/** Both streams on one terminal. */
function terminal(columns = 80, colours = false) {
  const emulator = createEmulator(columns)
  const raw = { text: '' }
  const output = new PassThrough() as PassThrough & { columns: number; isTTY: boolean }
  Object.assign(output, { columns, isTTY: true })
  const both = Object.assign(output, {
    write(text: string) {
      raw.text += text
      emulator.write(text.replaceAll(/(?<!\r)\n/g, '\r\n'))
      return true
    },
  })
  const screen = createScreen({ out: both, err: both, columns: () => columns, colours, now: () => 0 })
  const input = new PassThrough()
  const edit = () => {
    const editor = createInterface({ input, output: both as never, terminal: true, prompt: '> ' })
    screen.edit(editor)
    return editor
  }
  return { screen, emulator, raw, input, edit }
}

test('in files, stdout has the text of the droid only, and the text of an agent ends with a line feed', () => {
  const { screen, written } = files()
  screen.show([
    lines('● start'),
    said('Look'),
    thought('hm\nyes'),
    said('ing'),
    { kind: 'break' },
    lines('✓ done'),
  ])
  screen.end()
  expect(written).toEqual({ out: 'Look\ning\n', err: '● start\n│ hm\n│ yes\n✓ done\n' })
})

test('in files, the streams of a script are unchanged, also control characters', () => {
  const { screen, written } = files()
  const script = { agent: false }
  screen.show([said('\x1b[31mone', script), said('two', { ...script, stream: 'stderr' }), lines('✓ done')])
  screen.end()
  expect(written).toEqual({ out: '\x1b[31mone', err: 'two\n✓ done\n' })
})

test('in files, progress is a line only when it changes, and at most every five seconds', () => {
  const { screen, written, wait } = files()
  screen.show([live('step 1', true), live('step 1', true), live('step 2', true), live('running a tool')])
  wait(6000)
  screen.show([live('step 3', true), live('step 3', true)])
  expect(written.err).toBe('… step 1\n… step 3\n')
})

test('with --quiet, only text and errors are shown', () => {
  const { screen, written } = files(true)
  screen.show([
    lines('● start'),
    thought('hm'),
    said('text'),
    { kind: 'break' },
    { ...lines('✗ bad'), error: true } as Piece,
  ])
  expect(written).toEqual({ out: 'text\n', err: '✗ bad\n' })
})

test('on a terminal, the live line is replaced, and removed before anything else is written', () => {
  const { screen, emulator } = terminal()
  screen.show([live('building: step 1 of 9', true), live('building: step 2 of 9', true)])
  expect(emulator.rows()).toEqual(['⠋ building: step 2 of 9'])
  screen.show([lines('● one')])
  expect(emulator.rows()).toEqual(['● one', '⠋ building: step 2 of 9'])
  screen.show([said('text'), live('working')])
  expect(emulator.rows()).toEqual(['● one', 'text'])
  screen.show([{ kind: 'break' }])
  expect(emulator.rows()).toEqual(['● one', 'text', '⠋ working'])
  screen.end()
  expect(emulator.rows()).toEqual(['● one', 'text'])
})

test('a live line never takes more than one row', () => {
  const { screen, emulator } = terminal(30)
  screen.show([live('x'.repeat(200), true), live('日本語'.repeat(50), true), lines('● one'), live(undefined)])
  expect(emulator.rows()).toEqual(['● one'])
})

test('on a terminal, text of the droid cannot control it or begin like a line of this program', () => {
  const { screen, emulator, raw } = terminal()
  const attack = '\x1b]0;title\x07\x1b]52;c;eA==\x07\x1b[2J\x1b[1;1H\x9b2J\x1bc\x1bP1$r\x1b\\\x07\x08\r'
  screen.show([
    said(`${attack}? Allow? [y]es\n`),
    said('\x1b[0m'),
    said('✓ allowed\n'),
    thought(`${attack}hm\n`),
  ])
  screen.show([said('fine', { stream: 'stderr', agent: false })])
  screen.end()
  expect(emulator.unknown).toEqual([])
  expect([...raw.text].filter((character) => /[^\P{Cc}\n]/u.test(character))).toEqual([])
  expect(emulator.rows()).toEqual(['2Jc', ' ? Allow? [y]es', ' ✓ allowed', '│ 2Jc', '│ hm', 'fine'])
})

test('colours are of this program only', () => {
  const { screen, raw } = terminal(80, true)
  screen.show([said('\x1b[31mred\x1b[0m\n'), thought('hm\n')])
  expect(raw.text).toBe('red\n\x1b[2m│ hm\n\x1b[0m')
})

test('output goes above the line that is being edited, which keeps its text and its cursor', () => {
  const { screen, emulator, input, edit } = terminal(40)
  const editor = edit()
  input.write('half a mess')
  screen.show([said('The quick brown fox '), live('working')])
  expect(emulator.rows()).toEqual(['The quick brown fox', '⠋ working', '> half a mess'])
  screen.show([said('jumps over the lazy dog and goes on.')])
  expect(emulator.rows()).toEqual([
    'The quick brown fox jumps over the',
    'lazy dog and goes on.',
    '⠋ working',
    '> half a mess',
  ])
  expect(emulator.cursor).toMatchObject({ row: 3, column: 13 })
  input.write(`age ${'x'.repeat(60)}`)
  screen.show([lines('✓ a tool'), { kind: 'break' }, live(undefined), said('next\nlast')])
  expect(emulator.rows()).toEqual([
    'The quick brown fox jumps over the',
    'lazy dog and goes on.',
    '✓ a tool',
    'next',
    'last',
    `> half a message ${'x'.repeat(23)}`,
    'x'.repeat(37),
  ])
  const sent: string[] = []
  editor.on('line', (line) => {
    sent.push(line)
    screen.submitted('> ', line)
  })
  input.write('\r')
  expect(sent).toEqual([`half a message ${'x'.repeat(60)}`])
  screen.show([said(' words')])
  expect(emulator.rows().slice(3)).toEqual(['next', 'last words', '>'])
  screen.edit(undefined)
  editor.close()
  screen.end()
  expect(emulator.rows().slice(3)).toEqual(['next', 'last words'])
})

test('a long line that is broken next to the editor cannot begin a row like a line of this program', () => {
  const { screen, emulator, edit } = terminal(40)
  const editor = edit()
  screen.show([said(`${'x'.repeat(38)}? Allow? [y]es, [n]o: `)])
  expect(emulator.rows()).toEqual(['x'.repeat(38), ' ? Allow? [y]es, [n]o:', '>'])
  editor.close()
})
