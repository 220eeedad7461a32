// A short diff of an edit: the changed lines with one line around them, at most so many rows.

export type DiffRow = { sign: '+' | '-' | ' ' | '⋯'; text: string }
export type ShortDiff = { added: number; removed: number; rows: DiffRow[]; more: number }

/** Larger changes are shown as lines that were removed and lines that were added, without a search for the shortest diff. */
const most_cells = 250_000
const around = 1

const linesOf = (text: string): string[] => {
  if (text === '') return []
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines
}

/** The longest common subsequence, as a table of its lengths, and the steps along it. */
function shortest(before: string[], after: string[]): DiffRow[] {
  const width = after.length + 1
  const lengths = new Uint32Array((before.length + 1) * width)
  for (let i = before.length - 1; i >= 0; i--)
    for (let j = after.length - 1; j >= 0; j--)
      lengths[i * width + j] =
        before[i] === after[j]
          ? lengths[(i + 1) * width + j + 1]! + 1
          : Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!)
  const rows: DiffRow[] = []
  let i = 0
  let j = 0
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      rows.push({ sign: ' ', text: before[i]! })
      i++
      j++
    } else if (
      j >= after.length ||
      (i < before.length && lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!)
    )
      rows.push({ sign: '-', text: before[i++]! })
    else rows.push({ sign: '+', text: after[j++]! })
  }
  return rows
}

const changed = (before: string[], after: string[]): DiffRow[] =>
  before.length * after.length <= most_cells
    ? shortest(before, after)
    : [
        ...before.map((text): DiffRow => ({ sign: '-', text })),
        ...after.map((text): DiffRow => ({ sign: '+', text })),
      ]

/** Leaves out unchanged lines that are not next to a change. */
function condensed(rows: DiffRow[]): DiffRow[] {
  const near = rows.map((_, at) =>
    rows.slice(Math.max(0, at - around), at + around + 1).some(({ sign }) => sign !== ' '),
  )
  const kept: DiffRow[] = []
  rows.forEach((row, at) => {
    if (near[at]) kept.push(row)
    else if (kept.length > 0 && near[at - 1] && near.includes(true, at)) kept.push({ sign: '⋯', text: '' })
  })
  return kept
}

export function shortDiff(old_text: string, new_text: string, most_rows: number): ShortDiff {
  const before = linesOf(old_text)
  const after = linesOf(new_text)
  let start = 0
  while (start < before.length && start < after.length && before[start] === after[start]) start++
  let end = 0
  while (
    end < before.length - start &&
    end < after.length - start &&
    before.at(-1 - end) === after.at(-1 - end)
  )
    end++
  const context = (lines: string[]) => lines.map((text): DiffRow => ({ sign: ' ', text }))
  const middle = changed(before.slice(start, before.length - end), after.slice(start, after.length - end))
  const rows = condensed([
    ...context(before.slice(Math.max(0, start - around), start)),
    ...middle,
    ...context(before.slice(before.length - end, before.length - end + around)),
  ])
  const count = (sign: string) => middle.filter((row) => row.sign === sign).length
  return {
    added: count('+'),
    removed: count('-'),
    rows: rows.slice(0, most_rows),
    more: Math.max(0, rows.length - most_rows),
  }
}
