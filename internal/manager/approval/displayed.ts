// What a droid or an upstream wrote, as it is shown to the person who decides: bounded in size, and without characters that a
// terminal or a browser would not show as they are. Escape sequences, changes of the text direction and invisible characters
// could make one call look like another.

const longestString = 2_000
const longestName = 200
const deepest = 16

/** Everything invisible or formatting except for line feeds and tabs, which JSON and HTML show safely. */
const unsafe = /[^\P{C}\n\t]|[\u2028\u2029\u115f\u1160\u3164\uffa0]/gu

export const safeText = (text: string): string =>
  text.replace(unsafe, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`)

const clipped = (text: string, most: number): string =>
  text.length <= most
    ? safeText(text)
    : `${safeText(text.slice(0, most))}… (${text.length.toLocaleString('en-US')} characters)`

/** A copy that has about `budget` characters as JSON, whatever the size of the value. */
export function displayed(value: unknown, budget = 16_000): unknown {
  let left = budget
  const walk = (given: unknown, depth: number): unknown => {
    if (typeof given === 'string') {
      const text = clipped(given, Math.max(0, Math.min(longestString, left)))
      left -= text.length + 2
      return text
    }
    left -= 5
    if (typeof given !== 'object' || given === null) return given
    if (depth > deepest) return '…'
    if (Array.isArray(given)) {
      const shown: unknown[] = []
      for (const [at, item] of given.entries()) {
        if (left <= 0) return [...shown, `… (${given.length - at} more)`]
        shown.push(walk(item, depth + 1))
      }
      return shown
    }
    const names = Object.keys(given)
    const shown: [string, unknown][] = []
    for (const [at, name] of names.entries()) {
      if (left <= 0) {
        shown.push(['…', `${names.length - at} more`])
        break
      }
      const key = clipped(name, longestName)
      left -= key.length + 3
      shown.push([key, walk((given as Record<string, unknown>)[name], depth + 1)])
    }
    return Object.fromEntries(shown)
  }
  return walk(value, 0)
}

export const displayedObject = (value: Record<string, unknown>, budget?: number): Record<string, unknown> =>
  displayed(value, budget) as Record<string, unknown>
