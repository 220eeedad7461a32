import { execFileSync } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'

const treasure = 'what lies outside'
let booted: Booted
let project_id: string
let host: string
/** A directory of the host, with a file that must never be read and that must stay alone. */
let outside: string

beforeAll(async () => {
  outside = await mkdtemp(join(tmpdir(), 'oub-outside-'))
  await writeFile(join(outside, 'file'), treasure)
  booted = await boot()
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
  host = join(booted.server.home, 'projects', project_id, 'workspaces/default')
})
afterAll(async () => {
  await booted?.stop()
  await rm(outside, { recursive: true, force: true })
})

const call = (action: string, path: string, more = {}) =>
  booted.client().call('workspace', { action, project_id, path, ...more })

/** All four actions, with what each answered. */
async function everyWay(path: string): Promise<{ action: string; is_error: boolean; structured: Answer }[]> {
  const asked = ['read_file', 'list_dir', 'path_info', 'write_file']
  return await Promise.all(
    asked.map(async (action) => ({
      action,
      ...(await call(action, path, action === 'write_file' ? { content: 'intruder' } : {})),
    })),
  )
}

async function expectUntouched(): Promise<void> {
  expect(await readdir(outside)).toEqual(['file'])
  expect(await readFile(join(outside, 'file'), 'utf8')).toBe(treasure)
}

const refusedKinds = ['invalid', 'not_found', 'conflict']

describe('paths that lead out', () => {
  test.each([
    '..',
    '../default/x',
    'a/../../x',
    '../../../../../../etc/passwd',
    '/etc/passwd',
    '/',
    '//etc/passwd',
    '/workspaces',
    '/workspaces/other/x',
    '/workspaces/default/../x',
    '/workspaces/defaultx',
    '/proc/self/root/etc/passwd',
    './././../x',
    '~/x/../../..',
  ])('are refused: %s', async (path) => {
    for (const { action, is_error, structured } of await everyWay(path)) {
      // A path that only does not exist is an answer of path_info.
      if (action === 'path_info' && !is_error) expect(structured.exists).toBe(false)
      else expect(refusedKinds, `${action} ${path}`).toContain(structured.error?.kind)
    }
  })
})

describe('symlinks', () => {
  beforeAll(async () => {
    const links: Record<string, string> = {
      to_file: `${outside}/file`,
      to_dir: outside,
      to_new: `${outside}/new`,
      to_etc: '/etc/passwd',
      to_root: '/',
      to_proc: '/proc/self/root',
      up: '..',
      far_up: '../../../../../..',
      chain_a: 'chain_b',
      chain_b: 'in/chain_c',
      'in/chain_c': `${outside}/file`,
      'in/sneaky': '../../..',
      loop: 'loop',
      loop_a: 'loop_b',
      loop_b: 'loop_a',
      'in/deeper': '../in/deeper/x',
    }
    const script = Object.entries(links).map(([name, target]) => `ln -s '${target}' '${name}'`)
    await booted.exec(project_id, ['mkdir in', ...script].join('; '))
  })

  test.each([
    'to_file',
    'to_dir/file',
    'to_dir/new',
    'to_new',
    'to_etc',
    'to_root/etc/passwd',
    'to_proc/etc/passwd',
    'up/x',
    'far_up/etc/passwd',
    'chain_a',
    'in/sneaky/x',
    'in/../up/default/../x',
    'loop',
    'loop/x',
    'loop_a',
    'in/deeper',
  ])('that lead out, or in circles, are not followed: %s', async (path) => {
    for (const { action, is_error, structured } of await everyWay(path)) {
      expect(JSON.stringify(structured)).not.toContain(treasure)
      expect(JSON.stringify(structured)).not.toContain('root:')
      // A link itself may be looked at.
      if (action === 'path_info' && !is_error) expect(['symlink', undefined]).toContain(structured.type)
      else expect(refusedKinds, `${action} ${path}`).toContain(structured.error?.kind)
    }
    await expectUntouched()
  })

  test('that stay inside are followed, relative and absolute', async () => {
    await booted.exec(
      project_id,
      'mkdir -p real/sub; echo inside > real/sub/f; ln -s real/sub rel; ln -s /workspaces/default/real abs; ln -s ../real/sub/../sub/f in/link; ln -s rel/f file_link',
    )
    for (const path of ['rel/f', 'abs/sub/f', 'in/link', 'file_link', 'abs/../real/sub/f']) {
      const { structured } = await call('read_file', path)
      expect(structured.content, path).toBe('inside\n')
      expect(structured.path, path).toBe('real/sub/f')
    }
    await call('write_file', 'file_link', { content: 'through the link' })
    expect(await readFile(join(host, 'real/sub/f'), 'utf8')).toBe('through the link')
  })
})

describe('what is no file', () => {
  test('does not hang a reader or a writer: pipes, sockets, devices', async () => {
    await booted.exec(
      project_id,
      'mkdir odd; cd odd; mkfifo pipe; ln -s pipe to_pipe; ln -s /dev/zero to_zero',
    )
    // The container cannot make devices; should one ever be there, it is not opened.
    execFileSync('mknod', [join(host, 'odd/zero'), 'c', '1', '5'])
    for (const name of ['pipe', 'to_pipe', 'zero', 'to_zero']) {
      const from = performance.now()
      for (const action of ['read_file', 'list_dir', 'write_file']) {
        const { structured } = await call(
          action,
          `odd/${name}`,
          action === 'write_file' ? { content: '' } : {},
        )
        const { error } = structured as Answer
        expect(refusedKinds, `${action} ${name}`).toContain(error?.kind)
      }
      expect(performance.now() - from).toBeLessThan(5000)
    }
    const under = await call('read_file', 'odd/pipe/x')
    expect((under.structured as Answer).error.kind).toBe('invalid')
  })
})

describe('a race', () => {
  const rounds = 300

  /**
   * Inside, `prepare` runs once, and then `d` and `other` change places as fast as they can until `work` is done. Perl,
   * because between two programs of a shell script there is more time than between two steps of the server.
   */
  async function against(prepare: string, work: () => Promise<void>): Promise<void> {
    await booted.exec(project_id, `rm -rf race race-over; mkdir race; cd race; ${prepare}`)
    const swap = 'rename "d", "x"; rename "other", "d"; rename "d", "other"; rename "x", "d";'
    const racing = booted.exec(project_id, ['perl', '-e', `while (!-e "../race-over") { ${swap} }`], {
      working_dir: '/workspaces/default/race',
      timeout_seconds: 240,
    })
    try {
      await work()
    } finally {
      await booted.exec(project_id, 'touch race-over')
      expect((await racing).exit_code).toBe(0)
    }
  }

  /** How often each kind of answer came; nothing else than these may come. */
  async function hammer(action: string, path: string, more = {}): Promise<Record<string, number>> {
    const seen: Record<string, number> = {}
    for (let round = 0; round < rounds; round += 10) {
      const answers = await Promise.all(Array.from({ length: 10 }, () => call(action, path, more)))
      for (const { structured, is_error, text } of answers) {
        expect(text).not.toContain(treasure)
        const kind = is_error ? (structured as Answer).error.kind : 'answer'
        seen[kind] = (seen[kind] ?? 0) + 1
      }
    }
    expect(Object.keys(seen).filter((kind) => !['answer', ...refusedKinds].includes(kind))).toEqual([])
    return seen
  }

  test('of a directory against a symlink to the outside is never won: reading', async () => {
    await against(`mkdir d; echo inside > d/file; ln -s ${outside} other`, async () => {
      const seen = await hammer('read_file', 'race/d/file')
      // Both are met, or there was no race.
      expect(seen.answer).toBeGreaterThan(0)
      expect(seen.answer).toBeLessThan(rounds)
      await hammer('path_info', 'race/d/file')
      await hammer('list_dir', 'race/d')
    })
    await expectUntouched()
  })

  test('of a file against a symlink to the outside is never won: reading', async () => {
    await against(`echo inside > d; ln -s ${outside}/file other`, async () => {
      expect((await hammer('read_file', 'race/d')).answer).toBeGreaterThan(0)
    })
  })

  test('of a directory against a symlink to the outside is never won: writing', async () => {
    await against(`mkdir d; ln -s ${outside} other`, async () => {
      await hammer('write_file', 'race/d/intruder', { content: 'intruder' })
      await hammer('write_file', 'race/d/sub/intruder', { content: 'intruder' })
      await hammer('write_file', 'race/d', { content: 'intruder' })
    })
    await expectUntouched()
  })

  test('of a file against a pipe does not hang', async () => {
    await against('echo inside > d; mkfifo other', async () => {
      await hammer('read_file', 'race/d')
      await hammer('write_file', 'race/d', { content: 'x' })
    })
  })
})
