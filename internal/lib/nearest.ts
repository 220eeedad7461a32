/** Longer words are compared by their beginnings: the work is bounded by this and by the number of known words. */
const longest = 40

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    row = next
  }
  return row[b.length]!
}

/** The known words that are close to a misspelt one, the nearest first. */
export function nearest(word: string, known: readonly string[], most = 1): string[] {
  const given = word.slice(0, longest).toLowerCase()
  const farthest = Math.max(1, Math.floor(given.length / 3) + 1)
  const farOf = (text: string): number => {
    const candidate = text.slice(0, longest).toLowerCase()
    if (candidate.startsWith(given)) return 1
    if (given.length >= 3 && candidate.includes(given)) return 2
    return Math.abs(candidate.length - given.length) > farthest
      ? Number.POSITIVE_INFINITY
      : distance(given, candidate)
  }
  return [...new Set(known)]
    .map((candidate) => ({ candidate, far: farOf(candidate) }))
    .filter(({ far }) => far <= farthest)
    .sort((a, b) => a.far - b.far)
    .slice(0, most)
    .map(({ candidate }) => candidate)
}

/** The hint of an error about an unknown word; empty if nothing is close. */
export function didYouMean(word: string, known: readonly string[], most = 3): { hint?: string } {
  const near = nearest(word, known, most).map((name) => `"${name}"`)
  return near.length === 0 ? {} : { hint: `did you mean ${near.join(' or ')}?` }
}
