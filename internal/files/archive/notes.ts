/** Entries of a tree or an archive that were left out. The first of them are kept with their reason. */
export type Skipped = { count: number; entries: { path: string; reason: string }[] }

const kept = 20
const pathCharacters = 200

export function createSkipped() {
  const skipped: Skipped = { count: 0, entries: [] }
  return {
    add(path: string, reason: string): void {
      skipped.count += 1
      if (skipped.entries.length < kept)
        skipped.entries.push({ path: path.slice(0, pathCharacters).toWellFormed(), reason })
    },
    result: (): Skipped => skipped,
  }
}
