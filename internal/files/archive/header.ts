// Headers of tar archives in the POSIX format: what does not fit into a header is written as extended attributes before it.
// Written by hand, so that an archive can be produced at the pace of its reader.

export type EntryHeader = {
  name: string
  type: 'file' | 'directory' | 'symlink'
  mode: number
  size: number
  mtime_seconds: number
  linkname?: string
}

const block = 512
const nameBytes = 100
const mostOctal = 0o77777777777
const flags = { file: '0', directory: '5', symlink: '2', extended: 'x' }

export const paddingOf = (size: number): Buffer => Buffer.alloc((block - (size % block)) % block)
export const endOfArchive = Buffer.alloc(2 * block)

const isPlain = (text: string) => Buffer.byteLength(text) <= nameBytes && /^[\x20-\x7e]*$/.test(text)

/** `length key=value\n`, where the length counts itself. */
function record(key: string, value: string): string {
  const rest = Buffer.byteLength(` ${key}=${value}\n`)
  let length = rest + String(rest).length
  if (String(length).length > String(rest).length) length = rest + String(length).length
  return `${length} ${key}=${value}\n`
}

function fields(entry: Omit<EntryHeader, 'type'>, flag: string): Buffer {
  const header = Buffer.alloc(block)
  const octal = (value: number, at: number, digits: number) =>
    header.write(`${value.toString(8).padStart(digits, '0').slice(-digits)}\0`, at, 'latin1')
  header.write(entry.name.slice(0, nameBytes), 0, nameBytes, 'latin1')
  octal(entry.mode, 100, 7)
  octal(0, 108, 7)
  octal(0, 116, 7)
  octal(Math.min(entry.size, mostOctal), 124, 11)
  octal(entry.mtime_seconds, 136, 11)
  header.write(flag, 156, 'latin1')
  header.write((entry.linkname ?? '').slice(0, nameBytes), 157, nameBytes, 'latin1')
  header.write('ustar\x0000', 257, 'latin1')
  // The checksum counts itself as spaces.
  header.fill(0x20, 148, 156)
  let sum = 0
  for (const byte of header) sum += byte
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return header
}

export function headerOf(entry: EntryHeader): Buffer {
  const extended = [
    ...(isPlain(entry.name) ? [] : [record('path', entry.name)]),
    ...(isPlain(entry.linkname ?? '') ? [] : [record('linkpath', entry.linkname!)]),
    ...(entry.size > mostOctal ? [record('size', String(entry.size))] : []),
  ].join('')
  const mtime_seconds = Math.max(0, Math.min(mostOctal, Math.floor(entry.mtime_seconds) || 0))
  const main = fields({ ...entry, mtime_seconds }, flags[entry.type])
  if (extended === '') return main
  const bytes = Buffer.from(extended)
  const before = fields({ name: 'PaxHeader', mode: 0o644, size: bytes.length, mtime_seconds }, flags.extended)
  return Buffer.concat([before, bytes, paddingOf(bytes.length), main])
}
