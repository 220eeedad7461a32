import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { emptyDirectory } from './empty.ts'

let root: string
let outside: string
beforeEach(() => {
  const base = mkdtempSync(join(tmpdir(), 'oub-empty-'))
  root = join(base, 'tree')
  outside = join(base, 'outside')
  mkdirSync(root)
  mkdirSync(outside)
  writeFileSync(join(outside, 'canary'), 'sings')
})
afterEach(() => {
  expect(readdirSync(outside)).toEqual(['canary'])
  expect(readFileSync(join(outside, 'canary'), 'utf8')).toBe('sings')
  execFileSync('sh', ['-c', 'chmod -R u+w "$1"; rm -rf "$1"', 'sh', join(root, '..')])
})

const sh = (script: string) => execFileSync('bash', ['-c', script], { cwd: root })

async function empty(steps = Number.POSITIVE_INFINITY): Promise<'empty' | 'more'> {
  const handle = await open(root)
  try {
    return await emptyDirectory(handle, { steps })
  } finally {
    await handle.close()
  }
}

describe('emptying a directory', { timeout: 60_000 }, () => {
  it('deletes entries of every kind, by any name, and follows no link', async () => {
    sh(`mkdir -p d/e/f locked/in; touch d/e/f/x .hidden $'\\xff\\xfe' $'new\\nline' locked/in/x; mkfifo pipe d/pipe
        ln -s ${outside} link; ln -s ${outside}/canary d/link; ln -s missing dangling; mkdir $'\\x80'; touch $'\\x80'/$'\\x81'
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'; chmod 000 locked/in locked`)
    expect(await empty()).toBe('empty')
    expect(readdirSync(root)).toEqual([])
  })

  it('deletes 60 nested directories of 200 characters, and 5,000 of one', async () => {
    const deep =
      'my ($name, $levels) = @ARGV; for (1..$levels) { mkdir $name; chdir $name; open my $f, ">", "f" }'
    for (const [name, levels] of [
      ['x'.repeat(200), 60],
      ['a', 5000],
    ] as const)
      execFileSync('perl', ['-e', deep, name, String(levels)], { cwd: root })
    expect(await empty()).toBe('empty')
    expect(readdirSync(root)).toEqual([])
  })

  it('holds a few handles only, and stops after so many steps to go on later', async () => {
    execFileSync('perl', ['-e', 'for (1..150) { mkdir "a"; mkdir "b"; chdir "a" }'], { cwd: root })
    const before = readdirSync('/proc/self/fd').length
    let most = 0
    let rounds = 0
    const timer = setInterval(() => {
      most = Math.max(most, readdirSync('/proc/self/fd').length)
    }, 1)
    while ((await empty(50)) === 'more') rounds += 1
    clearInterval(timer)
    expect(rounds).toBeGreaterThan(3)
    expect(most).toBeLessThan(before + 12)
    expect(readdirSync(root)).toEqual([])
  })

  it('works without privilege on directories that nobody may enter', () => {
    if (process.getuid?.() !== 0) return
    sh(
      'mkdir -p a/b/c d/e; touch a/b/c/f d/e/f; chmod 000 a/b/c; chmod 555 d d/e; chmod 000 a/b a; chown -R 1000:1000 .',
    )
    sh(`chmod 755 .. ; chmod 555 .`)
    const program = `
      const { open } = await import('node:fs/promises')
      const { emptyDirectory } = await import(${JSON.stringify(join(import.meta.dirname, 'empty.ts'))})
      process.setgid(1000); process.setuid(1000)
      const handle = await open(${JSON.stringify(root)})
      console.log(await emptyDirectory(handle, { steps: 1000 }))
      await handle.close()`
    const said = execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' })
    expect(said.trim()).toBe('empty')
    expect(readdirSync(root)).toEqual([])
  })

  it('never leaves the tree while somebody in it exchanges directories and links', {
    timeout: 30_000,
  }, async () => {
    const seed = Number(process.env.TEST_SEED ?? Date.now() % 1_000_000)
    console.log(`seed ${seed}`)
    const stop = join(root, '../stop')
    // The racer itself could write through its links, if it were allowed to.
    sh(`chmod 755 ..; chmod 555 ${outside}; [ $(id -u) != 0 ] || chown 1000:1000 .`)
    // Works by its working directories, as a process would whose tree was moved away under it.
    const racer = `if (!$<) { $( = $) = "1000 1000"; $< = $> = 1000 } srand(${seed}); my @n = ("a".."f");
      while (!-e $ARGV[0]) { for my $n (@n) {
        my $m = $n[rand @n]; my $r = rand;
        if ($r < .3) { mkdir $n; open my $f, ">", "$n/f" } elsif ($r < .5) { symlink $ARGV[1], $n }
        elsif ($r < .8) { rename $n, $m } else { rename $n, "$m/$n" } } }`
    const racing = spawn('perl', ['-e', racer, stop, outside], { cwd: root, stdio: 'ignore' })
    const over = new Promise((resolve) => racing.once('exit', resolve))
    let handled = 0
    const until = performance.now() + 1_500
    while (performance.now() < until || handled < 10) {
      // A failure is expected while another process fills the tree.
      await empty(100).catch((error: Error) => expect(error.message).toMatch(/failed to delete/))
      handled += 1
    }
    writeFileSync(stop, '')
    await over
    console.log(`${handled} slices`)
    expect(handled).toBeGreaterThan(5)
    expect(await empty()).toBe('empty')
    expect(existsSync(join(outside, 'canary'))).toBe(true)
  })
})
