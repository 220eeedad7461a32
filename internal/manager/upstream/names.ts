// The name under which a droid sees a tool of an upstream: `mcp__<server>__<tool>`. Model APIs accept letters, digits, `_` and
// `-`, at most 64. A name that fits is used as it is; any other is shortened and gets a hash of both names, so that the same
// tool always has the same name and two tools never share one.
import { createHash } from 'node:crypto'

export const prefix = 'mcp__'
const longest = 64
const hashLength = 12
const allowed = /^[A-Za-z0-9_-]+$/
/** What a generated name ends in: a tool whose own name looks like this gets a hash too. */
const looksHashed = new RegExp(`_[0-9a-f]{${hashLength}}$`)

const safe = (name: string): string => name.replace(/[^A-Za-z0-9_-]+/g, '_').replace(/_{2,}/g, '_')

/** `a__b` with `c` and `a` with `b__c` would be the same name; so would `a_` with `b` and `a` with `_b`. */
const isPlain = (server: string, tool: string): boolean =>
  allowed.test(server) &&
  allowed.test(tool) &&
  !server.includes('__') &&
  !server.endsWith('_') &&
  !tool.startsWith('_') &&
  !looksHashed.test(tool)

export function visibleName(server: string, tool: string): string {
  const whole = `${prefix}${server}__${tool}`
  if (isPlain(server, tool) && whole.length <= longest) return whole
  const hash = createHash('sha256')
    .update(JSON.stringify([server, tool]))
    .digest('hex')
    .slice(0, hashLength)
  const shortServer =
    safe(server)
      .replace(/^_+|_+$/g, '')
      .slice(0, 20) || 'server'
  const start = `${prefix}${shortServer}__`
  const shortTool = safe(tool)
    .replace(/^_+/, '')
    .slice(0, longest - start.length - hashLength - 1)
  return `${start}${shortTool}_${hash}`
}

/** `*` matches any characters; used by allow and deny lists. */
export function matches(pattern: string, name: string): boolean {
  const parts = pattern.split('*')
  if (parts.length === 1) return pattern === name
  const [first = ''] = parts
  const last = parts.at(-1)!
  if (name.length < first.length + last.length || !name.startsWith(first) || !name.endsWith(last))
    return false
  let at = first.length
  const end = name.length - last.length
  for (const part of parts.slice(1, -1)) {
    const found = name.indexOf(part, at)
    if (found < 0 || found + part.length > end) return false
    at = found + part.length
  }
  return true
}

/** With an allow list only its names; the deny list always applies. */
export const isAllowed = (
  { allow, deny }: { allow?: readonly string[]; deny?: readonly string[] },
  tool: string,
): boolean =>
  (allow === undefined || allow.some((pattern) => matches(pattern, tool))) &&
  !(deny ?? []).some((pattern) => matches(pattern, tool))
