// The prompt of `run`: the words of the command line, standard input, or both.
import { randomUUID } from 'node:crypto'
import { fstatSync } from 'node:fs'
import { Usage } from '../command.ts'

/** The limit of the server. */
const most_characters = 2_000_000
/** A pipe that is inherited from a parent process may never say anything. */
const patience_ms = 3_000

export type Input = AsyncIterable<Buffer | string> & { destroy?(): unknown }

/** A pipe or a file; not a terminal, `/dev/null`, or the socket that a parent process keeps open. */
export function hasInput(fd = 0): boolean {
  try {
    const input = fstatSync(fd)
    return input.isFIFO() || input.isFile()
  } catch {
    // Standard input is closed.
    return false
  }
}

/** All of it as text; undefined if nothing arrives within `wait_ms`. */
export async function readInput(
  input: Input,
  wait_ms = Number.POSITIVE_INFINITY,
): Promise<string | undefined> {
  const chunks: Buffer[] = []
  let bytes = 0
  const iterator = input[Symbol.asyncIterator]()
  for (let first = true; ; first = false) {
    const next = iterator.next()
    const late = Promise.withResolvers<undefined>()
    const timer =
      first && Number.isFinite(wait_ms) ? setTimeout(() => late.resolve(undefined), wait_ms) : undefined
    const step = await Promise.race([next, late.promise])
    clearTimeout(timer)
    if (step === undefined) {
      input.destroy?.()
      return undefined
    }
    if (step.done) break
    const chunk = Buffer.from(step.value)
    bytes += chunk.length
    if (bytes > 4 * most_characters) throw tooLong()
    chunks.push(chunk)
  }
  const all = Buffer.concat(chunks)
  const text = all.toString('utf8')
  if (!Buffer.from(text).equals(all)) throw new Usage('standard input is not UTF-8 text')
  return text
}

const tooLong = () =>
  new Usage(`the prompt is longer than ${most_characters.toLocaleString('en')} characters`)

/** For an agent, the input follows the prompt. For the droid `shell`, whose prompt is a script, it is the script's stdin. */
export function combine(prompt: string, input: string, droid: string): string {
  if (droid !== 'shell') return `${prompt}\n\n${input}`
  const end = `OUBLIETTE_${randomUUID().replaceAll('-', '')}`
  return `exec 0<<'${end}'\n${input.endsWith('\n') || input === '' ? input : `${input}\n`}${end}\n${prompt}`
}

export type Asked = { prompt: string; input?: string }

/** What the command line and standard input ask for. */
export async function readPrompt(
  words: string[],
  { stdin, piped, warn }: { stdin: Input; piped: boolean; warn: (text: string) => void },
): Promise<Asked> {
  const missing = () => new Usage('missing PROMPT', "example: ./oubliette run 'echo hello'")
  const explicit = words.length === 1 && words[0] === '-'
  const given = explicit ? '' : words.join(' ')
  if (given.trim() === '') {
    if (!explicit && !piped) throw missing()
    const prompt = (await readInput(stdin)) ?? ''
    if (prompt.trim() === '') throw new Usage('the prompt on standard input is empty')
    if (prompt.length > most_characters) throw tooLong()
    return { prompt }
  }
  if (!piped) return { prompt: given }
  const input = await readInput(stdin, patience_ms)
  if (input === undefined) warn(`no input on the pipe for ${patience_ms / 1000} s; using the prompt alone`)
  if (input === undefined || input === '') return { prompt: given }
  if (given.length + input.length > most_characters - 100) throw tooLong()
  return { prompt: given, input }
}
