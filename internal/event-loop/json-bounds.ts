// Estimates what it costs to parse and walk a JSON text, before parsing it: an empty array is two characters of text and about
// fifty bytes of memory, and eight megabytes of them block the event loop for seconds.

export const jsonBounds = { depth: 128, values: 40_000 } as const

const quote = 0x22
const comma = 0x2c
const backslash = 0x5c

/** The index of the closing quote of the string that begins before `from`. */
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
  containers: number
  /** Elements of them, not counting the first of each. */
  commas: number
}

/** Counts structure outside of strings. Stops early after `most` values. */
export function measureJson(text: string, most: number = Number.POSITIVE_INFINITY): Measure {
  let depth = 0
  let deepest = 0
  let containers = 0
  let commas = 0
  for (let at = 0; at < text.length && containers + commas <= most; at++) {
    const unit = text.charCodeAt(at)
    if (unit === quote) at = endOfString(text, at + 1)
    else if (unit === comma) commas++
    else if (unit === 0x5b || unit === 0x7b) {
      containers++
      depth++
      if (depth > deepest) deepest = depth
    } else if (unit === 0x5d || unit === 0x7d) depth--
  }
  return { depth: deepest, containers, commas }
}

/** Completes the sentence "the text …"; undefined if the text is within the bounds. */
export function problemOf(
  { depth, containers, commas }: Measure,
  values: number = jsonBounds.values,
): string | undefined {
  if (depth > jsonBounds.depth) return `is nested deeper than ${jsonBounds.depth} levels`
  if (containers + commas > values) return `has more than ${values} values`
  return undefined
}

export const jsonProblem = (text: string): string | undefined =>
  text.length <= jsonBounds.depth ? undefined : problemOf(measureJson(text, jsonBounds.values))
