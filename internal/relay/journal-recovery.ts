// Reading a segment back after a death: whole lines with the right numbers count, what follows them is cut off.
import { readFileSync, truncateSync } from 'node:fs'

function seqOf(line: string): unknown {
  try {
    return (JSON.parse(line) as { seq?: unknown } | null)?.seq
  } catch {
    return undefined
  }
}

export function recoverSegment(path: string, first: number) {
  const bytes = readFileSync(path)
  let good = 0
  let count = 0
  for (;;) {
    const end = bytes.indexOf(0x0a, good)
    if (end === -1 || seqOf(bytes.toString('utf8', good, end)) !== first + count) break
    good = end + 1
    count++
  }
  if (good < bytes.length) truncateSync(path, good)
  return { first, count, bytes: good, path }
}
