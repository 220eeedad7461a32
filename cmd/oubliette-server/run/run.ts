// `./oubliette run PROMPT`: starts the server if it is not running, sends the prompt to a new session, streams the events,
// and exits with the outcome of the turn.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Place } from '../../../internal/config/place.ts'
import { Fault, type Kind } from '../../../internal/fault.ts'
import { ensureHome } from '../../../internal/home-lock.ts'
import { looksLikeId } from '../../../internal/ids.ts'
import { callTool, type Endpoint, endpoint } from '../client/call.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { baseUrl, findServer, isRemote, misdirected } from '../daemon/daemon.ts'
import { exitCodeOf, isTurnOver, type RunEvent, readEvents } from './events.ts'
import { createPrinter } from './print.ts'

const interrupted_code = 130

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

/** The id of a project by id or name. A project with that name is created if none exists; an id is never used as a name. */
async function projectNamed(where: Endpoint, name: string, droid: string | undefined): Promise<string> {
  const project = async (action: object) =>
    String((await callTool(where, 'project', { ...action })).project_id)
  const find = () => project({ action: 'get', project_id: name })
  try {
    return await find()
  } catch (error) {
    if (!isFault(error, 'not_found') || looksLikeId(name)) throw error
  }
  try {
    return await project({ action: 'create', name, ...(droid ? { droid } : {}) })
  } catch (error) {
    // A concurrent `run` created it.
    if (isFault(error, 'conflict')) return await find()
    throw error
  }
}

const isFault = (error: unknown, kind: Kind): boolean => error instanceof Fault && error.kind === kind

/** The first Ctrl-C cancels the turn and waits for its end; the second ends the session. */
function onInterrupt(
  cancel: () => Promise<unknown>,
  leave: () => Promise<unknown>,
): Disposable & { count: number } {
  const state = { count: 0, [Symbol.dispose]: () => void process.off('SIGINT', handle) }
  const handle = () => {
    state.count += 1
    if (state.count === 1) {
      process.stderr.write('\noubliette: cancelling the turn; press Ctrl-C again to end the session\n')
      // Fails if the turn is already over.
      cancel().catch(() => undefined)
    } else if (state.count === 2) void leave().finally(() => process.exit(interrupted_code))
    else process.exit(interrupted_code)
  }
  process.on('SIGINT', handle)
  return state
}

async function run(args: string[]): Promise<number> {
  const { values, positionals } = options(
    args,
    {
      droid: { type: 'string' },
      project: { type: 'string' },
      model: { type: 'string' },
      json: { type: 'boolean', default: false },
      keep: { type: 'boolean', default: false },
    },
    true,
  )
  const prompt = positionals.join(' ')
  if (prompt.trim() === '') throw new Usage('missing PROMPT', "example: ./oubliette run 'echo hello'")
  const config = place()
  await ensureServer(config)
  const where = endpoint(config, baseUrl(config))
  // Agents need containers of different types, so each has its own project.
  const own = values.droid !== undefined && values.droid !== 'shell' ? values.droid : 'default'
  const project_id = await projectNamed(where, values.project ?? own, values.droid)
  const { session_id, turn_id } = await callTool(where, 'session', {
    action: 'spawn',
    project_id,
    prompt,
    new_session: true,
    source: 'oubliette run',
    ...(values.droid ? { droid: values.droid } : {}),
    ...(values.model ? { model: values.model } : {}),
  })
  const act = (action: string, more = {}) => callTool(where, 'session', { action, session_id, ...more })
  using interrupt = onInterrupt(
    () => act('cancel'),
    () => act('end', { wait_seconds: 5 }),
  )
  const printer = createPrinter({ json: values.json, out: process.stdout, err: process.stderr })
  let last: RunEvent | undefined
  for await (const event of readEvents(baseUrl(config), where.token, String(session_id))) {
    printer.show(event)
    last = event
    if (isTurnOver(event, String(turn_id))) break
  }
  printer.end()
  // The session was created for this prompt only.
  if (!values.keep) await act('end', { wait_seconds: 0 })
  return interrupt.count > 0 ? interrupted_code : exitCodeOf(last)
}

export const runPrompt: Command = {
  about: 'Run a prompt in a new session and stream its output',
  usage: '[OPTIONS] PROMPT',
  details: `Starts the server if it is not running. The output of the droid goes to stdout; its stderr, tool calls, plans and
thoughts go to stderr. The exit code is that of the script, or for an agent 0 if it ended its turn and 1 otherwise.
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
    ['--model NAME', 'Model to use (default: that of the project, then that of the droid)'],
    ['--keep', 'Leave the session open for "./oubliette session message"'],
    ['--json', 'Print every event as one line of JSON'],
  ],
  examples: [
    "./oubliette run 'echo hello'",
    "./oubliette run --droid claude --project site 'fix the failing test'",
  ],
  run,
}
