import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { type Header, pack } from 'tar-stream'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openDirectory, statOf } from '../handles.ts'
import { componentsOf, type ExtractOptions, extractTree } from './extract.ts'
import { packTree } from './pack.ts'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'archive-'))
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

const make = (...parts: string[]) => {
  const path = join(root, ...parts)
  mkdirSync(path, { recursive: true })
  return path
}
async function packed(path: string, top = 'top') {
  const stats = (await statOf(path))!
  const packing = packTree({ path, stats }, top, { one_file_system: true })
  return { tar: await buffer(packing.stream), ...packing.packed() }
}
async function* inPieces(bytes: Uint8Array, size = 1000) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}
async function extracted(bytes: Uint8Array, into: string, options: ExtractOptions = {}) {
  const base = await openDirectory(into)
  try {
    return await extractTree(inPieces(bytes), base, options)
  } finally {
    await base.close()
  }
}
type Entry = Partial<Header> & { name: string; content?: string }
async function tarOf(entries: Entry[]): Promise<Buffer> {
  const tar = pack()
  for (const { content = '', ...header } of entries) tar.entry(header, content)
  tar.finalize()
  return await buffer(tar)
}

const long = `${'deep/'.repeat(30)}größe-${'x'.repeat(150)} 😀.txt`

test('a tree survives, and other programs read the archive', async () => {
  const from = make('from')
  make('from', ...long.split('/').slice(0, -1))
  make('from', 'empty')
  writeFileSync(join(from, long), 'long name')
  writeFileSync(join(from, 'run.sh'), '#!/bin/sh\n')
  chmodSync(join(from, 'run.sh'), 0o4755)
  writeFileSync(join(from, 'big'), Buffer.alloc(700_001, 'b'))
  utimesSync(join(from, 'big'), 1_000_000_000, 1_000_000_000)
  writeFileSync(join(from, 'nothing'), '')
  symlinkSync(`to/${'y'.repeat(200)}`, join(from, 'link'))
  execFileSync('mkfifo', [join(from, 'pipe')])
  writeFileSync(Buffer.from(`${from}/\xff\xfe`, 'latin1'), 'no name')

  const archive = await packed(from)
  expect(archive).toMatchObject({ files: 4, skipped: { count: 2 } })
  expect(archive.skipped.entries.map(({ reason }) => reason).sort()).toEqual([
    'is a named pipe',
    'the name is not UTF-8',
  ])
  const listed = execFileSync('tar', ['-tvf', '-', '--quoting-style=literal'], {
    input: archive.tar,
  }).toString()
  expect(listed).toContain(`top/${long}\n`)
  expect(listed).toMatch(/-rwxr-xr-x .* top\/run\.sh\n/)

  const into = make('into')
  const result = await extracted(archive.tar, into)
  expect(result).toMatchObject({ files: 4, links: 1, skipped: { count: 0 } })
  const at = (name: string) => join(into, 'top', name)
  expect(readFileSync(at(long), 'utf8')).toBe('long name')
  expect(readFileSync(at('big')).equals(Buffer.alloc(700_001, 'b'))).toBe(true)
  expect(lstatSync(at('big')).mtimeMs).toBe(1_000_000_000_000)
  expect(lstatSync(at('run.sh')).mode & 0o7777).toBe(0o755)
  expect(readlinkSync(at('link'))).toBe(`to/${'y'.repeat(200)}`)
  expect(readdirSync(at('empty'))).toEqual([])
})

test('a file of more than 8 GiB has a valid header', async () => {
  const path = join(make('from'), 'huge')
  execFileSync('truncate', ['-s', '9G', path])
  const { stream } = packTree({ path, stats: (await statOf(path))! }, 'huge', { one_file_system: true })
  const { value } = await stream.next()
  await stream.return(undefined)
  expect(value!.toString('latin1')).toContain(`size=${9 * 2 ** 30}\n`)
})

test.each([
  ['a/b', ['a', 'b']],
  ['./a//b/', ['a', 'b']],
  ['', []],
  ['..x/.', ['..x']],
])('the name %j is %j', (name, components) => {
  expect(componentsOf(name)).toEqual(components)
})

test.each(['/etc/passwd', '../x', 'a/../../x', 'a/..', 'x\0y', 'z'.repeat(256), 'd/'.repeat(200)])(
  'the name %j is refused',
  (name) => {
    expect(() => componentsOf(name)).toThrow()
  },
)

test('nothing is written outside of the directory, and the rest of the archive is', async () => {
  const into = make('into')
  const outside = make('outside')
  writeFileSync(join(outside, 'victim'), 'before')
  symlinkSync(outside, join(into, 'old-link'))
  symlinkSync(join(outside, 'victim'), join(into, 'old-file'))
  const bytes = await tarOf([
    { name: '/absolute', content: 'x' },
    { name: '../up', content: 'x' },
    { name: 'a/../../up', content: 'x' },
    { name: 'link', type: 'symlink', linkname: outside },
    { name: 'link/through', content: 'x' },
    { name: 'link', type: 'directory' },
    { name: 'old-link/through', content: 'x' },
    { name: 'old-file', content: 'replaced' },
    { name: 'hard', type: 'link', linkname: '../outside/victim' },
    { name: 'device', type: 'character-device', devmajor: 1, devminor: 1 },
    { name: 'disk', type: 'block-device', devmajor: 8, devminor: 0 },
    { name: 'pipe', type: 'fifo' },
    { name: 'set-user-id', mode: 0o6777, content: 'x' },
    { name: 'good/file', content: 'kept' },
    { name: 'good', content: 'a directory has this name' },
  ])
  const result = await extracted(bytes, into)
  expect(readdirSync(outside)).toEqual(['victim'])
  expect(readFileSync(join(outside, 'victim'), 'utf8')).toBe('before')
  expect(readdirSync(root).sort()).toEqual(['into', 'outside'])
  expect(existsSync('/absolute')).toBe(false)
  expect(readdirSync(into).sort()).toEqual(['good', 'link', 'old-file', 'old-link', 'set-user-id'])
  // The link is replaced, not followed.
  expect(lstatSync(join(into, 'old-file')).isFile()).toBe(true)
  expect(lstatSync(join(into, 'set-user-id')).mode & 0o7777).toBe(0o777)
  expect(readFileSync(join(into, 'good/file'), 'utf8')).toBe('kept')
  expect(result).toMatchObject({ files: 3, links: 1, skipped: { count: 11 } })
})

test('a broken archive and a full budget say what was written before', async () => {
  const into = make('into')
  const good = await tarOf([{ name: 'one', content: 'x'.repeat(2000) }])
  await expect(extracted(good.subarray(0, 1500), into)).rejects.toMatchObject({ kind: 'invalid' })
  await expect(extracted(Buffer.alloc(2048, 'not a tar'), into)).rejects.toMatchObject({
    kind: 'invalid',
    message: expect.stringContaining('the archive is not valid'),
  })
  const two = await tarOf([
    { name: 'one', content: 'x' },
    { name: 'two', content: 'y' },
  ])
  let calls = 0
  const { Fault } = await import('../../fault.ts')
  const charge = async () => {
    if (++calls === 2) throw new Fault('exhausted', 'too much')
  }
  await expect(extracted(two, into, { charge })).rejects.toMatchObject({
    kind: 'exhausted',
    message: 'too much; 1 files (1 bytes) were written before',
  })
  expect(readdirSync(into)).toEqual(['one'])
})

test('a header that is larger than any name is refused without being read', async () => {
  const header = (await tarOf([{ name: 'x', content: '' }])).subarray(0, 512)
  header.write('x', 156)
  header.write('77777777777\0', 124)
  header.fill(0x20, 148, 156)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  async function* endless() {
    yield header
    for (let sent = 0; sent < 64; sent++) yield Buffer.alloc(1024 * 1024)
  }
  const base = await openDirectory(make('into'))
  await expect(extractTree(endless(), base)).rejects.toMatchObject({ kind: 'invalid' })
  await base.close()
})
