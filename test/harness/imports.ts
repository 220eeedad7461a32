// What a source file imports, found without a compiler: `import … from`, `export … from`, `import '…'` and `import('…')`.
// Comments and strings are blanked first, so that an example in a comment is no import.

/** The same length: what is blanked leaves spaces, and a string leaves its quotes and its place in `strings`. */
function blank(source: string): { code: string; strings: Map<number, string> } {
  const strings = new Map<number, string>()
  let code = ''
  for (let at = 0; at < source.length; ) {
    const two = source.slice(at, at + 2)
    const one = source[at]!
    if (two === '//' || two === '/*') {
      const end = two === '//' ? source.indexOf('\n', at) : source.indexOf('*/', at + 2) + 2
      const to = end < at + 2 ? source.length : end
      code += ' '.repeat(to - at)
      at = to
    } else if (one === "'" || one === '"') {
      let to = at + 1
      while (to < source.length && source[to] !== one && source[to] !== '\n')
        to += source[to] === '\\' ? 2 : 1
      strings.set(at, source.slice(at + 1, to))
      code += one + ' '.repeat(Math.max(0, to - at - 1)) + one
      at = to + 1
    } else {
      code += one
      at += 1
    }
  }
  return { code, strings }
}

const before = [
  /(?:^|[;}\n])\s*(?:import|export)\b[^'"`;=()]*\bfrom\s*$/, // import … from '…', export … from '…'
  /(?:^|[;}\n])\s*import\s*$/, // import '…'
  /(?<![\w.$])import\s*\(\s*$/, // import('…'), typeof import('…')
]

/** The source without its comments and the contents of its strings. */
export const codeOf = (source: string): string => blank(source).code

export function importsOf(source: string): string[] {
  const { code, strings } = blank(source)
  return [...strings].flatMap(([at, text]) =>
    before.some((pattern) => pattern.test(code.slice(Math.max(0, at - 2000), at))) ? [text] : [],
  )
}
