// A tool call of an agent as one line: what it runs, reads or changes, how it ended, and a short diff of each edit. Agents
// announce a call first and send its command, files and output in later updates.
import { widthOf } from '../../tool-command/output/text.ts'
import { shortDiff } from './diff.ts'
import { block, duration, exact, inline, type Paint } from './style.ts'

type Fields = Record<string, unknown>
export type ToolCall = {
  title?: string
  kind?: string
  input?: Fields
  locations?: { path: string }[]
  content?: Fields[]
  output?: unknown
  /** When it was announced, in ms. */
  at: number
  /** Its line is shown. */
  shown: boolean
  /** Its diff was part of a question. */
  diff_shown: boolean
}
type Look = { columns: number; paint: Paint }

const diff_rows = 12
const question_rows = 12
const object = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {}
const string = (value: unknown): string | undefined =>
  typeof value === 'string' && value.trim() !== '' ? value : undefined

const isDiff = ({ type }: Fields): boolean => type === 'diff'

function parsed(input: unknown): Fields | undefined {
  if (typeof input !== 'string') return input === undefined ? undefined : object(input)
  try {
    return object(JSON.parse(input))
  } catch {
    return { input }
  }
}

/** Adds what an event says about a call. Accepts the field names of ACP too, which permission requests keep. */
export function updateCall(call: ToolCall, event: Fields): void {
  const input = parsed(event.input ?? event.rawInput)
  const locations = Array.isArray(event.locations)
    ? event.locations.flatMap((one) => {
        const path = string(object(one).path)
        return path ? [{ path }] : []
      })
    : []
  const content = Array.isArray(event.content) ? event.content.map(object) : []
  const title = string(event.title)
  const kind = string(event.kind)
  const output = event.output ?? event.rawOutput
  if (title) call.title = title
  if (kind) call.kind = kind
  if (input && Object.keys(input).length > 0) call.input = input
  if (locations.length > 0) call.locations = locations
  const diffs = (call.content ?? []).filter(isDiff)
  if (content.length > 0) call.content = content.some(isDiff) ? content : [...diffs, ...content]
  // An agent can do another edit than the one that it asked for.
  if (JSON.stringify(call.content?.filter(isDiff)) !== JSON.stringify(diffs)) call.diff_shown = false
  if (output !== undefined) call.output = output
}

export const createCall = (at: number): ToolCall => ({ at, shown: false, diff_shown: false })

/** Whether there is more to show than the name of the tool. */
export const isKnown = (call: ToolCall): boolean => call.input !== undefined || call.locations !== undefined

const field = (input: Fields, names: string[]): string | undefined => {
  for (const name of names) {
    const value = input[name]
    if (Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === 'string'))
      return commandOf(value as string[])
    const text = string(value)
    if (text) return text
  }
  return undefined
}

/** An argument list as a shell would take it; of `bash -lc SCRIPT` the script. */
function commandOf(words: string[]): string {
  const [program = '', flag = '', script] = words
  if (words.length === 3 && script && /^(.*\/)?(ba|z|da)?sh$/.test(program) && /^-l?c$/.test(flag))
    return script
  return words.map((word) => (/^[\w./:=@%+,-]+$/.test(word) ? word : JSON.stringify(word))).join(' ')
}

const commands = ['command', 'cmd', 'script', 'shell_command']
const paths = ['file_path', 'filePath', 'path', 'absolute_path', 'notebook_path', 'file', 'dir_path']
const queries = ['pattern', 'query', 'regex', 'glob']
const verbs: Record<string, string> = {
  read: 'Read',
  edit: 'Edit',
  delete: 'Delete',
  move: 'Move',
  search: 'Search',
  fetch: 'Fetch',
  think: 'Think',
}

/** Paths in a workspace are shown relative to it. */
const relative = (path: string): string => path.replace(/^\/workspaces\/[^/]+\/(?=.)/, '')

/** Title of a call without the quotes that some agents put around a command. */
const titleOf = ({ title, kind }: ToolCall): string => {
  const text = title ?? kind ?? 'tool'
  return /^`[^`]*`$/.test(text) ? text.slice(1, -1) : text
}

function argumentsOf(input: Fields): string {
  return Object.entries(input)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ')
}

/** What the call does, as one text that may have several lines. */
export function describeCall(call: ToolCall): string {
  const { kind = 'other', input = {}, locations = [], content = [] } = call
  const command = field(input, commands)
  if (kind === 'execute' || (command && kind === 'other')) return `$ ${command ?? titleOf(call)}`
  const changed = content.flatMap((one) => (one.type === 'diff' ? (string(one.path) ?? []) : []))
  const files = new Set([...changed, ...locations.map(({ path }) => path)])
  const file = [...files][0] ?? field(input, paths)
  const verb = verbs[kind]
  if (kind === 'search') {
    const query = field(input, queries)
    if (query) return `Search ${query}${file ? ` in ${relative(file)}` : ''}`
  }
  if (kind === 'fetch') return `Fetch ${field(input, ['url', 'query']) ?? titleOf(call)}`
  if (verb && file) return `${verb} ${relative(file)}${files.size > 1 ? ` and ${files.size - 1} more` : ''}`
  const rest = argumentsOf(input)
  const title = titleOf(call)
  return rest && !title.includes(rest) ? `${title} ${rest}` : title
}

function errorOf({ output, content = [] }: ToolCall): string {
  const raw = object(output)
  const said = content.flatMap((one) => string(object(one.content).text) ?? [])
  const found = [output, raw.error, raw.message, raw.stderr, raw.output, ...said]
  const text = found.map((one) => (typeof one === 'string' ? one : object(one).message)).find(string)
  return typeof text === 'string' ? text.trim() : ''
}

/** Of a command that ended with another code than 0. */
function exitCodeOf({ output }: ToolCall): number | undefined {
  const raw = object(output)
  const found = [raw.exit_code, raw.exitCode, object(raw.metadata).exit, object(raw.metadata).exitCode]
  return found.find((code): code is number => typeof code === 'number')
}

const texts = (input: Fields, names: string[]): string | undefined =>
  names.map((name) => input[name]).find((value): value is string => typeof value === 'string')

/** Agents that report no diff name the texts in the input of the call. */
function editOf({ kind, input = {} }: ToolCall): Fields[] {
  if (kind !== 'edit') return []
  const newText = texts(input, ['new_string', 'newString', 'content', 'file_text'])
  if (newText === undefined) return []
  return [{ path: field(input, paths), oldText: texts(input, ['old_string', 'oldString']), newText }]
}

const diffsOf = (call: ToolCall) => {
  const reported = (call.content ?? []).filter(isDiff)
  return (reported.length > 0 ? reported : editOf(call)).map(({ path, oldText, newText }) => ({
    path: string(path) ?? '',
    ...shortDiff(string(oldText) ?? '', string(newText) ?? '', diff_rows),
  }))
}

/** Of a file that is written as a whole, what it replaces is not known. */
function countsOf(call: ToolCall, { added, removed }: { added: number; removed: number }): string {
  const { content = [], input = {} } = call
  if (content.some(isDiff) || texts(input, ['old_string', 'oldString']) !== undefined)
    return ` +${added} -${removed}`
  return ` · ${added} ${added === 1 ? 'line' : 'lines'}`
}

/** The rows of the edits of a call, below its line. */
export function diffLines(call: ToolCall, { columns, paint }: Look): string[] {
  const diffs = diffsOf(call)
  const lines = diffs.flatMap(({ path, rows, more }) => [
    ...(diffs.length > 1 ? [paint.dim(`  ${inline(relative(path), columns - 2)}`)] : []),
    ...rows.map(({ sign, text }) => {
      const line = `  ${sign} ${exact(text, columns - 4)}`
      return sign === '+' ? paint.green(line) : sign === '-' ? paint.red(line) : paint.dim(line.trimEnd())
    }),
    ...(more > 0 ? [paint.dim(`  … ${more} more ${more === 1 ? 'line' : 'lines'}`)] : []),
  ])
  return lines.slice(0, 3 * diff_rows)
}

const mark = { started: '●', completed: '✓', failed: '✗' }

/** Mark, description and what follows it, in one row. */
function row(sign: string, call: ToolCall, suffix: string, { columns, paint }: Look): string {
  const label = inline(describeCall(call), Math.max(10, columns - 2 - widthOf(suffix)))
  return `${sign} ${label}${paint.dim(suffix)}`
}

export const startedLine = (call: ToolCall, look: Look): string =>
  row(look.paint.cyan(mark.started), call, '', look)

/** For a line that shows what is under way. */
export const runningText = (call: ToolCall, columns: number): string => inline(describeCall(call), columns)

export function endedLines(call: ToolCall, failed: boolean, ended_at: number, look: Look): string[] {
  const { paint, columns } = look
  const code = exitCodeOf(call)
  const bad = failed || (code !== undefined && code !== 0)
  const [diff] = diffsOf(call)
  const counts = diff && !failed ? countsOf(call, diff) : ''
  const exit = code !== undefined && code !== 0 ? ` · exit code ${code}` : ''
  const suffix = `${counts}${exit} · ${duration(ended_at - call.at)}`
  const sign = bad ? paint.red(mark.failed) : paint.green(mark.completed)
  const error = failed ? errorOf(call) : ''
  return [
    row(sign, call, suffix, look),
    ...(error ? [paint.red(`  ${inline(error, columns - 2)}`)] : []),
    ...(failed || call.diff_shown ? [] : diffLines(call, look)),
  ]
}

/** Of a call whose end the agent did not report before its turn ended. */
export const unendedLine = (call: ToolCall, stopped: boolean, at: number, look: Look): string =>
  row(
    stopped ? look.paint.red(mark.failed) : look.paint.cyan(mark.started),
    call,
    ` · ${duration(at - call.at)}`,
    look,
  )

/** The whole call for a question: a command is not clipped to one line. */
export function questionLines(call: ToolCall, asks: string, look: Look): string[] {
  const { paint, columns } = look
  const { lines, more } = block(describeCall(call), columns - 4, question_rows)
  return [
    `${paint.yellow('?')} ${paint.bold(inline(asks, columns - 2))}`,
    ...lines.map((line) => `  ${paint.yellow('│')} ${line}`),
    ...(more > 0 ? [paint.yellow(`  │ … ${more} more ${more === 1 ? 'line' : 'lines'}, not shown`)] : []),
    ...diffLines(call, look),
  ]
}
