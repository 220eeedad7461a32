// `./oubliette chat SESSION`: a conversation with an existing session. Shows the last part of its transcript, follows its
// events, whoever causes them, and sends what is typed.
import { Fault } from '../../../internal/fault.ts'
import { isFinal } from '../../../internal/protocol/session-status.ts'
import { callTool, type Endpoint, endpoint } from '../client/call.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { requireProject } from '../run/target.ts'
import { listSessions, resolveSession } from '../tool-command/session-reference.ts'
import { chatWith } from './conversation.ts'
import { sendLines } from './piped.ts'

type Listed = { session_id: string; status: string; created_at: string }

/** The newest session that has not ended, of one project or of all. */
async function latestLive(where: Endpoint, project: string | undefined): Promise<string> {
  const filter =
    project === undefined ? {} : { project_id: (await requireProject(where, project)).project_id }
  const live = ((await listSessions(where, filter)) as unknown as Listed[])
    .filter(({ status }) => !isFinal(status))
    .sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at))
  const [latest] = live
  if (!latest)
    throw new Fault(
      'not_found',
      `no live session${project === undefined ? '' : ` in project "${project}"`}`,
      {
        hint: 'start one with "./oubliette run --keep PROMPT", or see "./oubliette session list"',
      },
    )
  return latest.session_id
}

async function run(args: string[]): Promise<number> {
  const { values, positionals } = options(
    args,
    { project: { type: 'string' }, lines: { type: 'string', short: 'n', default: '200' } },
    true,
  )
  if (!/^\d{1,6}$/.test(values.lines))
    throw new Usage(`invalid value "${values.lines}" for --lines: expected a number`)
  const [given, ...more] = positionals
  if (more.length > 0) throw new Usage(`unexpected argument "${more[0]}"`, 'see --help of this command')
  if (given !== undefined && values.project !== undefined)
    throw new Usage('--project cannot be combined with SESSION')
  const config = place()
  const base = baseUrl(config)
  const where = endpoint(config, base)
  const session_id =
    given === undefined ? await latestLive(where, values.project) : await resolveSession(where, given)
  const session = await callTool(where, 'session', { action: 'get', session_id })
  const project = await requireProject(where, String(session.project_id))
  const chat = { where, base, home: config.home, session, project: project.name, lines: Number(values.lines) }
  const interactive = process.stdin.isTTY === true && process.stderr.isTTY === true
  return interactive ? await chatWith(chat) : await sendLines(chat)
}

export const chat: Command = {
  about: 'Talk to a session: show its last messages, follow it, send messages',
  usage: '[OPTIONS] [SESSION]',
  details: `SESSION is an id or a unique prefix of one (default: the latest live session). Leaving keeps the session running.
Commands: /cancel, /end, /status, /help, /quit. A message that begins with "/" is typed with "//".
Ctrl-C cancels the running turn, a second Ctrl-C or Ctrl-D leaves. Permission requests are answered in place.
Without a terminal, every line of standard input is a message.`,
  options: [
    ['--project NAME|ID', 'Choose the latest live session of this project'],
    ['-n, --lines EVENTS', 'Number of events to show from before (default 200)'],
  ],
  examples: ['./oubliette chat', './oubliette chat $SESSION_ID', './oubliette chat --project site'],
  run,
}

export const attach: Command = {
  ...chat,
  about: 'The same as chat',
  examples: chat.examples.map((line) => line.replace('oubliette chat', 'oubliette attach')),
}
