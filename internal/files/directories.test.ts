import { execFileSync, spawn } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ensureDirectory, moveAside } from './directories.ts'
import { createTrash } from './trash.ts'

let base: string
let parent: string
let canary: string
const uid = process.getuid?.() === 0 ? 1000 : (process.getuid?.() ?? 0)
const owner = { uid, gid: uid }
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'oub-directories-'))
  parent = join(base, 'parent')
  canary = join(base, 'canary')
  for (const path of [parent, canary]) mkdirSync(path, { mode: 0o700 })
})
afterEach(() => execFileSync('rm', ['-rf', base]))

const sh = (script: string) => execFileSync('bash', ['-c', script], { cwd: parent })

describe('ensureDirectory', () => {
  it('makes a directory of its owner, and leaves one that is there alone', async () => {
    expect(await ensureDirectory(parent, 'a', owner)).toEqual({ status: 'made' })
    expect(statSync(join(parent, 'a'))).toMatchObject(owner)
    sh('touch a/kept; chmod 705 a')
    expect(await ensureDirectory(parent, 'a', owner)).toEqual({ status: 'there' })
    expect(readdirSync(join(parent, 'a'))).toEqual(['kept'])
    expect(statSync(join(parent, 'a')).mode & 0o777).toBe(0o705)
  })

  it.each([
    ['symlink', 'ln -s ../canary a'],
    ['symlink', 'ln -s missing a'],
    ['file', 'touch a'],
    ['fifo', 'mkfifo a'],
    ['socket', `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("a")'`],
  ])('leaves a %s alone and tells of it (%s)', async (found, script) => {
    sh(script)
    const before = statSync(canary)
    expect(await ensureDirectory(parent, 'a', owner)).toEqual({ status: 'foreign', found })
    expect(statSync(canary)).toEqual(before)
  })

  it('refuses a parent that is a link', async () => {
    sh('ln -s ../canary link')
    await expect(ensureDirectory(join(parent, 'link'), 'a', owner)).rejects.toThrow()
    expect(readdirSync(canary)).toEqual([])
  })
})

describe('moveAside', () => {
  it('moves a link as a link, and gives a name that is taken a suffix', async () => {
    const place = join(base, 'lost/today/a')
    sh('ln -s ../canary a')
    expect(await moveAside(parent, 'a', [place])).toBe(place)
    expect(readlinkSync(place)).toBe('../canary')
    sh('mkdir a; touch a/kept')
    const second = await moveAside(parent, 'a', [place])
    expect(second).toMatch(/\/a-[0-9a-f]{8}$/)
    expect(readdirSync(second!)).toEqual(['kept'])
    expect(await moveAside(parent, 'a', [place])).toBeUndefined()
    expect(statSync(join(base, 'lost')).mode & 0o777).toBe(0o700)
  })
})

describe('the trash', () => {
  const warnings: unknown[] = []
  const log = { warn: (...said: unknown[]) => warnings.push(said) } as never

  it('takes a tree away at once, deletes it in the background, and what an earlier server left', async () => {
    const directory = join(base, 'trash')
    mkdirSync(join(directory, 'left/tree/a'), { recursive: true })
    const trash = createTrash({ directory, log })
    sh('mkdir -p a/b; seq 500 | (cd a/b; xargs touch); ln -s ../canary link')
    await Promise.all([
      trash.discard(parent, 'a'),
      trash.discard(parent, 'link'),
      trash.discard(parent, 'none'),
    ])
    expect(readdirSync(parent)).toEqual([])
    await trash.sweep()
    expect(readdirSync(directory)).toEqual([])
    expect(existsSync(canary)).toBe(true)
    await trash.close()
    expect(warnings).toEqual([])
  })

  it('deletes nothing of the host under a process that exchanges directories and links', {
    timeout: 60_000,
  }, async () => {
    const names = Array.from({ length: 20 }, (_, index) => `f${index}`)
    for (const name of names) writeFileSync(join(canary, name), '')
    const racer = `use Time::HiRes "time"; my ($p, $c) = @ARGV; while (!-e "$p/over") { chdir "$p/w" or next;
      for (1..50) { my $u = time + rand(.0003); 1 while time < $u; rename "d", "x"; rename "other", "d";
        $u = time + rand(.0003); 1 while time < $u; rename "d", "other"; rename "x", "d"; symlink $c, "other" } }`
    const racing = spawn('perl', ['-e', racer, parent, canary], { stdio: 'ignore' })
    const over = new Promise((resolve) => racing.once('exit', resolve))
    const trash = createTrash({ directory: join(base, 'trash'), log })
    for (let round = 0; round < 25; round++) {
      sh(`mkdir -p w.new/d; touch w.new/d/f{0..19}; ln -s ${canary} w.new/other; mv -T w.new w`)
      await trash.discard(parent, 'w')
      expect(readdirSync(canary)).toHaveLength(names.length)
    }
    sh('touch over; mkdir w')
    await over
    await trash.sweep()
    await trash.close()
    expect(readdirSync(join(base, 'trash'))).toEqual([])
    expect(readdirSync(canary)).toHaveLength(names.length)
  })

  it('on another file system deletes in place', async () => {
    const elsewhere = mkdtempSync('/dev/shm/oub-trash-')
    const trash = createTrash({ directory: elsewhere, log })
    sh('mkdir -p a/b/c; touch a/b/c/f; ln -s ../canary a/link; ln -s ../canary link')
    await trash.discard(parent, 'a')
    await trash.discard(parent, 'link')
    expect(readdirSync(parent)).toEqual([])
    expect(existsSync(canary)).toBe(true)
    expect(readdirSync(elsewhere)).toEqual([])
    await trash.close()
    execFileSync('rm', ['-rf', elsewhere])
  })
})
