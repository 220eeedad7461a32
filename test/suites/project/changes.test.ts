import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project()
})
afterAll(() => booted?.stop())

const write = (path: string, content: string) =>
  booted.ok('workspace', { action: 'write_file', project_id, path: `openspec/changes/${path}`, content })

test('a project without OpenSpec has no changes and no tasks', async () => {
  expect(await booted.ok('project_changes', { project_id })).toEqual({ changes: [], truncated: false })
  expect(await booted.ok('project_tasks', { project_id })).toEqual({
    tasks: [],
    done: 0,
    total: 0,
    truncated: false,
  })
})

test('changes are listed with their title and progress', async () => {
  await write('add-login/proposal.md', '# Add a login\n\n## Why\nBecause.\n')
  await write(
    'add-login/tasks.md',
    '## 1. Server\n- [x] 1.1 Check passwords\n- [ ] 1.2 Keep sessions\n\n## 2. Page\r\n* [X] 2.1 Draw it\n- not a task\n',
  )
  await write('bare/notes.md', 'nothing else')
  await write('finished/proposal.md', '# Finished\n')
  await write('finished/tasks.md', '- [x] all of it\n')
  await write('fresh/tasks.md', '- [ ] first\n')
  await write('archive/2026-01-01-old/proposal.md', '# Old\n')
  await write('archive/2026-01-01-old/tasks.md', '- [x] 1. done\n')
  await write('stray.md', 'not a change')

  const { changes } = await booted.ok('project_changes', { project_id })
  const path = (name: string) => `openspec/changes/${name}`
  expect(changes).toEqual([
    {
      change: 'add-login',
      title: 'Add a login',
      path: path('add-login'),
      state: 'in_progress',
      tasks_done: 2,
      tasks_total: 3,
    },
    { change: 'bare', title: null, path: path('bare'), state: 'proposed', tasks_done: 0, tasks_total: 0 },
    {
      change: 'finished',
      title: 'Finished',
      path: path('finished'),
      state: 'complete',
      tasks_done: 1,
      tasks_total: 1,
    },
    { change: 'fresh', title: null, path: path('fresh'), state: 'proposed', tasks_done: 0, tasks_total: 1 },
  ])
  const all = await booted.ok('project_changes', { project_id, include_archived: true })
  expect(all.changes).toHaveLength(5)
  expect(all.changes[4]).toMatchObject({ change: '2026-01-01-old', title: 'Old', state: 'archived' })
})

test('tasks are listed with their section and number, of all changes or of one', async () => {
  const one = await booted.ok('project_tasks', { project_id, change: 'add-login' })
  expect(one).toEqual({
    tasks: [
      { change: 'add-login', number: '1.1', section: '1. Server', text: 'Check passwords', done: true },
      { change: 'add-login', number: '1.2', section: '1. Server', text: 'Keep sessions', done: false },
      { change: 'add-login', number: '2.1', section: '2. Page', text: 'Draw it', done: true },
    ],
    done: 2,
    total: 3,
    truncated: false,
  })
  expect(await booted.ok('project_tasks', { project_id })).toMatchObject({ done: 3, total: 5 })
  expect(await booted.ok('project_tasks', { project_id, change: '2026-01-01-old' })).toMatchObject({
    total: 1,
  })
  expect(await booted.fault('project_tasks', { project_id, change: 'nothing' })).toMatchObject({
    kind: 'not_found',
    hint: expect.stringContaining('project_changes'),
  })
  for (const change of ['../x', 'a/b', ''])
    expect(await booted.fault('project_tasks', { project_id, change })).toMatchObject({ kind: 'invalid' })
})

test('files that a droid replaces do no harm', async () => {
  await booted.ok('container', { action: 'start', project_id })
  await booted.exec(
    project_id,
    'cd openspec/changes; ln -s /etc out; mkdir odd; ln -s /etc/passwd odd/tasks.md; mkfifo odd/proposal.md; mkdir -p dir/tasks.md; mkdir bin; head -c 2000000 /dev/urandom > bin/tasks.md',
  )
  const { changes } = await booted.ok('project_changes', { project_id })
  const names = changes.map(({ change }: { change: string }) => change)
  expect(names).toEqual(expect.arrayContaining(['add-login', 'odd', 'dir', 'bin']))
  expect(names).not.toContain('out')
  expect(JSON.stringify(await booted.ok('project_tasks', { project_id }))).not.toContain('root:')
})
