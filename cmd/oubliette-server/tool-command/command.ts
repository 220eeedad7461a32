// Every tool as a command, built from the manifest: `./oubliette project list --json`. The first word after a tool
// with several actions is the action.

import { nearest } from '../../../internal/lib/nearest.ts'
import { callTool, endpoint } from '../client/call.ts'
import { type Command, columns, firstSentence, helpText, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { type Parsed, parseArguments } from './arguments.ts'
import { allPages, newest, shown_rows } from './fetch.ts'
import { type Field, flagOf } from './fields.ts'
import { createLiveLine } from './live-line.ts'
import { type ActionEntry, calledAs, kebab, type ToolEntry } from './manifest.ts'
import { type List, lists } from './output/lists.ts'
import { formats, show } from './output/show.ts'
import { resolveSessions } from './session-reference.ts'
import { readFile, withInput } from './streams.ts'

type Args = Record<string, unknown>
type Row = Record<string, unknown>

/** Choices that fit beside their flag; longer lists are part of the description. */
const short_choices = 30

function optionOf(field: Field): [string, string] {
  const choices = field.choices.join('|')
  const isLong = choices.length > short_choices
  const takes = isLong ? 'VALUE' : choices || field.kinds.join('|')
  const flag = takes === 'boolean' ? flagOf(field) : `${flagOf(field)} ${takes}`
  const values = isLong ? ` Values: ${field.choices.join(', ')}.` : ''
  return [flag, `${field.required ? '(required) ' : ''}${field.description}${values}`]
}

const listOf = (tool: ToolEntry, name: string): List | undefined => lists[`${tool.name} ${name}`]
const isPaged = ({ fields }: ActionEntry): boolean => fields.some((field) => field.name === 'cursor')

function actionCommand(tool: ToolEntry, name: string): Omit<Command, 'run'> {
  const action = tool.actions[name]!
  const paged: [string, string][] = isPaged(action)
    ? [['--all', `Show all rows (default: the newest ${shown_rows}, or --limit)`]]
    : []
  const details = [
    listOf(tool, name)?.newest && isPaged(action)
      ? 'A table shows the newest row first; JSON and YAML keep the order of the server.'
      : '',
    action.positional.length > 0 ? 'Arguments can also be given as options.' : '',
  ].filter(Boolean)
  return {
    about: action.about.replace(/, (?:oldest|newest) first\b/, ''),
    usage: ['[OPTIONS]', ...action.positional.map((name) => name.toUpperCase())].join(' '),
    ...(details.length > 0 ? { details: details.join(' ') } : {}),
    options: [
      ...action.fields.map(optionOf),
      ...paged,
      ['-o, --output FORMAT', `Format of the result: ${formats.join('|')} (default table)`],
      [
        '-q, --quiet',
        calledAs(tool, name) === 'token create' ? 'Print the token only' : 'Print full ids only',
      ],
      ['--json', 'The same as -o json'],
    ],
    examples: [action.example],
  }
}

/** A table shows the newest rows of all pages. JSON and YAML are one page as the server returned it, unless `--all` is given. */
async function fetchList(call: (args: Args) => Promise<Row>, parsed: Parsed, list: List): Promise<Row> {
  const { args, format, all } = parsed
  if (args.cursor !== undefined) return await call(args)
  const { limit = shown_rows, ...rest } = args
  if (format === 'json' || format === 'yaml') return all ? await allPages(call, rest, list) : await call(args)
  const most = all ? Number.POSITIVE_INFINITY : Number(limit)
  const { result, more } = newest(await allPages(call, rest, list), list, most)
  if (more > 0) process.stderr.write(`oubliette: ${more} more ${list.rows}; use --limit N or --all\n`)
  return result
}

async function runAction(
  tool: ToolEntry,
  name: string,
  action: ActionEntry,
  words: string[],
): Promise<number> {
  const called = calledAs(tool, name)
  const parsed = parseArguments(words, action)
  if (parsed.help) {
    process.stdout.write(helpText(called, actionCommand(tool, name)))
    return 0
  }
  const list = listOf(tool, name)
  if (parsed.all && !isPaged(action)) throw new Usage('--all applies to lists only')
  const config = place()
  const stop = new AbortController()
  process.once('SIGINT', () => stop.abort())
  // Scripts read the formats for programs: nothing else is written then.
  const live = parsed.quiet || !['table', 'wide'].includes(parsed.format) ? undefined : createLiveLine()
  const where = endpoint(config, baseUrl(config))
  const call = (args: Args) =>
    callTool(
      where,
      tool.name,
      { ...(tool.unified ? { action: name } : {}), ...args },
      { signal: stop.signal, ...(live ? { progress: live.report } : {}) },
    )
  try {
    parsed.args = await resolveSessions(where, withInput(called, parsed.args, action.fields))
    if (called === 'workspace read-file' && parsed.format === 'table' && !parsed.quiet) {
      const file = await readFile(call, parsed.args)
      live?.end()
      process.stdout.write(file)
      return 0
    }
    const result = list && isPaged(action) ? await fetchList(call, parsed, list) : await call(parsed.args)
    live?.end()
    const shown = show(result, list, { format: parsed.format, quiet: parsed.quiet })
    process.stderr.write(shown.stderr)
    process.stdout.write(shown.stdout)
    return shown.code
  } catch (error) {
    live?.end()
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
    return { ...actionCommand(tool, name), run: (words) => runAction(tool, name, action, words) }
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
      const [near] = nearest(name, Object.keys(tool.actions))
      throw new Usage(`unknown action "${word}" of ${called}`, near ? `did you mean "${kebab(near)}"?` : hint)
    },
  }
}
