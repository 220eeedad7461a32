// The type of a command of `./oubliette`, and what all commands share: the checkout, the place of the server, option parsing, help
// texts, and the translation of errors into a message and an exit code.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { inspect, type ParseArgsOptionsConfig, parseArgs } from 'node:util'
import { loadPlace, type Place } from '../../internal/config/place.ts'
import { Fault, messageOf } from '../../internal/fault.ts'
import { mask } from '../../internal/log.ts'
import { columnsOf } from './tool-command/output/text.ts'

export type Command = {
  /** One line, without a full stop. */
  about: string
  /** What follows the name of the command, e.g. `[OPTIONS] PROMPT`. */
  usage: string
  /** Paragraphs below the first line of the help text. */
  details?: string
  /** Flag and description; `--help` is added. */
  options?: [flag: string, description: string][]
  /** Commands that can be pasted into a shell. */
  examples: string[]
  /** Returns the exit code; undefined is 0. */
  run(args: string[]): Promise<number | undefined>
}

/** The root of the source tree that contains this file. */
export const checkout = join(import.meta.dirname, '..', '..')

export const version = (): string =>
  (JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as { version: string }).version

/** For commands that call a running server. Commands that need the whole config use `settings.ts`. */
export const place = (): Place => loadPlace(process.env, checkout)

/** Incorrect usage of a command: exit code 2 instead of 1. */
export class Usage extends Fault {
  constructor(message: string, hint?: string) {
    super('invalid', message, hint ? { hint } : {})
  }
}

/** `--help` or `-h` among the arguments: the help text of the command is printed instead of running it. */
export class HelpRequested extends Error {}

/** Prints an error of a command and returns the exit code. */
export function explain(thrown: unknown): number {
  if (!(thrown instanceof Fault)) {
    // A bug: the stack is needed.
    process.stderr.write(`oubliette: ${mask(inspect(thrown))}\n`)
    return 1
  }
  // On a terminal, lines break between words; in a pipe, a message is one line and its hint another.
  const width = process.stderr.isTTY ? columnsOf(process.stderr) : Number.POSITIVE_INFINITY
  const fitted = (text: string, indent: string) =>
    text
      .split('\n')
      .map((line) => wrap(line, width - indent.length).join(`\n${indent}`))
      .join('\n')
  const hint = thrown.hint ? `\n  ${fitted(thrown.hint, '  ')}` : ''
  process.stderr.write(mask(`${fitted(`oubliette: ${thrown.message}`, '  ')}${hint}\n`))
  return thrown instanceof Usage ? 2 : 1
}

/** Node's option parser, with its errors as `Usage`. */
export function options<const Options extends ParseArgsOptionsConfig>(
  args: string[],
  known: Options,
  positionals = false,
) {
  const end = args.indexOf('--')
  if (args.slice(0, end < 0 ? undefined : end).some((word) => word === '--help' || word === '-h'))
    throw new HelpRequested()
  try {
    return parseArgs({ args, options: known, allowPositionals: positionals, strict: true })
  } catch (error) {
    const [first = ''] = messageOf(error).split('\n')
    throw new Usage(first.replace(/\. To specify a positional.*$/, ''), 'see --help of this command')
  }
}

/** Of help texts: as wide as the terminal, but lines that are too long are hard to read. */
const lineWidth = (): number => Math.min(100, Math.max(40, columnsOf()))

export function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}

/** Words of a command, continued on further lines where it is too long. */
function wrapCommand(line: string, width: number): string {
  const words = line.match(/'[^']*'|\S+/g) ?? []
  const lines: string[] = []
  for (const word of words) {
    const last = lines.at(-1)
    if (last !== undefined && last.length + word.length + 3 <= width)
      lines[lines.length - 1] = `${last} ${word}`
    else lines.push(word)
  }
  return lines.length > 1 && line.length > width ? lines.join(' \\\n    ') : line
}

/** Wraps paragraphs; one with an indented line is a table and stays as it is. */
const paragraphs = (text: string, width: number): string =>
  text
    .split('\n\n')
    .map((part) => (/\n {2}/.test(part) ? part : wrap(part.replaceAll('\n', ' '), width).join('\n')))
    .join('\n\n')

/** The first sentence, without its full stop. */
export const firstSentence = (text: string): string => text.split(/\.(?:\s|$)/, 1)[0]!

/** Two columns. The second is wrapped; if the first is long, the second starts on the next line. */
export function columns(entries: [string, string][]): string {
  const width = Math.min(26, Math.max(...entries.map(([name]) => name.length)))
  const indent = ' '.repeat(width + 4)
  const room = lineWidth() - indent.length
  return entries
    .map(([name, text]) => {
      const body = wrap(text, room).join(`\n${indent}`)
      return `  ${name.length > width ? `${name}\n${indent}` : `${name.padEnd(width)}  `}${body}`.trimEnd()
    })
    .join('\n')
}

/** The help text of a command: usage, description, options, examples. */
export function helpText(
  name: string,
  { about, usage, details, options: flags = [], examples }: Omit<Command, 'run'>,
): string {
  const shown: [string, string][] = [...flags, ['-h, --help', 'Show this help text']]
  // Long options without a short form align with those that have one.
  const aligned = shown.map(([flag, text]): [string, string] => [
    flag.startsWith('--') ? `    ${flag}` : flag,
    text,
  ])
  const width = lineWidth()
  const parts = [
    `Usage: ./oubliette ${name} ${usage}`.trimEnd(),
    paragraphs(about, width),
    details && paragraphs(details, width),
    `Options:\n${columns(aligned)}`,
    examples.length > 0 &&
      `Examples:\n${examples.map((line) => `  ${wrapCommand(line, width - 2)}`).join('\n')}`,
  ]
  return `${parts.filter(Boolean).join('\n\n')}\n`
}
