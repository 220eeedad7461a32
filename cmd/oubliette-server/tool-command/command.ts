// Every tool as a command, generated from its declaration: `./oubliette project list --json`. The first word after a tool
// with several actions is the action.
import type { Action, Tool } from '../../../internal/tools/tool.ts'
import { type Command, columns, firstSentence, helpText, nearest, settings, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { createProgress } from '../setup/progress.ts'
import { parseArguments } from './arguments.ts'
import { callTool, endpoint } from './call.ts'
import { type Field, fieldsOf, flagOf } from './fields.ts'
import { show } from './show.ts'

const kebab = (name: string) => name.replaceAll('_', '-')

/** A value of an example as a word of a shell: IDs are variables, and one object in a list is written as key=value. */
function wordOf(name: string, value: unknown): string {
  if (name.endsWith('_id')) return `$${name.toUpperCase()}`
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  if (!Array.isArray(value)) return /^[\w.:-]+$/.test(text) ? text : `'${text}'`
  const pairs = value.flatMap((item) => Object.entries(item as object))
  return pairs.map(([key, inner]) => `${key}=${wordOf(key, inner)}`).join(',')
}

export function exampleOf(called: string, action: Action): string {
  const given = [...fieldsOf(action.input).values()].filter(({ name }) => Object.hasOwn(action.example, name))
  const words = given.map((field) => {
    const word = wordOf(field.name, action.example[field.name])
    return field.required ? word : `${flagOf(field)} ${word}`
  })
  const sorted = [
    ...words.filter((word) => !word.startsWith('--')),
    ...words.filter((word) => word.startsWith('--')),
  ]
  return [`./oubliette ${called}`, ...sorted].join(' ')
}

function optionOf(field: Field): [string, string] {
  const takes = field.choices.length > 0 ? field.choices.join('|') : [...field.kinds].join('|')
  const flag = takes === 'boolean' ? flagOf(field) : `${flagOf(field)} ${takes}`
  return [flag, `${field.required ? '(required) ' : ''}${field.description}`]
}

function actionCommand(called: string, action: Action): Omit<Command, 'run'> {
  const fields = [...fieldsOf(action.input).values()]
  const required = fields.filter((field) => field.required)
  return {
    about: action.about,
    usage: ['[OPTIONS]', ...required.map((field) => field.name.toUpperCase())].join(' '),
    ...(required.length > 0 ? { details: 'Arguments can also be given as options.' } : {}),
    options: [...fields.map(optionOf), ['--json', 'Print the result as JSON']],
    examples: [exampleOf(called, action)],
  }
}

async function runAction(tool: Tool, name: string, action: Action, words: string[]): Promise<number> {
  const called = tool.unified ? `${kebab(tool.name)} ${kebab(name)}` : kebab(tool.name)
  const parsed = parseArguments(words, fieldsOf(action.input))
  if (parsed.help) {
    process.stdout.write(helpText(called, actionCommand(called, action)))
    return 0
  }
  const config = settings()
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

export function toolCommand(tool: Tool): Command {
  const called = kebab(tool.name)
  const actions = Object.entries(tool.actions)
  const [first] = actions
  if (!tool.unified) {
    const [name, action] = first!
    return { ...actionCommand(called, action), run: (words) => runAction(tool, name, action, words) }
  }
  const listed = actions.map(([name, action]): [string, string] => [kebab(name), firstSentence(action.about)])
  const hint = `actions: ${listed.map(([name]) => name).join(', ')}`
  return {
    about: tool.about,
    usage: 'ACTION [OPTIONS]',
    details: `Actions:\n${columns(listed)}\n\nRun "./oubliette ${called} ACTION --help" for more information about an action.`,
    examples: actions.slice(0, 3).map(([name, action]) => exampleOf(`${called} ${kebab(name)}`, action)),
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
