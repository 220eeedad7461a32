// `./oubliette ps`: the sessions that have not ended, of all projects.
import { isFinal } from '../../../internal/protocol/session-status.ts'
import { endpoint } from '../client/call.ts'
import { type Command, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { parseArguments } from '../tool-command/arguments.ts'
import { newest } from '../tool-command/fetch.ts'
import { readManifest } from '../tool-command/manifest.ts'
import { type List, lists } from '../tool-command/output/lists.ts'
import { formats, show } from '../tool-command/output/show.ts'
import { listSessions } from '../tool-command/session-reference.ts'

const list: List = {
  ...lists['session list']!,
  columns: [
    { title: 'SESSION', path: 'session_id', as: 'id' },
    { title: 'PROJECT', path: 'project_name', flexible: true },
    { title: 'DROID', path: 'droid' },
    { title: 'STATUS', path: 'status', as: 'status' },
    { title: 'AGE', path: 'created_at', as: 'age' },
    { title: 'REASON', path: 'reason', flexible: true },
    { title: 'ANSWER', path: 'final_text', flexible: true },
    { title: 'MODEL', path: 'model', wide: true },
    { title: 'WORKSPACE', path: 'workspace_id', as: 'id', wide: true },
  ],
}

/** A session that is `preparing` has a step instead. */
const reasonOf = ({ reason, step, percent }: Record<string, unknown>) =>
  reason ?? (typeof percent === 'number' ? `${step} (${percent}%)` : (step ?? null))

async function run(words: string[]): Promise<number> {
  const { format, quiet, all } = parseArguments(words, { fields: [], positional: [] })
  if (all)
    throw new Usage('unknown option --all', 'see "./oubliette session list" for sessions that have ended')
  const config = place()
  const where = endpoint(config, baseUrl(config))
  const status = readManifest().session!.actions.list!.fields.find(({ name }) => name === 'status')!
  const live = status.choices.filter((choice) => !isFinal(choice))
  const found = await Promise.all(live.map((choice) => listSessions(where, { status: choice })))
  // A session that changes its status meanwhile can be in two of the lists.
  const sessions = [...new Map(found.flat().map((session) => [session.session_id, session])).values()]
  const shown = sessions.map((session) => ({ ...session, reason: reasonOf(session) }))
  const { result } = newest({ sessions: shown }, list, Number.POSITIVE_INFINITY)
  process.stdout.write(show(result, list, { format, quiet }).stdout)
  return 0
}

export const ps: Command = {
  about: 'List the sessions that have not ended, of all projects',
  usage: '[OPTIONS]',
  options: [
    ['-o, --output FORMAT', `Format of the result: ${formats.join('|')} (default table)`],
    ['-q, --quiet', 'Print full ids only'],
  ],
  examples: [
    './oubliette ps',
    './oubliette ps -o wide',
    './oubliette session end $(./oubliette ps -q | head -n 1)',
  ],
  run,
}
