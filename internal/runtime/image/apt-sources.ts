// Finds the mirror of the machine's distribution in its apt sources, in both formats, among sources of other vendors. Pure.

export type AptSource = {
  uri: string
  suite: string
  components: string[]
  /** A keyring's path. A key written into the sources file itself is left to apt's default keyrings. */
  signed_by?: string
}
export type SourceFile = { path: string; text: string }

function parseOneLine(text: string): AptSource[] {
  return text.split('\n').flatMap((line) => {
    const match = /^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)/.exec(line)
    if (!match) return []
    const [, options = '', uri, suite, components = ''] = match
    const signed_by = /(?:^|\s)signed-by=(\S+)/i.exec(options)?.[1]
    return [
      {
        uri: uri!,
        suite: suite!,
        components: components.split(/\s+/).filter(Boolean),
        ...(signed_by?.startsWith('/') ? { signed_by } : {}),
      },
    ]
  })
}

function parseStanza(stanza: string): AptSource[] {
  const fields = new Map<string, string>()
  let last: string | undefined
  for (const line of stanza.split('\n')) {
    if (line.startsWith('#')) continue
    const field = /^([A-Za-z-]+)\s*:\s*(.*)$/.exec(line)
    if (field) {
      last = field[1]!.toLowerCase()
      fields.set(last, field[2]!)
    } else if (last && /^\s/.test(line)) fields.set(last, `${fields.get(last)}\n${line}`)
  }
  const words = (name: string) => (fields.get(name) ?? '').split(/\s+/).filter(Boolean)
  if (/^(no|false|off|0)$/i.test(fields.get('enabled')?.trim() ?? 'yes')) return []
  if (!words('types').includes('deb')) return []
  const signed_by = fields.get('signed-by')?.trim()
  return words('uris').flatMap((uri) =>
    words('suites').map((suite) => ({
      uri,
      suite,
      components: words('components'),
      ...(signed_by?.startsWith('/') ? { signed_by: signed_by.split(/\s/)[0]! } : {}),
    })),
  )
}

export function parseAptSources(files: SourceFile[]): AptSource[] {
  return files.flatMap(({ path, text }) =>
    path.endsWith('.sources') ? text.split(/\n\s*\n/).flatMap(parseStanza) : parseOneLine(text),
  )
}

const trimmed = (uri: string) => uri.replace(/\/+$/, '')

/**
 * The distribution's own entries: its main suite first, then updates and security of the same release. Vendors also
 * use a release's code name as their suite, so several weak signs are added up; none of them is a host name, because
 * a company's mirror can have any.
 */
export function distributionSources(
  sources: AptSource[],
  distribution: { id: string; codename: string },
): AptSource[] {
  const { id, codename } = distribution
  const usable = sources.filter(
    ({ uri, components }) => /^https?:\/\//.test(uri) && components.includes('main'),
  )
  const score = (source: AptSource) => {
    const companion = usable.some(
      ({ uri, suite }) => trimmed(uri) === trimmed(source.uri) && suite === `${codename}-updates`,
    )
    return (
      (companion ? 4 : 0) +
      (source.signed_by?.includes(`${id}-archive-keyring`) ? 4 : 0) +
      (trimmed(source.uri).endsWith(`/${id}`) ? 2 : 0) +
      (source.signed_by ? 0 : 1)
    )
  }
  const main = usable
    .filter(({ suite }) => suite === codename)
    .reduce<AptSource | undefined>(
      (best, next) => (best && score(best) >= score(next) ? best : next),
      undefined,
    )
  if (!main) return []
  const updates = usable.find(
    ({ uri, suite }) => suite === `${codename}-updates` && trimmed(uri) === trimmed(main.uri),
  )
  const security = usable
    .filter(({ suite }) => suite === `${codename}-security`)
    .reduce<AptSource | undefined>(
      (best, next) => (best && score(best) >= score(next) ? best : next),
      undefined,
    )
  return [main, updates, security].filter((source) => source !== undefined)
}

export function formatAptSource({ uri, suite, components, signed_by }: AptSource): string {
  return `deb ${signed_by ? `[signed-by=${signed_by}] ` : ''}${uri} ${suite} ${components.join(' ')}`
}

export function parseOsRelease(text: string): { id: string; codename: string } | undefined {
  const value = (name: string) => new RegExp(`^${name}="?([^"\\n]*)"?$`, 'm').exec(text)?.[1]
  const id = value('ID')
  const codename = value('VERSION_CODENAME')
  return id && codename ? { id, codename } : undefined
}
