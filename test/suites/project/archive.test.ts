// Copies between this machine and workspaces: `./oubliette cp`, and the route below it.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  createReadStream,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { extract } from 'tar-stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { archiveRequest, tarOf } from '../../fixtures/archive.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
let scratch: string
const env = () => ({
  OUBLIETTE_HOME: booted.server.home,
  OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
  OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
})
const cp = (...words: string[]) => runCli(['cp', ...words], env(), 120_000)
async function copied(...words: string[]): Promise<string> {
  const { code, stderr } = await cp(...words)
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/oubliette: copied \d+ files?/) })
  return stderr
}
const where = (more = {}) => ({
  url: booted.server.url,
  token: booted.server.admin_token,
  project_id,
  ...more,
})
const here = (...parts: string[]) => join(scratch, ...parts)
const inside = async (command: string) => (await booted.exec(project_id, command)).stdout as string

beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'oub-cp-'))
  booted = await boot()
  project_id = await booted.project({ name: 'site' })
  await inside(
    'cd /workspaces/default && mkdir -p odd && mkfifo odd/pipe && echo x > odd/file && ln -s /etc/passwd odd/out && ln -s file odd/in',
  )
})
afterAll(async () => {
  await booted?.stop()
  rmSync(scratch, { recursive: true, force: true })
})

describe('cp', () => {
  test('copies a tree there and back', async () => {
    mkdirSync(here('tree/sub/leer zeichen'), { recursive: true })
    writeFileSync(here('tree/größe 😀.txt'), 'text\n')
    writeFileSync(here('tree/sub/run'), '#!/bin/sh\n')
    chmodSync(here('tree/sub/run'), 0o750)
    writeFileSync(here('tree/sub/binary'), Buffer.from([0, 255, 10, 13, 128]))
    symlinkSync('../größe 😀.txt', here('tree/sub/link'))
    expect(await copied(here('tree'), 'site:')).toContain('copied 3 files')
    expect(await inside('cd /workspaces/default/tree && find . -printf "%p %y %m %u\\n" | sort')).toBe(
      [
        '. d 755 droid',
        './größe 😀.txt f 644 droid',
        './sub d 755 droid',
        './sub/binary f 644 droid',
        './sub/leer zeichen d 755 droid',
        './sub/link l 777 droid',
        './sub/run f 750 droid',
        '',
      ].join('\n'),
    )
    await copied(`${project_id}:tree`, here('back'))
    execFileSync('diff', ['-r', here('tree'), here('back')])
    expect(statSync(here('back/sub/run')).mode & 0o777).toBe(0o750)
    expect(readlinkSync(here('back/sub/link'))).toBe('../größe 😀.txt')
  })

  test('follows the rules of docker cp for names and directories', async () => {
    await inside('cd /workspaces/default && mkdir -p rules/d && echo one > rules/one && echo old > rules/old')
    mkdirSync(here('into'))
    await copied('site:rules/one', here('into'))
    await copied('site:rules/one', here('into/renamed'))
    await copied('site:rules/one', here('into/renamed'))
    await copied('site:rules', here('into'))
    await copied('site:rules/.', here('into/flat'))
    await copied('site:rules/.', here('into'))
    expect(readdirSync(here('into')).sort()).toEqual(['d', 'flat', 'old', 'one', 'renamed', 'rules'])
    expect(readdirSync(here('into/flat')).sort()).toEqual(['d', 'old', 'one'])

    writeFileSync(here('new'), 'new')
    await copied(here('new'), 'site:rules/d')
    await copied(here('new'), 'site:rules/old')
    await copied(here('new'), 'site:rules/named')
    await copied(`${here('into')}/.`, 'site:rules/all')
    expect(await inside('cd /workspaces/default/rules && cat d/new old named && ls all')).toBe(
      'newnewnewd\nflat\nold\none\nrenamed\nrules\n',
    )
    for (const [words, message] of [
      [['site:nothing', here('into')], 'no such file or directory: nothing'],
      [['site:rules', here('new')], 'is a file, and the source is a directory'],
      [['site:rules/one', here('absent/x')], 'no such file or directory'],
      [['site:rules/one', `${here('absent')}/`], 'no such file or directory'],
      [[here('absent'), 'site:'], 'no such file or directory'],
      [[here('new'), 'site:absent/x'], 'no directory "absent" in the workspace'],
      [[here('into'), 'site:rules/one'], 'is a file, and the source is a directory'],
      [['site:../../etc/passwd', here('into')], 'leaves the workspace'],
      [['nowhere:x', here('into')], 'no project nowhere'],
      [['site/absent:x', here('into')], 'no workspace absent'],
      [['a', 'b'], 'one of SRC and DST must be PROJECT:PATH'],
    ] as const) {
      const { code, stderr } = await cp(...words)
      expect([code, stderr]).toEqual([code === 2 ? 2 : 1, expect.stringContaining(message)])
    }
  })

  test('an archive on standard output and input', async () => {
    await inside('cd /workspaces/default && mkdir -p stream && echo s > stream/file')
    const script = `'${process.execPath}' cmd/oubliette-server/main.ts cp`
    const shell = (line: string) =>
      execFileSync('bash', ['-o', 'pipefail', '-c', line], { env: { ...process.env, ...env() } }).toString()
    expect(shell(`${script} site:stream - | tar -t`)).toBe('stream/\nstream/file\n')
    shell(`tar -C '${here()}' -c new | ${script} - site:stream`)
    expect(await inside('cat /workspaces/default/stream/new')).toBe('new')
  })

  test('10,000 small files, both ways', async () => {
    mkdirSync(here('many'))
    for (let at = 0; at < 100; at++) mkdirSync(here('many', `d${at}`))
    for (let at = 0; at < 10_000; at++) writeFileSync(here('many', `d${at % 100}`, `f${at}`), `${at}`)
    expect(await copied(here('many'), 'site:many')).toContain('copied 10000 files')
    expect(await inside('find /workspaces/default/many -type f -user droid | wc -l')).toBe('10000\n')
    await copied('site:many', here('many-back'))
    execFileSync('diff', ['-r', here('many'), here('many-back')])
  }, 120_000)

  test('two gigabytes, both ways, in bounded memory', async () => {
    const size = 2 * 1024 ** 3 + 12_345
    execFileSync(
      'bash',
      ['-c', `head -c ${size} /dev/zero | openssl enc -aes-128-ctr -K 00 -iv 00 -out big`],
      {
        cwd: scratch,
      },
    )
    const hashOf = async (path: string) => {
      const hash = createHash('sha256')
      for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) hash.update(chunk)
      return hash.digest('hex')
    }
    const rss = () =>
      Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${booted.server.pid()}/status`, 'utf8'))?.[1]) / 1024
    const before = rss()
    let most = 0
    const timer = setInterval(() => {
      most = Math.max(most, rss())
    }, 50)
    try {
      await copied(here('big'), 'site:big')
      expect(await inside('stat -c %s /workspaces/default/big')).toBe(`${size}\n`)
      await copied('site:big', here('big-back'))
    } finally {
      clearInterval(timer)
    }
    console.log(`2 GiB: the server used ${before.toFixed(0)} MiB before, at most ${most.toFixed(0)} MiB`)
    expect(await hashOf(here('big-back'))).toBe(await hashOf(here('big')))
    expect(most - before).toBeLessThan(200)
    rmSync(here('big'))
    rmSync(here('big-back'))
    await inside('rm /workspaces/default/big')
  }, 300_000)

  test('what cannot be copied is named, and the exit code says so', async () => {
    const { code, stderr } = await cp('site:odd', here('odd'))
    expect([code, stderr]).toEqual([1, expect.stringContaining('copied 1 file ')])
    expect(stderr).toContain('"odd/pipe": is a named pipe')
    expect(stderr).toContain('"odd/out": is a link that leads out of the copied files (to "/etc/passwd")')
    expect(readdirSync(here('odd')).sort()).toEqual(['file', 'in'])
  })
})

describe('the route', () => {
  test('what is refused in an archive is reported, and the rest is written', async () => {
    await inside(
      'cd /workspaces/default && mkdir tricks && ln -s /home/droid tricks/home && echo mine > tricks/kept',
    )
    const archive = await tarOf([
      { name: 'good', content: 'good' },
      { name: '../escaped', content: 'x' },
      { name: '/escaped', content: 'x' },
      { name: 'home/escaped', content: 'x' },
      { name: 'pipe', type: 'fifo' },
      { name: 'device', type: 'character-device', devmajor: 1, devminor: 3 },
      { name: 'hard', type: 'link', linkname: 'kept' },
      { name: 'suid', mode: 0o4755, content: 'x' },
    ])
    const { status, body } = await archiveRequest('PUT', where({ path: 'tricks' }), archive)
    expect(status).toBe(200)
    expect(JSON.parse(String(body))).toMatchObject({ path: 'tricks', files: 2, skipped: { count: 6 } })
    expect(
      await inside('cd /workspaces/default/tricks && ls && stat -c "%a %U" suid && ls .. /home/droid'),
    ).not.toContain('escaped')
    expect(await inside('cd /workspaces/default/tricks && ls && stat -c "%a %U" suid')).toBe(
      'good\nhome\nkept\nsuid\n755 droid\n',
    )
  })

  test('protected paths are kept', async () => {
    const guarded = await booted.project({ protected_paths: ['.git', 'conf/secret'] })
    const archive = await tarOf([
      { name: '.git/config', content: 'x' },
      { name: 'conf/secret', content: 'x' },
      { name: 'conf/other', content: 'x' },
    ])
    const { body } = await archiveRequest('PUT', where({ project_id: guarded }), archive)
    expect(JSON.parse(String(body))).toMatchObject({ files: 1, skipped: { count: 2 } })
    const { content } = await booted.ok('workspace', {
      action: 'read_file',
      project_id: guarded,
      path: 'conf/other',
    })
    expect(content).toBe('x')
  })

  test('an archive that ends early keeps what was complete, and nothing half', async () => {
    await inside('mkdir /workspaces/default/early')
    const archive = await tarOf([
      { name: 'one', content: 'complete' },
      { name: 'two', content: 'y'.repeat(100_000) },
    ])
    const cut = await archiveRequest('PUT', where({ path: 'early' }), archive.subarray(0, 60_000))
    expect([cut.status, JSON.parse(String(cut.body)).error]).toMatchObject([
      400,
      { kind: 'invalid', message: expect.stringContaining('1 files (') },
    ])
    expect(await inside('ls -A /workspaces/default/early; cat /workspaces/default/early/one')).toBe(
      'one\ncomplete',
    )
    const nonsense = await archiveRequest('PUT', where({ path: 'early' }), Buffer.alloc(4096, 'nonsense'))
    expect(nonsense.status).toBe(400)
  })

  test('the disk limit holds while an archive arrives, and the answer says what was written', async () => {
    const small = await booted.project({ limits: { disk_mb: 16 } })
    async function* endless() {
      const header = (await tarOf([{ name: 'x', content: 'z'.repeat(1024 * 1024) }])).subarray(0, -1024)
      for (let at = 0; at < 500; at++) {
        const copy = Buffer.from(header)
        copy.write(`file-${String(at).padStart(4, '0')}`, 0)
        copy.fill(0x20, 148, 156)
        const sum = copy.subarray(0, 512).reduce((total, byte) => total + byte, 0)
        copy.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
        yield copy
      }
    }
    const { status, body } = await archiveRequest('PUT', where({ project_id: small }), endless())
    const { error } = JSON.parse(String(body))
    expect([status, error]).toMatchObject([
      429,
      { kind: 'exhausted', message: expect.stringMatching(/disk limit.*1\d files/) },
    ])
    const { entries } = await booted.ok('workspace', { action: 'list_dir', project_id: small, path: '.' })
    expect(
      entries.filter(({ name }: { name: string }) => name.startsWith('file-')).length,
    ).toBeLessThanOrEqual(16)
  })

  test('names what was left out of an archive, which other programs read', async () => {
    const { status, body, trailers } = await archiveRequest('GET', where({ path: 'odd' }))
    expect(status).toBe(200)
    const names: string[] = []
    const tar = extract()
    tar.end(body)
    for await (const entry of tar) {
      names.push(entry.header.name)
      entry.resume()
    }
    expect(names.sort()).toEqual(['odd/', 'odd/file', 'odd/in', 'odd/out'])
    expect(JSON.parse(decodeURIComponent(trailers['x-archive-skipped']!))).toEqual({
      count: 1,
      entries: [{ path: 'odd/pipe', reason: 'is a named pipe' }],
    })
  })

  test('limits the copies of one project', async () => {
    async function* slow() {
      yield (await tarOf([{ name: 'slow', content: 'x' }])).subarray(0, 512)
      await released
    }
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const running = Array.from({ length: 4 }, () => archiveRequest('PUT', where(), slow()))
    await until(
      async () => {
        const { entries } = await booted.ok('workspace', { action: 'list_dir', project_id, path: '.' })
        return entries.filter(({ name }: { name: string }) => name.startsWith('.oubliette-')).length === 4
      },
      { what: 'four copies are running' },
    )
    const { status, body } = await archiveRequest('GET', where({ path: 'odd' }))
    expect([status, JSON.parse(String(body)).error]).toMatchObject([429, { kind: 'exhausted' }])
    release()
    for (const ended of await Promise.all(running)) expect(ended.status).toBe(400)
    // Nothing of what was not complete is left.
    const { entries } = await booted.ok('workspace', { action: 'list_dir', project_id, path: '.' })
    expect(entries.filter(({ name }: { name: string }) => name.startsWith('.oubliette-'))).toEqual([])
    expect((await archiveRequest('GET', where({ path: 'odd' }))).status).toBe(200)
  })

  test('every copy is in the audit, with its outcome', async () => {
    await until(
      async () => {
        const rows = await booted.query<{ action: string; outcome: string }>(
          `select action, outcome from audit where tool = 'workspace' and action like '%_archive' group by 1, 2 order by 1, 2`,
        )
        expect(rows).toEqual([
          { action: 'read_archive', outcome: 'exhausted' },
          { action: 'read_archive', outcome: 'ok' },
          { action: 'write_archive', outcome: 'exhausted' },
          { action: 'write_archive', outcome: 'invalid' },
          { action: 'write_archive', outcome: 'not_found' },
          { action: 'write_archive', outcome: 'ok' },
        ])
        return true
      },
      { what: 'the audit' },
    )
  })

  test('refuses what is not a request for an archive', async () => {
    expect((await archiveRequest('HEAD', where())).status).toBe(405)
    expect((await archiveRequest('GET', where({ workspace_id: 'absent' }))).status).toBe(404)
    expect((await archiveRequest('GET', where({ workspace_id: 'gogol_x' }))).status).toBe(400)
    expect((await archiveRequest('GET', where({ token: 'oub_0' }))).status).toBe(401)
    expect((await archiveRequest('GET', where({ path: '../x' }))).status).toBe(400)
    expect((await archiveRequest('PUT', where({ path: 'odd/file' }), Buffer.alloc(1024))).status).toBe(400)
  })
})
