// The pin of a tool: a hash of everything that a model or a policy reads of its definition, and of the name of the server. A
// tool whose pin changes is a different tool. The version of the server is not part of it: an upgrade that leaves a definition
// as it is needs no new approval.
import { canonicalJson, hashOf } from '../../../lib/canonical-json.ts'
import type { HiddenCharacter } from '../../../store/rows/upstream/tables.ts'
import type { UpstreamTool } from '../../../upstream/upstream.ts'

const pinned = ['name', 'title', 'description', 'inputSchema', 'outputSchema', 'annotations'] as const

export function pinOf(tool: UpstreamTool, identity: { name: string }): string {
  const parts = Object.fromEntries(pinned.map((field) => [field, tool[field]]))
  return hashOf({ ...parts, server: identity.name })
}

type Change = { field: string; before: unknown; after: unknown }

/** The pinned fields that differ, schemas by property. */
export function differences(before: Record<string, unknown>, after: Record<string, unknown>): Change[] {
  const changes: Change[] = []
  const compare = (field: string, one: unknown, other: unknown, depth: number) => {
    if (canonicalJson(one ?? null) === canonicalJson(other ?? null)) return
    const objects = [one, other].every(
      (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
    )
    if (!objects || depth === 0)
      return void changes.push({ field, before: one ?? null, after: other ?? null })
    const left = one as Record<string, unknown>
    const right = other as Record<string, unknown>
    for (const key of new Set([...Object.keys(left), ...Object.keys(right)]))
      compare(`${field}.${key}`, left[key], right[key], depth - 1)
  }
  for (const field of pinned) compare(field, before[field], after[field], 3)
  return changes
}

const named: [name: string, first: number, last: number][] = [
  ['soft hyphen', 0xad, 0xad],
  ['combining grapheme joiner', 0x34f, 0x34f],
  ['Arabic letter mark', 0x61c, 0x61c],
  ['Hangul filler', 0x115f, 0x1160],
  ['Mongolian vowel separator', 0x180b, 0x180f],
  ['zero-width character', 0x200b, 0x200d],
  ['bidirectional mark', 0x200e, 0x200f],
  ['line or paragraph separator', 0x2028, 0x2029],
  ['bidirectional control', 0x202a, 0x202e],
  ['invisible operator', 0x2060, 0x2064],
  ['bidirectional isolate', 0x2066, 0x206f],
  ['Hangul filler', 0x3164, 0x3164],
  ['variation selector', 0xfe00, 0xfe0e],
  ['zero-width no-break space', 0xfeff, 0xfeff],
  ['Hangul filler', 0xffa0, 0xffa0],
  ['interlinear annotation', 0xfff9, 0xfffb],
  ['tag character', 0xe0000, 0xe007f],
  ['variation selector', 0xe0100, 0xe01ef],
]
const isControl = (code: number) =>
  (code < 0x20 && code !== 0x09 && code !== 0x0a && code !== 0x0d) || (code >= 0x7f && code < 0xa0)
const nameOf = (code: number): string | undefined =>
  isControl(code) ? 'control character' : named.find(([, first, last]) => code >= first && code <= last)?.[0]

// Most text is plain ASCII: one pass by a regular expression decides that.
const plain = /^[ -~\t\n\r]*$/
const mostReported = 50

/** Characters that a reader of the definition does not see and a model does. */
export function hiddenCharacters(tool: UpstreamTool): HiddenCharacter[] {
  const found = new Map<string, HiddenCharacter>()
  const look = (path: string, text: string) => {
    if (plain.test(text)) return
    let before = ''
    for (const character of text) {
      const code = character.codePointAt(0)!
      const isJoiner = code === 0x200d && /\p{Extended_Pictographic}|\p{Emoji_Modifier}|\ufe0f/u.test(before)
      const name = isJoiner ? undefined : nameOf(code)
      before = character
      if (name === undefined) continue
      const code_point = `U+${code.toString(16).toUpperCase().padStart(4, '0')}`
      const key = `${path} ${code_point}`
      const same = found.get(key)
      if (same) same.count += 1
      else if (found.size < mostReported) found.set(key, { path, code_point, name, count: 1 })
    }
  }
  const walk = (path: string, value: unknown) => {
    if (typeof value === 'string') look(path, value)
    else if (typeof value === 'object' && value !== null)
      for (const [key, inner] of Object.entries(value)) {
        look(`${path} (name of a field)`, key)
        walk(path === '' ? key : `${path}.${key}`.slice(0, 200), inner)
      }
  }
  walk('', Object.fromEntries(pinned.map((field) => [field, tool[field]])))
  return [...found.values()]
}

const wordsOf = (text: unknown): Set<string> =>
  new Set(
    String(text ?? '')
      .slice(0, 4000)
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [],
  )
const shared = (one: Set<string>, other: Set<string>): number => {
  if (one.size === 0 && other.size === 0) return 0
  const both = [...one].filter((word) => other.has(word)).length
  return both / (one.size + other.size - both)
}
const propertiesOf = (tool: Record<string, unknown>): Set<string> =>
  new Set(Object.keys(((tool.inputSchema ?? {}) as { properties?: object }).properties ?? {}))

/** Whether a new tool is likely a vanished one under another name: a pin by name would not notice that. */
export function resembles(vanished: Record<string, unknown>, tool: UpstreamTool): boolean {
  const schema = canonicalJson(vanished.inputSchema) === canonicalJson(tool.inputSchema)
  const names = shared(
    wordsOf(String(vanished.name).replace(/_/g, ' ')),
    wordsOf(tool.name.replace(/_/g, ' ')),
  )
  const texts = shared(wordsOf(vanished.description), wordsOf(tool.description))
  const parameters = schema ? 1 : shared(propertiesOf(vanished), propertiesOf(tool))
  // Many tools take no parameters, or one of a usual name: equal schemas alone mean little.
  return texts >= 0.6 || (parameters >= 0.5 && (names >= 0.5 || texts >= 0.3))
}
