// Attacks on the files of the host, from inside containers. The canary is a directory of the host that no container is
// given: its owner, mode and content must be the same after each of them.
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { expectHealthy, latenciesDuring } from '../../fixtures/latency/latency.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let cage: string
let canary: string
let before: string

const look = () => {
  const { uid, gid, mode } = statSync(canary)
  const file = statSync(join(canary, 'file'))
  const content = readFileSync(join(canary, 'file'), 'utf8')
  return JSON.stringify({
    uid,
    gid,
    mode,
    file: [file.uid, file.gid, file.mode],
    names: readdirSync(canary),
    content,
  })
}

beforeAll(async () => {
  cage = mkdtempSync(join(tmpdir(), 'oub-canary-'))
  chmodSync(cage, 0o755)
  booted = await boot({ config: { reconcile_seconds: 1 } })
})
beforeEach(() => {
  // One for each, so that an attack that succeeds shows in no other test. All may enter it: only links are on trial.
  canary = mkdtempSync(join(cage, 'for-one-'))
  chmodSync(canary, 0o755)
  writeFileSync(join(canary, 'file'), 'sings')
  for (let index = 1; index <= 20; index++) writeFileSync(join(canary, `f${index}`), '')
  before = look()
})
afterEach(() => {
  expect(look()).toBe(before)
})
afterAll(async () => {
  await booted?.stop()
  rmSync(cage, { recursive: true, force: true })
})

const start = (project_id: string, more = {}) =>
  booted.ok('container', { action: 'start', project_id, ...more })
const file = (action: string, project_id: string, more = {}) =>
  booted.client().call('workspace', { action, project_id, path: '.', ...more })
const container = async (project_id: string) =>
  (await booted.ok('project', { action: 'get', project_id })).container
const directory = (project_id: string, ...names: string[]) =>
  join(booted.server.home, 'projects', project_id, 'workspaces', ...names)
const lost = (...names: string[]) => join(booted.server.home, 'lost', ...names)

async function started(fields = {}): Promise<string> {
  const project_id = await booted.project({ init_git: false, ...fields })
  await start(project_id)
  return project_id
}

/** The row of a workspace alone: what stands in its place is up to the container. */
async function workspaceRow(project_id: string, id: string): Promise<void> {
  await booted.query(
    `insert into workspaces (project_id, id, is_default, created_by, created_at, last_used_at)
     values ($1, $2, false, 'test', now(), now())`,
    [project_id, id],
  )
}

/** A directory without a row goes at the end of a sweep: then a whole sweep has seen what was there before. */
async function sweptTwice(): Promise<void> {
  for (const name of ['first', 'second']) {
    const stray = join(booted.server.home, 'projects', `stray-${name}-${process.hrtime.bigint()}`)
    mkdirSync(stray)
    await until(() => !readdirSync(join(stray, '..')).some((one) => stray.endsWith(one)), {
      what: 'the reconciler has swept',
      deadline_ms: 30_000,
    })
  }
}

const trashIsEmpty = () =>
  until(() => readdirSync(join(booted.server.home, 'trash')).length === 0, {
    what: 'the trash is empty',
    deadline_ms: 60_000,
  })

describe('a link in the place of the default workspace', () => {
  test('is not followed by the server, which refuses to start with the reason, and repairs it by recreate', async () => {
    const project_id = await started()
    await booted.exec(
      project_id,
      `cd /; mv /workspaces/default /workspaces/kept; ln -s ${canary} /workspaces/default`,
    )
    // While it runs, the reconciler looks at it with every sweep.
    await sweptTwice()
    expect(look()).toBe(before)
    expect((await booted.fault('container', { action: 'start', project_id })).message).toBe(
      'workspace default is not a directory but a symlink',
    )
    // And when its main process ends, it would be brought back.
    await booted
      .client()
      .call('container', { action: 'exec', project_id, command: 'kill -9 -1', working_dir: '/' })
    await until(async () => /symlink.*recreate/.test((await container(project_id)).reason ?? ''), {
      what: 'the project says what is wrong',
      deadline_ms: 20_000,
    })
    expect(await container(project_id)).toMatchObject({ status: 'failed' })
    expect(look()).toBe(before)

    const { repaired, tampered } = await start(project_id, { recreate: true })
    expect(tampered).toEqual([])
    expect(repaired).toEqual([
      {
        workspace_id: 'default',
        found: 'symlink',
        moved_to: expect.stringMatching(/^lost\/\d{4}-\d\d-\d\d\//),
      },
    ])
    expect(lstatSync(join(booted.server.home, repaired[0].moved_to)).isSymbolicLink()).toBe(true)
    expect((await booted.exec(project_id, 'touch mine && stat -c %F:%u .')).stdout).toBe('directory:1000\n')
    expect((await booted.exec(project_id, 'ls /workspaces')).stdout).toBe('default\nkept\n')
  })

  test('in the home of the droid leads nowhere either', async () => {
    const project_id = await started()
    await booted.exec(
      project_id,
      `cd ~; rm -rf .oubliette; for n in .oubliette .cache .config a; do ln -s ${canary} $n; done`,
    )
    await booted.client().call('container', { action: 'exec', project_id, command: 'kill -9 -1' })
    await until(async () => (await booted.exec(project_id, 'echo ok')).stdout === 'ok\n', {
      what: 'the container is back',
      deadline_ms: 30_000,
    })
    await booted.ok('project', { action: 'delete', project_id })
    await trashIsEmpty()
  })
})

describe('what replaces another workspace', () => {
  const plants: [string, string, string][] = [
    ['a symlink', 'symlink', 'ln -s CANARY planted'],
    ['a symlink to nothing', 'symlink', 'ln -s /nowhere planted'],
    ['a file', 'file', 'echo work > planted'],
    ['a named pipe', 'fifo', 'mkfifo planted'],
    [
      'a socket',
      'socket',
      `perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "planted", Listen => 1)'`,
    ],
  ]
  test.each(plants)(
    '%s: create_workspace and all file actions refuse it, recreate repairs it',
    async (_, found, plant) => {
      const project_id = await started()
      await booted.exec(project_id, plant.replace('CANARY', canary), { working_dir: '/workspaces' })
      const spawn = { action: 'spawn', project_id, prompt: 'pwd', create_workspace: true, new_session: true }
      const refused = await booted.fault('session', { ...spawn, workspace_id: 'planted' })
      expect(refused).toMatchObject({ kind: 'conflict', hint: expect.stringContaining('recreate: true') })
      expect(refused.message).toMatch(/^workspace planted is not a directory but a/)
      for (const action of ['list_dir', 'read_file', 'write_file', 'path_info']) {
        const more = action === 'write_file' ? { content: 'x' } : {}
        const { structured } = await file(action, project_id, {
          path: 'file',
          workspace_id: 'planted',
          ...more,
        })
        expect((structured as Answer).error, action).toMatchObject({
          kind: 'conflict',
          message: refused.message,
        })
      }
      // The others are not affected, nor is the container.
      expect((await file('list_dir', project_id)).is_error).toBe(false)
      await booted.ok('session', { ...spawn, workspace_id: 'other', wait_seconds: 30 })
      expect((await start(project_id)).tampered).toEqual([{ workspace_id: 'planted', found }])
      expect(look()).toBe(before)

      const { repaired, tampered } = await start(project_id, { recreate: true })
      expect(tampered).toEqual([])
      expect(repaired).toMatchObject([{ workspace_id: 'planted', found }])
      if (found === 'file')
        expect(readFileSync(join(booted.server.home, repaired[0].moved_to), 'utf8')).toBe('work\n')
      const { is_error } = await file('write_file', project_id, {
        path: 'file',
        workspace_id: 'planted',
        content: 'x',
      })
      expect(is_error).toBe(false)
      await booted.ok('project', { action: 'delete', project_id })
    },
  )

  test('nothing: a workspace that a droid deleted is made again', async () => {
    const project_id = await started()
    await booted.exec(project_id, 'rm -rf /workspaces/default', { working_dir: '/' })
    expect((await file('write_file', project_id, { path: 'a', content: 'again' })).is_error).toBe(false)
    expect((await booted.exec(project_id, 'cat a; stat -c %u .')).stdout).toBe('again1000\n')
    await booted.exec(project_id, 'rm -rf /workspaces/default', { working_dir: '/' })
    expect((await start(project_id)).status).toBe('running')
    expect((await booted.exec(project_id, 'pwd')).stdout).toBe('/workspaces/default\n')
  })
})

// Most of the time goes into making the trees.
describe('deleting', { timeout: 180_000 }, () => {
  test('a workspace while processes in it exchange directories and links deletes nothing of the host', async () => {
    const rounds = 12
    const seed = Number(process.env.TEST_SEED ?? Date.now() % 1_000_000)
    console.log(`seed ${seed}, ${rounds} workspaces`)
    const project_id = await started()
    const ids = Array.from({ length: rounds }, (_, index) => `w${index}`)
    const prepare = `mkdir ${ids.join(' ')}; for w in ${ids.join(' ')}; do mkdir $w/d; touch $w/d/{file,f{1..20}}; ln -s ${canary} $w/other; done`
    await booted.exec(project_id, prepare, { working_dir: '/workspaces' })
    for (const id of ids) await workspaceRow(project_id, id)
    // In the directory itself, where it stays when the tree is moved away. The files of `d` have the same names
    // whether it is a directory or a link, and each stays for about as long as a step of the server takes.
    const racer = `use Time::HiRes "time"; srand(${seed});
      for my $w (@ARGV) { chdir "/workspaces/$w" or next; open my $on, ">", "on"; my $left = 200;
        while ($left > 0) { $left-- if !-e "/workspaces/$w";
          my $until = time + rand(.0004); 1 while time < $until;
          rename "d", "x"; rename "other", "d";
          $until = time + rand(.0004); 1 while time < $until;
          rename "d", "other"; rename "x", "d";
          symlink "${canary}", "other";
          if (!-e "d/file") { mkdir "d"; for ("file", map "f$_", 1..20) { open my $f, ">", "d/$_" } } } }`
    const racing = booted.exec(project_id, ['perl', '-e', racer, ...ids], {
      timeout_seconds: 120,
      working_dir: '/',
    })
    for (const workspace_id of ids) {
      const on = directory(project_id, workspace_id, 'on')
      await until(() => existsSync(on), { what: `the race is on in ${workspace_id}`, every_ms: 2 })
      await booted.ok('workspace', { action: 'delete', project_id, workspace_id })
    }
    expect((await racing).exit_code).toBe(0)
    expect(look()).toBe(before)
    await booted.ok('project', { action: 'delete', project_id })
    await trashIsEmpty()
  })

  const deep = (name: string, levels: number) => [
    'perl',
    '-e',
    `my $n = "${name}"; for (1..${levels}) { mkdir $n or die; chdir $n or die; open my $f, ">", "f"; symlink "${canary}", "l" }`,
  ]

  test('works with any content: deep trees, locked directories, pipes, sockets, odd names, many entries', async () => {
    const project_id = await started()
    const workspace_id = 'odd'
    await booted.exec(project_id, 'mkdir odd', { working_dir: '/workspaces' })
    await workspaceRow(project_id, workspace_id)
    const where = { working_dir: '/workspaces/odd', timeout_seconds: 120 }
    for (const place of ['/workspaces/odd', '/workspaces/default', '/home/droid']) {
      await booted.exec(project_id, deep('x'.repeat(200), 60), { ...where, working_dir: place })
      await booted.exec(project_id, deep('a', place.endsWith('odd') ? 600 : 100), {
        ...where,
        working_dir: place,
      })
    }
    const made = await booted.exec(
      project_id,
      `mkfifo p; ln -s ${canary} l; ln -s l/file m; touch $'\\xff' $'new\\nline'; mkdir many; (cd many; seq 1000 | xargs touch)
       perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "s", Listen => 1)'
       mkdir -p locked/in; touch locked/in/f; chmod 000 locked/in locked many`,
      where,
    )
    expect(made.exit_code).toBe(0)
    await booted.ok('workspace', { action: 'delete', project_id, workspace_id })
    expect(readdirSync(directory(project_id))).toEqual(['default'])
    await trashIsEmpty()
    await booted.ok('project', { action: 'delete', project_id })
    expect(readdirSync(join(booted.server.home, 'projects'))).not.toContain(project_id)
    await trashIsEmpty()
  })

  test('that a crash cut short is finished by the next server', async () => {
    const left = join(booted.server.home, 'trash/left/tree')
    mkdirSync(left, { recursive: true })
    execFileSync('perl', ['-e', 'for (1..300) { mkdir "a"; chdir "a"; symlink $ARGV[0], "l" }', canary], {
      cwd: left,
    })
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    await trashIsEmpty()
  })
})

describe('what is no file', () => {
  test('does not hang a reader, and no link leads to files of other mounts', async () => {
    const project_id = await started()
    await booted.exec(project_id, 'mkfifo pipe; echo mine > file; ln file second')
    for (const action of ['read_file', 'write_file', 'list_dir']) {
      const from = performance.now()
      const { is_error } = await file(action, project_id, {
        path: 'pipe',
        ...(action === 'write_file' ? { content: '' } : {}),
      })
      expect(is_error, action).toBe(true)
      expect(performance.now() - from).toBeLessThan(5_000)
    }
    expect((await file('read_file', project_id, { path: 'second' })).structured).toMatchObject({
      content: 'mine\n',
    })
    for (const source of [
      '/opt/oubliette/client.mjs',
      '/run/oubliette/relay.sock',
      '/etc/passwd',
      '/home/droid/.oubliette',
    ])
      expect((await booted.exec(project_id, ['ln', source, 'hard'])).exit_code, source).not.toBe(0)
  })
})

describe('work whose cost a droid chooses', () => {
  let quiet_id: string
  beforeAll(async () => {
    quiet_id = await booted.project()
  })

  test('listing a huge directory pages in order, is bounded per workspace, and delays no other caller', async () => {
    const entries = 20_000
    const project_id = await started()
    const make = `mkdir "huge"; chdir "huge"; for (1..${entries}) { open my $f, ">", sprintf("%06d", $_) }`
    await booted.exec(project_id, ['perl', '-e', make], { timeout_seconds: 300 })
    const page = async (cursor?: string) =>
      (await booted.ok('workspace', {
        action: 'list_dir',
        project_id,
        path: 'huge',
        limit: 2,
        cursor,
      })) as Answer
    const first = await page()
    expect(first.entries.map(({ name }: Answer) => name)).toEqual(['000001', '000002'])
    expect((await page('019998')).entries.map(({ name }: Answer) => name)).toEqual(['019999', '020000'])
    expect((await page('019998')).next_cursor).toBeNull()
    const kinds = new Set<string>()
    const lists = async () => {
      const { is_error, structured } = await file('list_dir', project_id, { path: 'huge' })
      kinds.add(is_error ? (structured as Answer).error.kind : 'answer')
    }
    const many = () => Promise.all(Array.from({ length: 20 }, lists))
    expectHealthy(`20 listings of ${entries} entries`, await latenciesDuring(booted, quiet_id, many))
    expect([...kinds].sort()).toEqual(['answer', 'exhausted'])
    await booted.ok('project', { action: 'delete', project_id })
  })

  test('a path of links that unfold to a hundred thousand steps delays no other caller', async () => {
    const project_id = await started()
    const make = `mkdir "d"; for my $i (1..39) { symlink "l" . ($i + 1) . "/." x 2000, "l$i" } symlink "d" . "/." x 2000, "l40"; open my $f, ">", "d/f";
      mkdir "e"; chdir "e"; symlink "x/../" x 700 . "m" . ($_ + 1), "m$_" for 1..39; mkdir "x"`
    await booted.exec(project_id, ['perl', '-e', make])
    // As a file system would: 40 links are followed, and not one more.
    expect((await file('read_file', project_id, { path: 'l1/f' })).is_error).toBe(false)
    const follows = (_: unknown, index: number) =>
      index % 2
        ? file('path_info', project_id, { path: 'l1/f' })
        : file('read_file', project_id, { path: 'e/m1/x' })
    const many = () => Promise.all(Array.from({ length: 10 }, follows))
    expectHealthy('links that unfold', await latenciesDuring(booted, quiet_id, many))
  })
})

describe('mounts', () => {
  test('are nosuid,nodev: a set-uid program gains nothing, and a device is none', async () => {
    const project_id = await started()
    const host = directory(project_id, 'default')
    // Only the host can make these; the container is not even allowed to try.
    copyFileSync('/usr/bin/id', join(host, 'set-uid'))
    chmodSync(join(host, 'set-uid'), 0o4755)
    execFileSync('mknod', ['-m', '666', join(host, 'null'), 'c', '1', '3'])
    expect((await booted.exec(project_id, './set-uid -u')).stdout).toBe('1000\n')
    const device = await booted.exec(project_id, 'echo x > /dev/null && echo there; echo x > ./null')
    expect(device.stdout).toBe('there\n')
    expect(device.stderr).toMatch(/Permission denied/)
    const { stdout } = await booted.exec(project_id, 'cat /proc/self/mountinfo')
    const flags = Object.fromEntries(
      (stdout as string).split('\n').map((line) => [line.split(' ')[4], line.split(' ')[5]?.split(',')]),
    )
    for (const target of ['/workspaces', '/home/droid', '/run/oubliette', '/opt/oubliette'])
      expect(flags[target], target).toEqual(expect.arrayContaining(['nosuid', 'nodev']))
    for (const target of ['/run/oubliette', '/opt/oubliette']) expect(flags[target], target).toContain('ro')
    expect(
      (await booted.exec(project_id, 'touch ~/a /workspaces/a && touch /opt/oubliette/a')).stderr,
    ).toMatch(/Read-only/)
  })
})

describe('a directory without a row', () => {
  test('is moved to lost with everything in it, and never deleted', async () => {
    const project_id = await started()
    await booted.exec(project_id, `echo years > work; ln -s ${canary} link`)
    const kept = await started()
    await booted.exec(kept, 'echo mine > work')
    await booted.query('delete from projects where id = $1', [project_id])
    const projects = join(booted.server.home, 'projects')
    await until(() => !readdirSync(projects).includes(project_id), {
      what: 'it is moved',
      deadline_ms: 30_000,
    })
    const [date] = readdirSync(lost())
    expect(readFileSync(lost(date!, project_id, 'workspaces/default/work'), 'utf8')).toBe('years\n')
    expect(booted.server.log()).toMatch(/moved the directory of an unknown project aside/)
    expect((await booted.exec(kept, 'cat work')).stdout).toBe('mine\n')
    // What is asked for is deleted, as before.
    await booted.ok('project', { action: 'delete', project_id: kept })
    expect(readdirSync(lost(date!))).not.toContain(kept)
    expect(readdirSync(projects)).not.toContain(kept)
  })
})
