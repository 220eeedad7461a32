// What a JSON text costs to parse and to walk, found before it is parsed: an empty array is two characters of text and
// some fifty bytes of memory, and eight megabytes of them hold the event loop for seconds.

export const jsonBounds = { depth: 128, values: 50_000 } as const

const quote = 0x22
const comma = 0x2c
const backslash = 0x5c

/** The place of the quote that ends the string which begins before `from`. */
function endOfString(text: string, from: number): number {
  for (let at = text.indexOf('"', from); at !== -1; at = text.indexOf('"', at + 1)) {
    let first = at
    while (text.charCodeAt(first - 1) === backslash) first--
    if ((at - first) % 2 === 0) return at
  }
  return text.length
}

/** How deep it nests, and how many commas and brackets it has outside of strings. */
export function measureJson(text: string): { depth: number; values: number } {
  let depth = 0
  let deepest = 0
  let values = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === quote) at = endOfString(text, at + 1)
    else if (unit === comma) values++
    else if (unit === 0x5b || unit === 0x7b) {
      values++
      depth++
      if (depth > deepest) deepest = depth
    } else if (unit === 0x5d || unit === 0x7d) depth--
  }
  return { depth: deepest, values }
}

/** In words, as what "the text …" does; nothing if it is within the bounds. */
export function jsonProblem(text: string): string | undefined {
  if (text.length <= jsonBounds.depth) return undefined
  const { depth, values } = measureJson(text)
  if (depth > jsonBounds.depth) return `nests deeper than ${jsonBounds.depth} levels`
  if (values > jsonBounds.values) return `holds more than ${jsonBounds.values} values`
  return undefined
}
