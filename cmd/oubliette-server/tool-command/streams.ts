// Files and standard input: `-` as the value of a text field is standard input, `container exec` passes on a pipe, and
// `workspace read-file` prints the file.
import { fstatSync, readFileSync } from 'node:fs'
import { Usage } from '../command.ts'
import type { Field } from './fields.ts'

type Args = Record<string, unknown>
type Result = Record<string, unknown>

/** Fields that hold a text of any length. */
const texts = ['content', 'message', 'prompt', 'stdin']

/** A pipe or a file; not a terminal, `/dev/null` or the socket of a parent process that writes nothing. */
function isPiped(): boolean {
  try {
    const input = fstatSync(0)
    return input.isFIFO() || input.isFile()
  } catch {
    // Standard input is closed.
    return false
  }
}

/** Text as it is; other bytes as base64 if the action has an `encoding`. */
export function textArguments(name: string, bytes: Buffer, fields: readonly Field[]): Args {
  const text = bytes.toString('utf8')
  if (Buffer.from(text).equals(bytes)) return { [name]: text }
  if (!fields.some((field) => field.name === 'encoding'))
    throw new Usage(`standard input for --${name} is not UTF-8 text`)
  return { [name]: bytes.toString('base64'), encoding: 'base64' }
}

/** Replaces `-` by standard input. */
export function withInput(called: string, args: Args, fields: readonly Field[]): Args {
  const name = texts.find((text) => args[text] === '-' && fields.some((field) => field.name === text))
  if (name) return { ...args, ...textArguments(name, readFileSync(0), fields) }
  if (called !== 'container exec' || args.stdin !== undefined || !isPiped()) return args
  const bytes = readFileSync(0)
  return bytes.length === 0 ? args : { ...args, ...textArguments('stdin', bytes, fields) }
}

/** The whole file, or the part of it that `--offset` or `--max-bytes` select. */
export async function readFile(call: (args: Args) => Promise<Result>, args: Args): Promise<Buffer> {
  const parts: Buffer[] = []
  const isPart = args.offset !== undefined || args.max_bytes !== undefined
  let offset = 0
  for (;;) {
    const { content, encoding, truncated } = await call(isPart ? args : { ...args, offset })
    const part = Buffer.from(String(content), encoding === 'base64' ? 'base64' : 'utf8')
    parts.push(part)
    offset += part.length
    if (isPart || !truncated || part.length === 0) return Buffer.concat(parts)
  }
}
