// `./oubliette run PROMPT`: starts the server if it is not running, sends the prompt to a session, shows what the droid does,
// and exits with the outcome of the turn.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Place } from '../../../internal/config/place.ts'
import { Fault } from '../../../internal/fault.ts'
import { ensureHome } from '../../../internal/home-lock.ts'
import { callTool, type Endpoint, endpoint } from '../client/call.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { baseUrl, findServer, isRemote, misdirected } from '../daemon/daemon.ts'
import { columnsOf, hasColours } from '../tool-command/output/text.ts'
import { exitCodeOf, isTurnOver, type RunEvent, readEvents } from './events.ts'
import { onInterrupt } from './interrupt.ts'
import { hasInput, readPrompt } from './prompt.ts'
import { asksPerson, createAsker, explainQuestion } from './questions.ts'
import { createScreen } from './screen.ts'
import { type Flags, requireProject, type Sent, sendPrompt } from './target.ts'
import { createRenderer } from './transcript/renderer.ts'

const levels = ['off', 'low', 'medium', 'high']

/** The banner of `up` is discarded: stdout carries only the output of the droid. */
async function ensureServer(config: Place): Promise<void> {
  const found = await findServer(config)
  if (found.state?.up && (found.is_ours || isRemote(found))) return
  const other = misdirected(config, found)
  if (other) throw other
  ensureHome(config.home)
  const main = join(import.meta.dirname, '../main.ts')
  const child = spawn(process.execPath, [...process.execArgv, main, 'up', '--detach'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  if (code !== 0)
    throw new Fault('unavailable', 'failed to start the server', { hint: 'run "./oubliette up" for details' })
}

function parse(args: string[]) {
  const { values, positionals } = options(
    args,
    {
      droid: { type: 'string' },
      project: { type: 'string' },
      workspace: { type: 'string' },
      model: { type: 'string' },
      autonomy: { type: 'string' },
      session: { type: 'string' },
      continue: { type: 'boolean', short: 'c', default: false },
      keep: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      quiet: { type: 'boolean', short: 'q', default: false },
    },
    true,
  )
  for (const name of ['droid', 'project', 'workspace', 'model', 'session'] as const)
    if (values[name] !== undefined && values[name].trim() === '')
      throw new Usage(`missing value of --${name}`)
  if (values.autonomy !== undefined && !levels.includes(values.autonomy))
    throw new Usage(`invalid value "${values.autonomy}" for --autonomy: expected ${levels.join(', ')}`)
  const refused =
    values.session === undefined
      ? values.continue
        ? (['model', 'autonomy'] as const)
        : []
      : (['droid', 'project', 'workspace', 'model', 'autonomy', 'continue'] as const)
  for (const name of refused)
    if (values[name])
      throw new Usage(
        `--${name} cannot be combined with ${values.session === undefined ? '--continue' : '--session'}`,
        'a session keeps the settings that it was started with',
      )
  return { flags: values as Flags & typeof values, words: positionals }
}

type Follow = { where: Endpoint; base: string; sent: Sent; project: string; flags: Flags }

/** Shows the events of a turn until it is over; returns the event that ended it. */
async function follow(
  { where, base, sent, project, flags }: Follow,
  interrupt: ReturnType<typeof onInterrupt>,
): Promise<RunEvent | undefined> {
  const { stdin, stdout, stderr } = process
  const colours = hasColours(stderr)
  const columns = () => columnsOf(stderr)
  const screen = createScreen({
    out: stdout,
    err: stderr,
    columns,
    colours,
    quiet: flags.quiet || flags.json,
  })
  const renderer = createRenderer({ columns, colours, live: screen.terminal })
  const { session_id } = sent
  const interactive = !flags.json && stdin.isTTY === true && screen.terminal
  let failure: unknown
  const stop = new AbortController()
  const asker = interactive
    ? createAsker({
        where,
        session_id,
        screen,
        renderer,
        colours,
        stdin,
        interrupt: interrupt.press,
        failed: (error) => {
          failure = error
          stop.abort()
        },
      })
    : undefined
  interrupt.say = (text) => screen.lines([`oubliette: ${text}`])
  screen.show(renderer.starting({ ...sent, project, workspace: sent.workspace_id }))
  let last: RunEvent | undefined
  try {
    const following = {
      signal: AbortSignal.any([stop.signal, interrupt.signal]),
      onConnection: (connected: boolean) =>
        screen.show([
          { kind: 'live', text: connected ? 'working' : 'server unreachable, retrying', plain: !connected },
        ]),
    }
    for await (const event of readEvents(base, where.token, session_id, sent.since_index, following)) {
      last = event
      if (event.type === 'status') interrupt.status(String(event.status))
      if (flags.json) stdout.write(`${JSON.stringify(event)}\n`)
      else screen.show(renderer.take(event))
      if (asker) asker.take(event)
      else if (asksPerson(event))
        screen.lines([...renderer.question(event), await explainQuestion(where, session_id, event)])
      if (isTurnOver(event, sent.turn_id)) break
    }
  } finally {
    asker?.close()
    screen.end()
  }
  if (failure) throw failure
  return last
}

async function run(args: string[]): Promise<number> {
  const { flags, words } = parse(args)
  const asked = await readPrompt(words, {
    stdin: process.stdin,
    piped: hasInput(),
    warn: (text) => process.stderr.write(`oubliette: ${text}\n`),
  })
  const config = place()
  await ensureServer(config)
  const base = baseUrl(config)
  const where = endpoint(config, base)
  const kept = flags.keep || flags.continue || flags.session !== undefined
  using interrupt = onInterrupt(kept)
  const { sent, project } = await sendPrompt(where, flags, asked)
  const act = (action: string, more = {}) =>
    callTool(where, 'session', { action, session_id: sent.session_id, ...more })
  interrupt.running(
    () => act('cancel'),
    () => act('end', { wait_seconds: 5 }),
  )
  const name = project ?? (await requireProject(where, sent.project_id)).name
  const last = await follow({ where, base, sent, project: name, flags }, interrupt)
  if (interrupt.left) return await interrupt.left
  // The session was created for this prompt only.
  if (!kept) await act('end', { wait_seconds: 0 })
  else if (!flags.json && !flags.quiet) process.stderr.write(goOn(sent.session_id))
  return interrupt.count > 0 ? interrupt.code : exitCodeOf(last)
}

const goOn = (session_id: string): string => `  session ${session_id} is open; to go on:
  ./oubliette chat ${session_id}
  ./oubliette run --session ${session_id} PROMPT
`

export const runPrompt: Command = {
  about: 'Run a prompt in a session and show what the droid does',
  usage: '[OPTIONS] PROMPT',
  details: `Starts the server if it is not running. The text of the droid goes to stdout; its tool calls, edits, plans and
thoughts, and the stderr of a script, go to stderr. The exit code is that of the script, or for an agent 0 if it ended its turn
and 1 otherwise. PROMPT is read from standard input if it is "-" or left out; with both, piped text is added to the prompt (for
the droid "shell": it is the standard input of the script). Permission requests are asked in the terminal.
Ctrl-C cancels the turn (exit code 130); a second Ctrl-C ends the session.`,
  options: [
    [
      '--droid NAME',
      'Droid to run (default: that of the project, then default_droid of the config). The prompt of the droid "shell" is a bash script',
    ],
    [
      '--project NAME|ID',
      'Project to use; a name that does not exist is created (default: the name of the droid; "default" for shell and without --droid)',
    ],
    ['--workspace NAME', 'Workspace of the project (default: "default")'],
    ['--model NAME', 'Model to use (default: that of the project, then that of the droid)'],
    [
      '--autonomy LEVEL',
      `What the droid may do without asking: ${levels.join('|')} (default: default_autonomy)`,
    ],
    ['--keep', 'Leave the session open, and print how to go on'],
    ['-c, --continue', 'Go on with the latest open session of an earlier run in this project'],
    ['--session ID', 'Go on with this session; a unique prefix is enough'],
    ['-q, --quiet', 'Print the text of the droid, errors and permission requests only'],
    ['--json', 'Print every event as one line of JSON'],
  ],
  examples: [
    "./oubliette run 'echo hello'",
    "./oubliette run --droid claude --project site --keep 'fix the failing test'",
    "./oubliette run --continue --droid claude --project site 'now add a test'",
    "git diff | ./oubliette run --droid claude 'review this change'",
  ],
  run,
}
