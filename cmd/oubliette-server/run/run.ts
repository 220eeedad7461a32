// `./oubliette run PROMPT`: the main job in one line. Brings the server up if none answers, gives the prompt to a new
// session, shows what happens while it happens, and ends as the droid did.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'
import { patterns } from '../../../internal/ids.ts'
import { type Command, options, settings, Usage } from '../command.ts'
import { baseUrl, readiness } from '../daemon/daemon.ts'
import { everyProject } from '../projects.ts'
import { callTool, type Endpoint, endpoint } from '../tool-command/call.ts'
import { exitCodeOf, isTurnOver, type RunEvent } from './outcome.ts'
import { createPrinter } from './print.ts'
import { readEvents } from './stream.ts'

const interrupted_code = 130

/** Its banner is not what somebody wants to read who pipes the droid's answer on. */
async function bringUp(config: Settings): Promise<void> {
  if ((await readiness(baseUrl(config)))?.up) return
  const main = join(import.meta.dirname, '../main.ts')
  const child = spawn(process.execPath, [...process.execArgv, main, 'up', '--detach'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  if (code !== 0)
    throw new Fault('unavailable', 'the server could not be started', { hint: './oubliette up says more' })
}

/** By its name, or its id; one that has neither is made, unless an id was meant. */
async function projectNamed(where: Endpoint, name: string, droid: string | undefined): Promise<string> {
  if (patterns.project.test(name))
    return String((await callTool(where, 'project', { action: 'get', project_id: name })).project_id)
  const find = async () =>
    (await everyProject(where)).find((project) => project.name.toLowerCase() === name.toLowerCase())
  const there = await find()
  if (there) return there.project_id
  try {
    return String(
      (await callTool(where, 'project', { action: 'create', name, ...(droid ? { droid } : {}) })).project_id,
    )
  } catch (error) {
    // Another `run` was faster.
    const made = error instanceof Fault && error.kind === 'conflict' ? await find() : undefined
    if (made) return made.project_id
    throw error
  }
}

/** The first Ctrl-C cancels the turn and waits for what the droid says to it; the second does not wait. */
function onInterrupt(
  cancel: () => Promise<unknown>,
  leave: () => Promise<unknown>,
): Disposable & { count: number } {
  const state = { count: 0, [Symbol.dispose]: () => void process.off('SIGINT', hear) }
  const hear = () => {
    state.count += 1
    if (state.count === 1) {
      process.stderr.write('\noubliette: cancelling the turn; once more ends the session\n')
      // One that is over already needs no cancelling.
      cancel().catch(() => undefined)
    } else if (state.count === 2) void leave().finally(() => process.exit(interrupted_code))
    else process.exit(interrupted_code)
  }
  process.on('SIGINT', hear)
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
  if (prompt.trim() === '')
    throw new Usage('what shall the droid do?', "for example ./oubliette run 'echo hello'")
  const config = settings()
  await bringUp(config)
  const where = endpoint(config, baseUrl(config))
  // Agents are in containers of their own types, so each has a project of its own.
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
  // A session of its own for one prompt: nobody is left to talk to it.
  if (!values.keep) await act('end', { wait_seconds: 0 })
  return interrupt.count > 0 ? interrupted_code : exitCodeOf(last)
}

export const runPrompt: Command = {
  about: 'Give a droid a prompt, watch it, and end as it did; brings the server up if none answers.',
  usage: '[--droid NAME] [--project NAME|ID] [--model NAME] [--keep] [--json] PROMPT',
  help: `  --droid NAME    Which droid; the project's, else the config's, else "shell", whose prompt is a bash script.
  --project NAME  In this project, or the one of this id; made if there is none of the name. If left out, one of the name of
                  the droid, or "default".
  --model NAME    Which model of the droid's provider; the project's, else the one that the droid would choose itself.
  --keep          Leave the session open, so that \`./oubliette session message\` can go on with it.
  --json          The events as they are, one JSON object per line.

What the droid says goes to stdout; its stderr, tool calls, plans and thoughts to stderr. The exit code is that of the
script, or for an agent 0 when it came to the end of its turn and 1 otherwise. Ctrl-C cancels the turn (exit code 130);
a second one ends the session at once.`,
  run,
}
