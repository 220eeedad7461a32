// What a JSON text costs to parse and to walk, found before it is parsed: an empty array is two characters of text and
// some fifty bytes of memory, and eight megabytes of them hold the event loop for seconds.

export const jsonBounds = { depth: 128, values: 40_000 } as const

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

export type Measure = {
  depth: number
  /** Arrays and objects. */
  things: number
  /** Places in them, but one of each. */
  commas: number
}

/** What is outside of strings. Ends early when `most` values were seen: what comes after them does not matter any more. */
export function measureJson(text: string, most: number = Number.POSITIVE_INFINITY): Measure {
  let depth = 0
  let deepest = 0
  let things = 0
  let commas = 0
  for (let at = 0; at < text.length && things + commas <= most; at++) {
    const unit = text.charCodeAt(at)
    if (unit === quote) at = endOfString(text, at + 1)
    else if (unit === comma) commas++
    else if (unit === 0x5b || unit === 0x7b) {
      things++
      depth++
      if (depth > deepest) deepest = depth
    } else if (unit === 0x5d || unit === 0x7d) depth--
  }
  return { depth: deepest, things, commas }
}

/** In words, as what "the text …" does; nothing if it is within the bounds. */
export function problemOf(
  { depth, things, commas }: Measure,
  values: number = jsonBounds.values,
): string | undefined {
  if (depth > jsonBounds.depth) return `nests deeper than ${jsonBounds.depth} levels`
  if (things + commas > values) return `holds more than ${values} values`
  return undefined
}

export const jsonProblem = (text: string): string | undefined =>
  text.length <= jsonBounds.depth ? undefined : problemOf(measureJson(text, jsonBounds.values))
