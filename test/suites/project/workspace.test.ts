import { createHash, randomBytes } from 'node:crypto'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'

let booted: Booted
let project_id: string
let host: string

beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project({ protected_paths: ['locked', 'deep/kept.txt'] })
  await booted.ok('container', { action: 'start', project_id })
  host = join(booted.server.home, 'projects', project_id, 'workspaces/default')
})
afterAll(() => booted?.stop())

const ok = (action: string, more = {}) => booted.ok('workspace', { action, project_id, ...more })
const fault = (action: string, more = {}) => booted.fault('workspace', { action, project_id, ...more })
const write = (path: string, content: string, more = {}) => ok('write_file', { path, content, ...more })
const read = (path: string, more = {}) => ok('read_file', { path, ...more })

describe('list and delete', () => {
  test('show the default workspace, which stays', async () => {
    const { workspaces, next_cursor } = await ok('list')
    expect(next_cursor).toBeNull()
    expect(workspaces).toHaveLength(1)
    expect(workspaces[0]).toMatchObject({
      workspace_id: 'default',
      is_default: true,
      path: '/workspaces/default',
      state: 'ready',
      prepare_error: null,
      prepared_at: expect.any(String),
    })
    const refused = await fault('delete', { workspace_id: 'default' })
    expect(refused).toMatchObject({ kind: 'conflict', message: expect.stringContaining('default') })
  })

  test('do not know a workspace that is not there, or the id of something else', async () => {
    expect(await fault('delete', { workspace_id: 'nowhere' })).toMatchObject({ kind: 'not_found' })
    expect(await fault('list_dir', { workspace_id: 'nowhere' })).toMatchObject({ kind: 'not_found' })
    for (const workspace_id of ['../default', '..', 'a/b', 'gogol_0123456789abcdef', '', '.'])
      expect(await fault('list_dir', { workspace_id }), workspace_id).toMatchObject({ kind: 'invalid' })
  })

  test('the default workspace is a git repository of its own user', async () => {
    const { stdout, exit_code } = await booted.exec(project_id, 'git status --porcelain -b; stat -c %u .git')
    expect(exit_code).toBe(0)
    expect(stdout).toMatch(/No commits yet on main\n(.*\n)*1000\n$/)
  })
})

describe('a file', () => {
  test('written from outside is read inside, belongs to the user there, and can be changed by that user', async () => {
    expect(await write('src/a/b.txt', 'héllo\n')).toEqual({
      path: 'src/a/b.txt',
      size_bytes: 7,
      created: true,
    })
    const { stdout } = await booted.exec(
      project_id,
      'cat src/a/b.txt; stat -c "%u:%g %a" src src/a src/a/b.txt; echo more >> src/a/b.txt; touch src/new',
    )
    expect(stdout).toBe('héllo\n1000:1000 755\n1000:1000 755\n1000:1000 644\n')
    expect(await read('src/a/b.txt')).toMatchObject({
      content: 'héllo\nmore\n',
      encoding: 'utf8',
      truncated: false,
    })
    expect(await write('src/a/b.txt', 'again')).toMatchObject({ created: false })
  })

  test('can be named as the container names it', async () => {
    await write('/workspaces/default/absolute.txt', 'x')
    expect((await read('absolute.txt')).content).toBe('x')
    expect((await read('/workspaces/default/absolute.txt')).path).toBe('absolute.txt')
  })

  test('that is not text is read and written as base64, byte for byte', async () => {
    const bytes = randomBytes(100_000)
    await write('binary', bytes.toString('base64'), { encoding: 'base64' })
    expect(await readFile(join(host, 'binary'))).toEqual(bytes)
    const { content, encoding } = await read('binary')
    expect(encoding).toBe('base64')
    expect(Buffer.from(content, 'base64').equals(bytes)).toBe(true)
    expect(await fault('write_file', { path: 'x', content: '!!!', encoding: 'base64' })).toMatchObject({
      kind: 'invalid',
    })
  })

  test('that is large is read in parts', async () => {
    await booted.exec(project_id, 'seq -w 0 1999999 > large')
    const { size } = await stat(join(host, 'large'))
    expect(size).toBe(16_000_000)
    expect(await read('large', { offset: 8_000_000, max_bytes: 16 })).toMatchObject({
      content: '1000000\n1000001\n',
      size_bytes: size,
      offset: 8_000_000,
      truncated: true,
    })
    expect(await read('large', { offset: size - 8 })).toMatchObject({
      content: '1999999\n',
      truncated: false,
    })
    expect(await read('large', { offset: size + 10 })).toMatchObject({ content: '', truncated: false })
    expect((await read('large')).content).toHaveLength(262_144)
    expect((await read('large', { max_bytes: 4_000_000 })).content).toHaveLength(4_000_000)
  })

  test('that is empty, or has an odd name, is like any other', async () => {
    for (const name of ['empty', ' spaced name ', '-rf', 'ünï/çödé 🦆', 'new\nline', '..x', '...'])
      expect(await write(name, ''), name).toMatchObject({ size_bytes: 0 })
    expect(await read('empty')).toMatchObject({ content: '', size_bytes: 0, truncated: false })
    const { entries } = await ok('list_dir', { path: 'ünï' })
    expect(entries.map((entry: { name: string }) => entry.name)).toEqual(['çödé 🦆'])
    expect(await fault('write_file', { path: 'x'.repeat(300), content: '' })).toMatchObject({
      kind: 'invalid',
    })
  })

  test('gets the mode that is asked for, else keeps its own', async () => {
    await write('script', '#!/bin/sh\necho ran\n', { mode: '0755' })
    expect((await booted.exec(project_id, ['./script'])).stdout).toBe('ran\n')
    await write('script', '#!/bin/sh\necho again\n')
    expect((await ok('path_info', { path: 'script' })).mode).toBe('0755')
    expect((await booted.exec(project_id, ['./script'])).stdout).toBe('again\n')
    for (const mode of ['4755', '999', 'rwx'])
      expect(await fault('write_file', { path: 'y', content: '', mode }), mode).toMatchObject({
        kind: 'invalid',
      })
  })

  test('needs its directory, unless missing ones are made', async () => {
    const more = { content: '', create_parents: false }
    expect(await fault('write_file', { path: 'no/dir/x', ...more })).toMatchObject({ kind: 'not_found' })
    expect((await ok('path_info', { path: 'no' })).exists).toBe(false)
    expect(await fault('write_file', { path: 'empty/x', content: '' })).toMatchObject({ kind: 'invalid' })
    expect(await fault('write_file', { path: 'src', content: '' })).toMatchObject({ kind: 'conflict' })
    expect(await fault('write_file', { path: '.', content: '' })).toMatchObject({ kind: 'invalid' })
  })

  test('that is protected cannot be written, nor created through its directory', async () => {
    for (const path of ['locked', 'locked/a', 'locked/new/dir/a', './locked/../locked/a', 'deep/kept.txt'])
      expect(await fault('write_file', { path, content: '' }), path).toMatchObject({ kind: 'forbidden' })
    expect((await ok('path_info', { path: 'locked' })).exists).toBe(false)
    await write('deep/other.txt', 'x')
    await write('locked-not', 'x')
    await booted.exec(project_id, 'mkdir locked && ln -s locked way')
    expect(await fault('write_file', { path: 'way/a', content: '' })).toMatchObject({ kind: 'forbidden' })
    expect((await booted.exec(project_id, 'ls locked')).stdout).toBe('')
  })

  test('is never seen half written, and nothing is left beside it', async () => {
    const contents = ['a', 'b'].map((letter) => letter.repeat(500_000))
    await write('atomic/file', contents[0]!)
    const watching = booted.exec(
      project_id,
      'cd atomic; while [ ! -e ../over ]; do md5sum < file; done | sort | uniq -c; rm ../over',
    )
    for (let round = 0; round < 20; round++) await write('atomic/file', contents[round % 2]!)
    await write('over', '')
    const lines: string[] = (await watching).stdout.trim().split('\n')
    const seen = lines.map((line) => line.trim().split(/\s+/)[1]!)
    const whole = contents.map((content) => createHash('md5').update(content).digest('hex'))
    expect(seen.toSorted()).toEqual(whole.toSorted())
    expect(await readdir(join(host, 'atomic'))).toEqual(['file'])
  })

  test('written by many at once is one of theirs, whole', async () => {
    const contents = Array.from({ length: 8 }, (_, index) => String(index).repeat(100_000))
    await Promise.all(contents.map((content) => write('contended', content)))
    expect(contents).toContain((await read('contended')).content)
  })
})

describe('path_info and list_dir', () => {
  test('describe files, directories and links', async () => {
    await booted.exec(
      project_id,
      'mkdir -p kinds/dir; cd kinds; printf 12345 > file; ln -s file link; mkfifo pipe',
    )
    const info = (path: string) => ok('path_info', { path: `kinds/${path}` })
    expect(await info('file')).toMatchObject({ exists: true, type: 'file', size_bytes: 5, target: null })
    expect(await info('dir')).toMatchObject({ exists: true, type: 'directory' })
    expect(await info('link')).toMatchObject({ exists: true, type: 'symlink', target: 'file' })
    expect(await info('pipe')).toMatchObject({ exists: true, type: 'other' })
    expect(await info('nothing/at/all')).toEqual({ path: 'kinds/nothing/at/all', exists: false })
    expect(await ok('path_info', { path: '.' })).toMatchObject({ exists: true, type: 'directory', path: '' })
    const { entries } = await ok('list_dir', { path: 'kinds' })
    expect(entries.map(({ name, type }: Record<string, string>) => `${name} ${type}`)).toEqual([
      'dir directory',
      'file file',
      'link symlink',
      'pipe other',
    ])
    expect(await fault('list_dir', { path: 'kinds/file' })).toMatchObject({ kind: 'invalid' })
    expect(await fault('list_dir', { path: 'kinds/nothing' })).toMatchObject({ kind: 'not_found' })
  })

  test('page through a large directory', async () => {
    await booted.exec(project_id, 'mkdir many; cd many; touch $(seq -w 0 999)')
    const seen: string[] = []
    let cursor: string | null = null
    do {
      const page: Record<string, unknown> = { path: 'many', limit: 300 }
      const answer = await ok('list_dir', cursor ? { ...page, cursor } : page)
      seen.push(...answer.entries.map((entry: { name: string }) => entry.name))
      cursor = answer.next_cursor
    } while (cursor !== null)
    expect(seen).toEqual(Array.from({ length: 1000 }, (_, index) => String(index).padStart(3, '0')))
  })
})
