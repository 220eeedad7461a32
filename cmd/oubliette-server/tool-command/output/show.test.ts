import { expect, test } from 'vitest'
import type { z } from 'zod'
import { tools } from '../../../../internal/tools/declarations/index.ts'
import { lists } from './lists.ts'
import { type Style, show } from './show.ts'
import { age, columnsOf, hasColours, shortId, widthOf, yaml } from './text.ts'

const style: Style = { width: 80, colours: false, now_ms: Date.parse('2026-01-02T00:00:00Z') }
const shown = (result: Record<string, unknown>, name?: string, more: Style = {}) =>
  show(result, name === undefined ? undefined : lists[name], { ...style, ...more }).stdout

const project = (name: string, more = {}) => ({
  project_id: '0b8f8d2c-1111-4222-8333-444455556666',
  name,
  description: 'a long text '.repeat(20),
  container: { status: 'running' },
  droid: 'opencode',
  network: 'open',
  container_type: 'base',
  created_at: '2026-01-01T21:00:00Z',
  ...more,
})

test('a declared list is a table with ages and short ids', () => {
  expect(shown({ projects: [project('one'), project('two')], next_cursor: null }, 'project list')).toBe(
    [
      'NAME  ID        STATUS   DROID     NETWORK  AGE',
      'one   0b8f8d2c  running  opencode  open     3h',
      'two   0b8f8d2c  running  opencode  open     3h',
      '',
    ].join('\n'),
  )
})

type Shape = Record<string, z.ZodType & { def: { innerType?: z.ZodType; element?: z.ZodObject } }>
const unwrapped = (schema: z.ZodType | undefined): z.ZodType | undefined => {
  let inner = schema as Shape[string] | undefined
  while (inner?.def.innerType) inner = inner.def.innerType as Shape[string]
  return inner
}
const elementOf = (schema: z.ZodType | undefined) =>
  (unwrapped(schema) as Shape[string] | undefined)?.def.element
const actions = Object.values(tools).flatMap((tool) =>
  Object.entries(tool.actions).map(([name, action]) => ({ called: `${tool.name} ${name}`, action })),
)

test('every list of a tool has declared columns', () => {
  const listed = actions.filter(({ action }) => {
    const [first] = Object.values(action.output.shape as Shape)
    return elementOf(first)?.shape !== undefined
  })
  expect(listed.length).toBeGreaterThan(10)
  expect(listed.map(({ called }) => called).filter((called) => !Object.hasOwn(lists, called))).toEqual([])
})

test.each(Object.entries(lists))('the columns of "%s" are fields of its rows', (called, list) => {
  const { action } = actions.find((one) => one.called === called)!
  const rows = elementOf((action.output.shape as Shape)[list.rows])
  const fields = new Set(Object.keys(rows?.shape ?? {}))
  // Events have further fields, which depend on their type.
  if (list.rows === 'events')
    for (const name of ['text', 'final_text', 'status', 'title', 'tool', 'message']) fields.add(name)
  for (const path of [
    list.key,
    ...(list.newest ? [list.newest] : []),
    ...list.columns.map(({ path }) => path),
  ])
    for (const one of path.split('|')) expect(fields, one).toContain(one.split('.')[0])
})

test.each(Object.entries(lists))('no line of "%s" is longer than 80 columns', (_called, list) => {
  const row: Record<string, unknown> = {}
  for (const { path, as } of list.columns) {
    const [field = '', inner] = path.split('|')[0]!.split('.')
    const value =
      as === 'age'
        ? '2020-01-01T00:00:00Z'
        : as === 'id'
          ? 'gogol_0123456789abcdef0123'
          : as === 'milliseconds'
            ? 123_456_789
            : '東京 long text\n'.repeat(30)
    row[field] = inner ? { [inner]: value } : value
  }
  for (const width of [80, 120]) {
    const { lines: _, log, ...tabular } = list
    const text = show({ [list.rows]: [row, row] }, tabular, { ...style, width }).stdout
    const lines = text.trimEnd().split('\n')
    expect(lines).toHaveLength(3)
    for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(width)
    const entries = log ? show({ [list.rows]: [row] }, list, { ...style, width }).stdout.trimEnd() : ''
    expect(entries).not.toContain('\n')
    expect(widthOf(entries)).toBeLessThanOrEqual(width)
  }
  expect(shown({ [list.rows]: [row] }, _called, { format: 'wide' })).toContain('long text')
})

test('the result of a query is a table of its columns', () => {
  const result = {
    columns: ['status', 'count', 'reason', 'count'],
    rows: [
      ['idle', 3, null, 1],
      ['', 12, null, { a: 1 }],
    ],
    truncated: false,
    duration_ms: 4,
  }
  expect(shown(result)).toBe(
    [
      'status  count  reason  count',
      'idle    3      NULL    1',
      `''      12     NULL    {"a":1}`,
      '',
      '2 rows in 4 ms',
      '',
    ].join('\n'),
  )
  expect(shown({ ...result, rows: [], truncated: true })).toBe(
    '0 rows in 4 ms, and there are more: use --limit\n',
  )
  const wide = shown({ ...result, rows: [['x'.repeat(300), 1, 'y\x1b[31m'.repeat(100), 2]] })
  for (const line of wide.split('\n')) expect(widthOf(line)).toBeLessThanOrEqual(80)
  expect(wide).not.toContain('\x1b')
  expect(JSON.parse(shown(result, undefined, { format: 'json' }))).toEqual(result)
})

test('entries of the log are lines with a time, a level, a message and fields', () => {
  const entry = { at: '2026-01-01T00:00:00Z', level: 'warn', message: 'slow\x1b[2J', project_id: 'p' }
  const text = shown({ entries: [entry], dropped: 0 }, 'diagnostics server_log')
  expect(text).toMatch(/^\d\d:\d\d:\d\d warn {2}slow project_id=p\n$/)
})

test('-o wide shows full ids and more columns; -q full ids; -o name names; yaml and json everything', () => {
  const result = { projects: [project('one')], next_cursor: null }
  expect(shown(result, 'project list', { format: 'wide' })).toContain('0b8f8d2c-1111-4222-8333-444455556666')
  expect(shown(result, 'project list', { quiet: true })).toBe('0b8f8d2c-1111-4222-8333-444455556666\n')
  expect(shown(result, 'project list', { format: 'name' })).toBe('one\n')
  expect(JSON.parse(shown(result, 'project list', { format: 'json' }))).toEqual(result)
  expect(shown(result, 'project list', { format: 'yaml' })).toContain(
    '- project_id: "0b8f8d2c-1111-4222-8333-444455556666"\n  name: one\n',
  )
  expect(shown({ session_id: 'gogol_1', project_id: 'p' }, undefined, { quiet: true })).toBe('gogol_1\n')
})

test('what a container wrote cannot control the terminal', () => {
  const text = shown({ projects: [project('a\x1b[31mb\nc\x07')] }, 'project list')
  expect(text).toContain('ab c ')
  expect(text.replaceAll('\n', '')).not.toMatch(/\p{Cc}/u)
})

test.each([
  ['ideographs', '東京'.repeat(60), 240],
  ['emoji', '🚀✨⚡'.repeat(40), 240],
  ['emoji by a variation selector', '❤️'.repeat(60), 120],
  ['a joined sequence', '👨‍👩‍👧‍👦'.repeat(20), 160],
  ['combining marks', 'e\u0301'.repeat(60), 60],
  ['Hebrew with embedded controls', '\u202eשלום\u2066 עולם'.repeat(20), 180],
])('a name of %s is clipped by the columns it takes', (_what, name, width) => {
  expect(widthOf(name)).toBe(width)
  const lines = shown({ projects: [project(name), project('x')] }, 'project list')
    .trimEnd()
    .split('\n')
  expect(lines).toHaveLength(3)
  for (const line of lines) {
    expect(widthOf(line)).toBeLessThanOrEqual(80)
    expect(line).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/)
  }
})

test('colours mark the status only', () => {
  const text = shown({ projects: [project('one')] }, 'project list', { colours: true })
  expect(text.split('\x1b[32mrunning\x1b[0m')).toHaveLength(2)
  expect(hasColours({ isTTY: true }, { NO_COLOR: '1' })).toBe(false)
  expect(hasColours({ isTTY: true }, {})).toBe(true)
  expect(hasColours({}, {})).toBe(false)
})

test('the width is COLUMNS, else that of the terminal, else 80', () => {
  expect(columnsOf({}, {})).toBe(80)
  expect(columnsOf({ columns: 100 }, {})).toBe(100)
  expect(columnsOf({ columns: 100 }, { COLUMNS: '60' })).toBe(60)
})

test.each([
  ['2026-01-01T23:59:58Z', '2s'],
  ['2026-01-01T23:57:00Z', '3m'],
  ['2025-12-30T00:00:00Z', '3d'],
  ['2023-12-30T00:00:00Z', '2y'],
  ['2026-01-02T05:00:30Z', 'in 5h'],
])('the age of %s is %s', (time, text) => {
  expect(age(time, style.now_ms)).toBe(text)
})

test('ids are shortened, names are not', () => {
  expect(shortId('gogol_0123456789abcdef0123')).toBe('gogol_01234567')
  expect(shortId('0b8f8d2c-1111-4222-8333-444455556666')).toBe('0b8f8d2c')
  expect(shortId('default')).toBe('default')
  expect(shortId('my_workspace')).toBe('my_workspace')
})

test('YAML quotes what it would read as something else', () => {
  expect(yaml({ a: [], b: [{ c: 'x', d: 'yes' }, 'no: x'], e: { f: null, g: '' }, h: '1' })).toBe(
    'a: []\nb:\n- c: x\n  d: "yes"\n- "no: x"\ne:\n  f: null\n  g: ""\nh: "1"',
  )
})

test('a list without a declaration shows its plain fields, with other fields below it', () => {
  const things = [
    { thing_id: 'a', name: 'one', limits: { cpus: 1 }, next_runs: ['03:00', '04:00'] },
    { thing_id: 'bbb', name: 'two', limits: { cpus: 2 } },
  ]
  expect(shown({ things, next_cursor: null, total: 2 })).toBe(
    'THING ID  NAME  NEXT RUNS\na         one   03:00, 04:00\nbbb       two   -\n\ntotal  2\n',
  )
})

test('an empty list is reported as such', () => {
  expect(shown({ projects: [], next_cursor: null })).toBe('no projects\n')
})

test('an object is printed as a record, even if it contains lists; long text is wrapped', () => {
  expect(shown({ id: 'x', requires: [] })).toBe('id        x\nrequires  []\n')
  expect(shown({ name: 'one', limits: { cpus: 1 } })).toBe('name    one\nlimits\n  cpus  1\n')
  expect(shown({ next_runs: ['03:00', '04:00'] })).toBe('next_runs  03:00, 04:00\n')
  for (const line of shown({ description: 'a long text '.repeat(20) }).split('\n'))
    expect(line.length).toBeLessThanOrEqual(80)
})

test('the result of a command is its output and its exit code', () => {
  expect(show({ exit_code: 3, stdout: 'out', stderr: 'err', truncated: true, duration_ms: 5 })).toEqual({
    stdout: 'out',
    stderr: 'erroubliette: the output was truncated\n',
    code: 3,
  })
})

test('the output of a container is printed as it is', () => {
  const lines = [
    { stream: 'stdout', at: '2026-01-01T00:00:00Z', text: 'x'.repeat(200) },
    { stream: 'stderr', at: '2026-01-01T00:00:00Z', text: 'two' },
  ]
  expect(shown({ lines }, 'container logs')).toBe(`${'x'.repeat(200)}\ntwo\n`)
})
