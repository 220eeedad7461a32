// What a command of `./oubliette` is, and the little that all of them share: where the checkout is, how options are
// read, how a wrong use is told from a failure.
import { join } from 'node:path'
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util'
import { loadSettings, type Settings } from '../../internal/config/load.ts'
import { Fault, messageOf } from '../../internal/fault.ts'

export type Command = {
  about: string
  /** What follows the command's name, e.g. `[--detach]`. */
  usage: string
  /** Lines of `--help` below the usage. */
  help: string
  /** Answers with the exit code; nothing is 0. */
  run(args: string[]): Promise<number | undefined>
}

/** The root of the source tree that this file is in. */
export const checkout = join(import.meta.dirname, '..', '..')

export const settings = (): Settings => loadSettings(process.env, checkout)

/** For commands that start a server: what must not stand is refused before anything is done. */
export function serverSettings(): Settings {
  const loaded = settings()
  const [problem] = loaded.problems
  if (problem) throw problem
  return loaded
}

/** The command was called wrongly: exit code 2 instead of 1. */
export class Usage extends Fault {
  constructor(message: string, hint?: string) {
    super('invalid', message, hint ? { hint } : {})
  }
}

/** Node's own option parser, its complaints as ours. */
export function options<const Options extends ParseArgsOptionsConfig>(
  args: string[],
  known: Options,
  positionals = false,
) {
  try {
    return parseArgs({ args, options: known, allowPositionals: positionals, strict: true })
  } catch (error) {
    const [first = ''] = messageOf(error).split('\n')
    throw new Usage(first.replace(/\. To specify a positional.*$/, ''), 'see --help of this command')
  }
}

/** The known word nearest to a misspelt one, if one is near at all. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const distance = (a: string, b: string): number => {
    let row = Array.from({ length: b.length + 1 }, (_, index) => index)
    for (let i = 1; i <= a.length; i++) {
      const next = [i]
      for (let j = 1; j <= b.length; j++)
        next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
      row = next
    }
    return row[b.length]!
  }
  const ranked = known
    .map((candidate) => ({
      candidate,
      far: candidate.startsWith(word) ? 1 : distance(word.slice(0, 40), candidate),
    }))
    .sort((a, b) => a.far - b.far)
  const best = ranked[0]
  return best && best.far <= Math.max(1, Math.floor(word.length / 3) + 1) ? best.candidate : undefined
}
