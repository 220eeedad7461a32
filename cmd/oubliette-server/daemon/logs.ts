// `./oubliette logs`: shows the log file with tail.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { Fault } from '../../../internal/fault.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { logFile } from './log-file.ts'

async function run(args: string[]): Promise<number> {
  const { values } = options(args, {
    follow: { type: 'boolean', short: 'f', default: false },
    lines: { type: 'string', short: 'n', default: '100' },
  })
  if (!/^\d+$/.test(values.lines))
    throw new Usage(`invalid value "${values.lines}" for --lines: expected a number`)
  const file = logFile(place().home)
  if (!existsSync(file))
    throw new Fault('not_found', `no log file at ${file}`, {
      hint: 'only a background server ("./oubliette up --detach") writes a log file; a foreground server logs to stderr',
    })
  const child = spawn('tail', ['-n', values.lines, ...(values.follow ? ['-F'] : []), file], {
    stdio: 'inherit',
  })
  // Ctrl-C reaches tail directly and is the normal end of --follow.
  process.on('SIGINT', () => undefined)
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(signal === 'SIGINT' ? 0 : (code ?? 1)))
  })
}

export const logs: Command = {
  about: 'Show the log of the background server',
  usage: '[OPTIONS]',
  options: [
    ['-f, --follow', 'Follow the log'],
    ['-n, --lines LINES', 'Number of lines to show from the end of the log (default 100)'],
  ],
  examples: ['./oubliette logs', './oubliette logs -f -n 20'],
  run,
}
