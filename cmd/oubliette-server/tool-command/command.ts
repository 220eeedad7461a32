// Every tool as a command, built from the manifest: `./oubliette project list --json`. The first word after a tool
// with several actions is the action.

import { callTool, endpoint } from '../client/call.ts'
import { type Command, columns, firstSentence, helpText, nearest, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { createProgress } from '../setup/progress.ts'
import { parseArguments } from './arguments.ts'
import { type Field, flagOf } from './fields.ts'
import { type ActionEntry, calledAs, kebab, type ToolEntry } from './manifest.ts'
import { show } from './show.ts'

function optionOf(field: Field): [string, string] {
  const takes = field.choices.length > 0 ? field.choices.join('|') : field.kinds.join('|')
  const flag = takes === 'boolean' ? flagOf(field) : `${flagOf(field)} ${takes}`
  return [flag, `${field.required ? '(required) ' : ''}${field.description}`]
}

function actionCommand(action: ActionEntry): Omit<Command, 'run'> {
  const { fields } = action
  const required = fields.filter((field) => field.required)
  return {
    about: action.about,
    usage: ['[OPTIONS]', ...required.map((field) => field.name.toUpperCase())].join(' '),
    ...(required.length > 0 ? { details: 'Arguments can also be given as options.' } : {}),
    options: [...fields.map(optionOf), ['--json', 'Print the result as JSON']],
    examples: [action.example],
  }
}

async function runAction(
  tool: ToolEntry,
  name: string,
  action: ActionEntry,
  words: string[],
): Promise<number> {
  const called = calledAs(tool, name)
  const parsed = parseArguments(words, action.fields)
  if (parsed.help) {
    process.stdout.write(helpText(called, actionCommand(action)))
    return 0
  }
  const config = place()
  const stop = new AbortController()
  process.once('SIGINT', () => stop.abort())
  const progress = createProgress()
  try {
    const result = await callTool(
      endpoint(config, baseUrl(config)),
      tool.name,
      { ...(tool.unified ? { action: name } : {}), ...parsed.args },
      { signal: stop.signal, progress: (message) => progress.detail(message) },
    )
    progress.end()
    if (parsed.json) {
      process.stdout.write(`${JSON.stringify(result, null, 2)}\n`)
      return 0
    }
    const shown = show(result)
    process.stderr.write(shown.stderr)
    process.stdout.write(shown.stdout)
    return shown.code
  } catch (error) {
    progress.end()
    if (stop.signal.aborted) return 130
    throw error
  }
}

export function toolCommand(tool: ToolEntry): Command {
  const called = kebab(tool.name)
  const actions = Object.entries(tool.actions)
  const [first] = actions
  if (!tool.unified) {
    const [name, action] = first!
    return { ...actionCommand(action), run: (words) => runAction(tool, name, action, words) }
  }
  const listed = actions.map(([name, action]): [string, string] => [kebab(name), firstSentence(action.about)])
  const hint = `actions: ${listed.map(([name]) => name).join(', ')}`
  return {
    about: tool.about,
    usage: 'ACTION [OPTIONS]',
    details: `Actions:\n${columns(listed)}\n\nRun "./oubliette ${called} ACTION --help" for more information about an action.`,
    examples: actions.slice(0, 3).map(([, action]) => action.example),
    async run(words) {
      const [word, ...rest] = words
      if (word === undefined) throw new Usage(`missing ACTION of ${called}`, hint)
      const name = word.replaceAll('-', '_')
      if (Object.hasOwn(tool.actions, name)) return runAction(tool, name, tool.actions[name]!, rest)
      const near = nearest(name, Object.keys(tool.actions))
      throw new Usage(`unknown action "${word}" of ${called}`, near ? `did you mean "${kebab(near)}"?` : hint)
    },
  }
}
