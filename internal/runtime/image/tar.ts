// A tar archive of a few small files, in memory: what a build context is. Times are zero and owners root, so that
// the same files are the same bytes and the engine's build cache recognises them.

export type TarFile = { path: string; data: Buffer; executable: boolean }

const block = 512

function header(file: TarFile): Buffer {
  if (Buffer.byteLength(file.path) > 100)
    throw new RangeError(`path too long for a build context: ${file.path}`)
  const head = Buffer.alloc(block)
  const octal = (value: number, at: number, width: number) =>
    head.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, 'latin1')
  head.write(file.path, 0, 'utf8')
  octal(file.executable ? 0o755 : 0o644, 100, 8)
  octal(0, 108, 8)
  octal(0, 116, 8)
  octal(file.data.length, 124, 12)
  octal(0, 136, 12)
  head.write('0', 156, 'latin1')
  head.write('ustar\x0000', 257, 'latin1')
  // The checksum is taken with its own field full of spaces.
  head.fill(' ', 148, 156)
  const sum = head.reduce((total, byte) => total + byte, 0)
  head.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return head
}

export function tar(files: TarFile[]): Buffer {
  const parts = files.flatMap((file) => [
    header(file),
    file.data,
    Buffer.alloc((block - (file.data.length % block)) % block),
  ])
  return Buffer.concat([...parts, Buffer.alloc(2 * block)])
}
