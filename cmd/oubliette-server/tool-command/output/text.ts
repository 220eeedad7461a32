// Text for a terminal: its width, cells of a table, ages, short ids, colours, YAML.

const wide =
  /[\u1100-\u115f\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{16fe0}-\u{18cff}\u{1b000}-\u{1b2ff}\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u
const narrow = /[\p{M}\p{Cf}]/u
/** Asks for the wide form of the character before it. */
const emojiForm = '\ufe0f'

const widthOfCharacter = (character: string): number =>
  character === emojiForm ? 1 : narrow.test(character) ? 0 : wide.test(character) ? 2 : 1

/**
 * The number of columns that a text without control characters takes, and at most that where terminals differ: one that does
 * not join a sequence of emoji shows all of them.
 */
export const widthOf = (text: string): number => {
  let width = 0
  for (const character of text) width += widthOfCharacter(character)
  return width
}

export function clip(text: string, width: number): string {
  if (widthOf(text) <= width) return text
  let clipped = ''
  let used = 1
  for (const character of text) {
    used += widthOfCharacter(character)
    if (used > width) break
    clipped += character
  }
  // Nothing may be joined to the ellipsis.
  return `${clipped.replace(/[\u200d\ufe0f]+$/, '')}…`
}

const sequences =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it finds.
  /\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?/g
/** Characters that reverse the order of the text around them. */
const bidi = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** Without escape sequences and control characters other than line feed and tab. Takes linear time, unlike Node's function. */
export const withoutControls = (text: string): string =>
  text
    .replaceAll(sequences, '')
    .replaceAll(/\r\n?/g, '\n')
    .replaceAll(/[^\P{Cc}\n\t]/gu, '')

/** One line, without control characters: what a container or a tenant wrote must not control the terminal. */
export const oneLine = (text: string): string =>
  withoutControls(text).replaceAll(bidi, '').replaceAll(/\s+/g, ' ').trim()

type Out = { isTTY?: boolean; columns?: number }

/** The width of the terminal; `COLUMNS` overrides it, 80 if it is unknown. */
export function columnsOf(out: Out = process.stdout, env: NodeJS.ProcessEnv = process.env): number {
  const given = Number(env.COLUMNS)
  return Number.isInteger(given) && given > 0 ? given : out.columns || 80
}

/** As Node does: `FORCE_COLOR` decides, then `NO_COLOR`, then the terminal. */
export function hasColours(out: Out = process.stdout, env: NodeJS.ProcessEnv = process.env): boolean {
  if (env.FORCE_COLOR !== undefined) return !['0', 'false'].includes(env.FORCE_COLOR)
  return out.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb'
}

const units: [seconds: number, unit: string][] = [
  [365 * 86_400, 'y'],
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'm'],
]
function span(seconds: number): string {
  const [size, unit] = units.find(([least]) => seconds >= least) ?? [1, 's']
  return `${Math.floor(seconds / size)}${unit}`
}

/** The time since an ISO time: `3m`; for a time to come, `in 3m`. */
export function age(time: string, now_ms = Date.now()): string {
  const seconds = (now_ms - Date.parse(time)) / 1000
  if (Number.isNaN(seconds)) return time
  return seconds < -1 ? `in ${span(-seconds)}` : span(Math.max(0, seconds))
}

/** The first eight characters of a UUID, or of what follows the prefix of an id. */
export function shortId(id: string): string {
  if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(id)) return id.slice(0, 8)
  const [, prefix = '', rest = ''] = /^([a-z]+_)([0-9a-z]{12,40})$/.exec(id) ?? []
  return prefix ? `${prefix}${rest.slice(0, 8)}` : id
}

const statusColours: Record<string, number> = {
  running: 32,
  success: 32,
  active: 32,
  completed: 2,
  absent: 2,
  stopped: 2,
  cancelled: 2,
  failed: 31,
  error: 31,
  waiting: 33,
  queued: 33,
  pending: 33,
}
export const coloured = (status: string): string => {
  const code = statusColours[status.trim()]
  return code === undefined ? status : `\x1b[${code}m${status}\x1b[0m`
}

const isPlainYaml = (text: string): boolean =>
  /^[A-Za-z_/][\w ./@+-]*$/.test(text) &&
  !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text) &&
  !/\s$/.test(text)

/** Block style; every string that YAML could read as something else is quoted as in JSON. */
export function yaml(value: unknown, indent = ''): string {
  const isEmpty = typeof value !== 'object' || value === null || Object.keys(value).length === 0
  if (isEmpty)
    return typeof value === 'string' && isPlainYaml(value) ? value : (JSON.stringify(value) ?? 'null')
  const lines = Array.isArray(value)
    ? value.map((item) => `- ${yaml(item, `${indent}  `).trimStart()}`)
    : Object.entries(value as object)
        .filter(([, item]) => item !== undefined)
        .map(([key, item]) => {
          const body = yaml(item, Array.isArray(item) ? indent : `${indent}  `)
          const nested = typeof item === 'object' && item !== null && Object.keys(item).length > 0
          return `${isPlainYaml(key) ? key : JSON.stringify(key)}:${nested ? `\n${body}` : ` ${body}`}`
        })
  return lines.map((line) => `${indent}${line}`).join('\n')
}
