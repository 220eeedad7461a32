// Every tool as a command, made from its declaration: `./oubliette project list --json`. A unified tool's first word is
// the action; a standalone tool has none.
import type { Action, Tool } from '../../../internal/tools/tool.ts'
import { type Command, nearest, settings, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { createProgress } from '../setup/progress.ts'
import { parseArguments } from './arguments.ts'
import { callTool, endpoint } from './call.ts'
import { type Field, fieldsOf, flagOf } from './fields.ts'
import { show } from './show.ts'

const kebab = (name: string) => name.replaceAll('_', '-')

function fieldLine(field: Field): string {
  const takes = field.choices.length > 0 ? field.choices.join('|') : [...field.kinds].join('|')
  const value = takes === 'boolean' ? '' : ` <${takes}>`
  return `  ${flagOf(field)}${value}${field.required ? ' (required)' : ''}\n      ${field.description}`.trimEnd()
}

function actionHelp(called: string, action: Action): string {
  const fields = [...fieldsOf(action.input).values()]
  const words = fields.filter((field) => field.required).map((field) => `<${field.name}>`)
  return [
    `usage: ./oubliette ${[called, ...words].join(' ')} [options]`,
    '',
    action.about,
    '',
    ...fields.map(fieldLine),
    '  --json\n      The whole result as JSON.',
    '',
  ].join('\n')
}

async function runAction(tool: Tool, name: string, action: Action, words: string[]): Promise<number> {
  const called = tool.unified ? `${tool.name} ${kebab(name)}` : tool.name
  const parsed = parseArguments(words, fieldsOf(action.input))
  if (parsed.help) {
    process.stdout.write(actionHelp(called, action))
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
  const names = Object.keys(tool.actions)
  const listed = Object.entries(tool.actions).map(
    ([name, action]) => `  ${kebab(name).padEnd(12)} ${action.about}`,
  )
  return {
    about: tool.about,
    usage: tool.unified ? `${names.map(kebab).join('|')} [options]` : '[options]',
    help: tool.unified ? `${listed.join('\n')}\n\nEach has its own --help.` : '',
    async run(words) {
      const [only] = names
      if (!tool.unified) return runAction(tool, only!, tool.actions[only!]!, words)
      const [word, ...rest] = words
      if (word === undefined)
        throw new Usage(`${tool.name} needs an action`, `one of ${names.map(kebab).join(', ')}`)
      const name = word.replaceAll('-', '_')
      if (Object.hasOwn(tool.actions, name)) return runAction(tool, name, tool.actions[name]!, rest)
      const near = nearest(name, names)
      throw new Usage(
        `${tool.name} has no action "${word}"`,
        near ? `did you mean ${kebab(near)}?` : `one of ${names.map(kebab).join(', ')}`,
      )
    },
  }
}
