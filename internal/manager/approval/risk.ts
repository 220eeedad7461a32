// What a tool may do, by its annotations and its name. Annotations are claims of the server that offers the tool: those of a
// server that is not trusted can raise the risk and never lower it.

/**
 * `read`: changes nothing. `write`: changes things, destroys nothing. `unstated`: no annotation says so, which in MCP means
 * that it may be destructive. `dangerous`: destructive, or a name that says so.
 */
export type Risk = 'read' | 'write' | 'unstated' | 'dangerous'

/** Matched as a prefix or a suffix of a word: `deleted`, `executeCode`, `overwrite`. */
const stems = ['write', 'delete', 'remove', 'execut', 'shell', 'command', 'evaluat', 'create', 'update']
/** Other forms, and short words that are part of too many others to be a stem. */
const words = new Set(
  `exec execs run runs running eval evals rm rmdir unlink del cmd cmds sh bash zsh powershell sudo kill drop truncate destroy
  erase purge wipe overwrite written writing deleting deletion removing removal creating creation updating upsert insert`.split(
    /\s+/,
  ),
)
const longestName = 1_000

/** `executeCode`, `run_query`, `RUNQuery`, `files.delete2` in words of lower case. */
const wordsOf = (name: string): string[] =>
  (name.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g) ?? []).map((word) => word.toLowerCase())

/** A name that cannot be read counts as dangerous: look-alike letters would hide a word. */
export function isDangerousName(name: string): boolean {
  const plain = name.length <= longestName ? name.normalize('NFKC') : ''
  if (!/^[\x20-\x7e]+$/.test(plain)) return true
  return wordsOf(plain).some(
    (word) => words.has(word) || stems.some((stem) => word.startsWith(stem) || word.endsWith(stem)),
  )
}

export function riskOf(
  { name, annotations = {} }: { name: string; annotations?: Record<string, unknown> | undefined },
  trusted: boolean,
): Risk {
  const { readOnlyHint, destructiveHint } = annotations
  if (destructiveHint === true) return 'dangerous'
  if (trusted && readOnlyHint === true) return 'read'
  if (trusted && destructiveHint === false) return 'write'
  return isDangerousName(name) ? 'dangerous' : 'unstated'
}
