// `./oubliette logs`: the log of the background server, through tail, or the events of a session. On a terminal the JSON
// lines of the log are shown as readable lines; a pipe receives them unchanged.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { Fault } from '../../../internal/fault.ts'
import { isFinal } from '../../../internal/protocol/session-status.ts'
import { callTool, endpoint } from '../client/call.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { type RunEvent, readEvents } from '../run/events.ts'
import { clock, logLine, paint } from '../tool-command/output/log-line.ts'
import { hasColours, oneLine } from '../tool-command/output/text.ts'
import { resolveSession } from '../tool-command/session-reference.ts'
import { baseUrl } from './daemon.ts'
import { logFile } from './log-file.ts'

const details = ['text', 'message', 'title', 'final_text', 'step', 'reason', 'error', 'output', 'tool']

/** One event of a session, for a person. */
export function eventLine(event: RunEvent, colours: boolean): string {
  const status = event.type === 'status' ? `${event.status} ` : ''
  const detail = details.map((name) => event[name]).find((value) => value !== undefined && value !== null)
  const text = typeof detail === 'string' ? detail : detail === undefined ? '' : JSON.stringify(detail)
  return `${clock(event.at)} ${paint(event.type.padEnd(12), 2, colours)} ${oneLine(`${status}${text}`)}`.trimEnd()
}

async function sessionLog(given: string, lines: number, follow: boolean): Promise<number> {
  const config = place()
  const base = baseUrl(config)
  const where = endpoint(config, base)
  const session_id = await resolveSession(where, given)
  const { last_index, status } = await callTool(where, 'session', { action: 'get', session_id })
  const colours = hasColours()
  const print = (event: RunEvent) => process.stdout.write(`${eventLine(event, colours)}\n`)
  let since_index = Math.max(-1, Number(last_index) - lines)
  for (let more = true; more; ) {
    const page = await callTool(where, 'session', {
      action: 'events',
      session_id,
      since_index,
      max_events: 1000,
    })
    const events = page.events as RunEvent[]
    events.forEach(print)
    since_index = events.at(-1)?.index ?? since_index
    more = page.has_more === true && events.length > 0
  }
  if (!follow || isFinal(String(status))) return 0
  for await (const event of readEvents(base, where.token, session_id, since_index)) {
    print(event)
    if (event.type === 'status' && isFinal(String(event.status))) break
  }
  return 0
}

async function serverLog(lines: string, follow: boolean): Promise<number> {
  const file = logFile(place().home)
  if (!existsSync(file))
    throw new Fault('not_found', `no log file at ${file}`, {
      hint: 'only a background server ("./oubliette up --detach") writes a log file; a foreground server logs to stderr',
    })
  const readable = process.stdout.isTTY === true
  const child = spawn('tail', ['-n', lines, ...(follow ? ['-F'] : []), file], {
    stdio: ['inherit', readable ? 'pipe' : 'inherit', 'inherit'],
  })
  if (child.stdout)
    createInterface({ input: child.stdout }).on('line', (line) => {
      process.stdout.write(`${logLine(line, hasColours())}\n`)
    })
  // Ctrl-C reaches tail directly and is the normal end of --follow.
  process.on('SIGINT', () => undefined)
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(signal === 'SIGINT' ? 0 : (code ?? 1)))
  })
}

async function run(args: string[]): Promise<number> {
  const { values, positionals } = options(
    args,
    {
      follow: { type: 'boolean', short: 'f', default: false },
      lines: { type: 'string', short: 'n', default: '100' },
    },
    true,
  )
  if (!/^\d+$/.test(values.lines))
    throw new Usage(`invalid value "${values.lines}" for --lines: expected a number`)
  const [session, ...more] = positionals
  if (more.length > 0) throw new Usage(`unexpected argument "${more[0]}"`, 'see --help of this command')
  return session === undefined
    ? await serverLog(values.lines, values.follow)
    : await sessionLog(session, Number(values.lines), values.follow)
}

export const logs: Command = {
  about: 'Show the log of the background server, or the events of a session',
  usage: '[OPTIONS] [SESSION]',
  details:
    'SESSION is an id or a unique prefix of one. With --follow, the command ends when the session ends.',
  options: [
    ['-f, --follow', 'Follow the log'],
    ['-n, --lines LINES', 'Number of lines to show from the end of the log (default 100)'],
  ],
  examples: ['./oubliette logs', './oubliette logs -f -n 20', './oubliette logs -f $SESSION_ID'],
  run,
}
