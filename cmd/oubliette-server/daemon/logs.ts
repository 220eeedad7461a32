import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { Fault } from '../../../internal/fault.ts'
import { type Command, options, settings, Usage } from '../command.ts'
import { logFile } from './log-file.ts'

async function run(args: string[]): Promise<number> {
  const { values } = options(args, {
    follow: { type: 'boolean', short: 'f', default: false },
    lines: { type: 'string', short: 'n', default: '100' },
  })
  if (!/^\d+$/.test(values.lines)) throw new Usage(`--lines takes a number, not "${values.lines}"`)
  const file = logFile(settings().home)
  if (!existsSync(file))
    throw new Fault('not_found', `there is no log at ${file}`, {
      hint: 'only a server in the background (./oubliette up --detach) writes one; in the foreground it is on the terminal',
    })
  const child = spawn('tail', ['-n', values.lines, ...(values.follow ? ['-F'] : []), file], {
    stdio: 'inherit',
  })
  // Ctrl-C reaches tail by itself; it is the normal end of following.
  process.on('SIGINT', () => undefined)
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(signal === 'SIGINT' ? 0 : (code ?? 1)))
  })
}

export const logs: Command = {
  about: 'The log of the server in the background.',
  usage: '[-f] [-n LINES]',
  help: `  -f, --follow       Go on with what is written from now on.
  -n, --lines LINES  Begin with the last so many lines (100).`,
  run,
}
