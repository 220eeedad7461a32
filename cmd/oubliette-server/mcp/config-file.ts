// Changes one entry of a client's configuration file and leaves everything else in it as it is, comments included.
import {
  chmodSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { applyEdits, modify, type ParseError, parse, printParseErrorCode } from 'jsonc-parser'
import { Fault, messageOf } from '../../../internal/fault.ts'

const name = 'oubliette'
/** Undefined removes the entry. */
type Entry = Record<string, unknown> | undefined

function indentation(text: string) {
  const found = /\n([ \t]+)\S/.exec(text)?.[1] ?? '  '
  return {
    insertSpaces: !found.startsWith('\t'),
    tabSize: found.startsWith('\t') ? 1 : found.length,
    eol: '\n',
  }
}

export function changeJson(text: string, path: string[], entry: Entry): string {
  const source = text.trim() === '' ? '{}\n' : text
  const errors: ParseError[] = []
  const value: unknown = parse(source, errors, { allowTrailingComma: true })
  const [first] = errors
  if (first) {
    const line = source.slice(0, first.offset).split('\n').length
    throw new Fault('invalid', `line ${line}: ${printParseErrorCode(first.error)}`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Fault('invalid', 'is not a JSON object')
  const servers = path.reduce<unknown>(
    (inner, key) => (inner as Record<string, unknown> | undefined)?.[key],
    value,
  )
  if (!entry && (typeof servers !== 'object' || servers === null || !Object.hasOwn(servers, name)))
    return text
  const edits = modify(source, [...path, name], entry, { formattingOptions: indentation(source) })
  return applyEdits(source, edits)
}

const toml = (value: unknown): string =>
  typeof value === 'object' && value !== null
    ? `{ ${Object.entries(value)
        .map(([key, inner]) => `${JSON.stringify(key)} = ${toml(inner)}`)
        .join(', ')} }`
    : JSON.stringify(value)

/** Replaces the table `[mcp_servers.oubliette]` with its sub-tables; TOML has no other way to write it twice. */
export function changeToml(text: string, entry: Entry): string {
  const kept: string[] = []
  let inside = false
  for (const line of text.split('\n')) {
    const header = /^\s*\[+\s*([^\]]+?)\s*\]+/.exec(line)?.[1]?.replaceAll(/["'\s]/g, '')
    if (header !== undefined)
      inside = header === `mcp_servers.${name}` || header.startsWith(`mcp_servers.${name}.`)
    if (!inside) kept.push(line)
  }
  const before = kept.join('\n').trimEnd()
  if (!entry) return before === '' ? '' : `${before}\n`
  const lines = Object.entries(entry).map(([key, value]) => `${key} = ${toml(value)}`)
  return `${before === '' ? '' : `${before}\n\n`}[mcp_servers.${name}]\n${lines.join('\n')}\n`
}

export function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new Fault('unavailable', `cannot read ${file}: ${messageOf(error)}`)
  }
}

export function changed(file: string, text: string, path: string[] | undefined, entry: Entry): string {
  try {
    return path ? changeJson(text, path, entry) : changeToml(text, entry)
  } catch (error) {
    if (!(error instanceof Fault)) throw error
    throw new Fault('invalid', `${file}: ${error.message}`, { hint: 'correct the file, or use --print' })
  }
}

/** The whole file in one step; it holds a token, so others may not read a new one. */
export function replaceFile(file: string, text: string): void {
  try {
    mkdirSync(dirname(file), { recursive: true })
    const exists = readText(file) !== undefined
    // A link to a file elsewhere (dotfiles in a repository) stays a link.
    const target = exists ? realpathSync(file) : file
    const draft = `${target}.oubliette-${process.pid}`
    writeFileSync(draft, text, { mode: 0o600 })
    if (exists) chmodSync(draft, statSync(target).mode & 0o777)
    renameSync(draft, target)
  } catch (error) {
    if (error instanceof Fault) throw error
    throw new Fault('unavailable', `cannot write ${file}: ${messageOf(error)}`)
  }
}
