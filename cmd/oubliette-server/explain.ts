// Whatever a command throws, as one line for a person and an exit code for a script.
import { inspect } from 'node:util'
import { Fault } from '../../internal/fault.ts'
import { mask } from '../../internal/log.ts'
import { Usage } from './command.ts'

export function explain(thrown: unknown): number {
  if (!(thrown instanceof Fault)) {
    // A bug, and the one case in which a stack says more than a sentence.
    process.stderr.write(`oubliette: ${mask(inspect(thrown))}\n`)
    return 1
  }
  process.stderr.write(mask(`oubliette: ${thrown.message}${thrown.hint ? `\n  ${thrown.hint}` : ''}\n`))
  return thrown instanceof Usage ? 2 : 1
}
