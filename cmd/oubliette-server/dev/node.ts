// `./oubliette node`: a program with the Node of this checkout, which runs TypeScript; that of the machine may be too old.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:os'
import { type Command, Usage } from '../command.ts'

async function run(args: string[]): Promise<number> {
  if (args.length === 0) throw new Usage('missing FILE', 'example: ./oubliette node examples/caller.ts demo')
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', ...args], {
    stdio: 'inherit',
  })
  // Ctrl-C reaches both from the terminal.
  process.on('SIGINT', () => undefined)
  for (const signal of ['SIGTERM', 'SIGHUP'] as const) process.on(signal, () => child.kill(signal))
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
  return code ?? 128 + (signal ? constants.signals[signal] : 0)
}

export const node: Command = {
  about: 'Run a program with the Node of this checkout, which runs TypeScript',
  usage: 'FILE [ARGUMENT...]',
  examples: ['./oubliette node examples/caller.ts demo'],
  run,
}
