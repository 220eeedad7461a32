import { describe, expect, test } from 'vitest'
import { widthOf } from '../../tool-command/output/text.ts'
import { createRenderer, type Piece, type RendererOptions } from './renderer.ts'

type Fields = Record<string, unknown>
const second = (at: number) => new Date(1_700_000_000_000 + at * 1000).toISOString()

/** Events, a second apart, and the pieces that they become. */
function pieces(events: Fields[], options: Partial<RendererOptions> = {}): Piece[] {
  const renderer = createRenderer({ columns: () => 80, colours: false, live: false, ...options })
  return events.flatMap((event, index) => renderer.take({ index, type: '', at: second(index), ...event }))
}
const lines = (events: Fields[], options: Partial<RendererOptions> = {}): string[] =>
  pieces(events, options).flatMap((piece) => (piece.kind === 'lines' ? piece.lines : []))
const live = (events: Fields[], options: Partial<RendererOptions> = {}): unknown[] =>
  pieces(events, options).flatMap((piece) => (piece.kind === 'live' ? [piece.text] : []))

const call = (tool_call_id: string, more: Fields) => ({ type: 'tool_call', tool_call_id, ...more })
const update = (tool_call_id: string, more: Fields) => call(tool_call_id, { partial: true, ...more })
const result = (tool_call_id: string, more: Fields) => ({
  type: 'tool_result',
  tool_call_id,
  status: 'completed',
  ...more,
})

describe('a tool call', () => {
  test('is shown when its command is known, and again with its outcome and time', () => {
    const events = [
      call('1', { title: 'bash', kind: 'execute', status: 'pending' }),
      update('1', { status: 'in_progress', input: { command: 'npm test' } }),
      result('1', { output: { output: 'ok', metadata: { exit: 0 } } }),
    ]
    expect(lines(events)).toEqual(['● $ npm test', '✓ $ npm test · 2.0s'])
    expect(lines(events, { live: true })).toEqual(['✓ $ npm test · 2.0s'])
    expect(live(events, { live: true })).toEqual(['$ bash', '$ npm test', 'working'])
  })

  test('that fails shows a short error; a command its exit code', () => {
    const failed = [
      call('1', { title: 'Read', kind: 'read', input: { filePath: '/workspaces/default/a.txt' } }),
      result('1', { status: 'failed', output: { error: 'no such file\nat line 3' } }),
      call('2', { title: 'bash', kind: 'execute', input: { command: ['bash', '-lc', 'make'] } }),
      result('2', { output: { metadata: { exit: 2 } } }),
    ]
    expect(lines(failed, { live: true })).toEqual([
      '✗ Read a.txt · 1.0s',
      '  no such file ⏎ at line 3',
      '✗ $ make · exit code 2 · 1.0s',
    ])
  })

  test.each([
    [
      { kind: 'edit', locations: [{ path: '/workspaces/w/src/a.ts' }, { path: '/b' }] },
      'Edit src/a.ts and 1 more',
    ],
    [{ kind: 'search', input: { pattern: 'x+', path: '/workspaces/w/src' } }, 'Search x+ in src'],
    [{ kind: 'fetch', input: { url: 'http://a/b' } }, 'Fetch http://a/b'],
    [{ kind: 'execute', title: '`ls -la`' }, '$ ls -la'],
    [{ kind: 'other', title: 'desk_note', input: { text: 'hi', n: 1 } }, 'desk_note text=hi n=1'],
    [{ kind: 'other', title: 'tool', input: '{"a":1}' }, 'tool a=1'],
    [{ kind: 'delete', input: { file: 'x' } }, 'Delete x'],
    [{ title: 42, kind: null, input: [1], locations: 'no', content: 'no' }, 'tool'],
  ])('%j is described as "%s"', (fields, text) => {
    expect(lines([call('1', fields), result('1', {})], { live: true })).toEqual([`✓ ${text} · 1.0s`])
  })

  test('that edits shows a short diff and how much changed', () => {
    const many = Array.from({ length: 40 }, (_, at) => `line ${at}`).join('\n')
    const diff = (oldText: string | null, newText: string) => ({
      type: 'diff',
      path: '/workspaces/default/a.ts',
      oldText,
      newText,
    })
    expect(
      lines([
        call('1', { kind: 'edit', status: 'completed', content: [diff('a\n\tb\nc\nd\n', 'a\n\tB\nc\nd\n')] }),
        result('2', { kind: 'edit', content: [diff(null, many)] }),
      ]),
    ).toEqual([
      '✓ Edit a.ts +1 -1 · 0.0s',
      '    a',
      '  -   b',
      '  +   B',
      '    c',
      '✓ Edit a.ts +40 -0 · 0.0s',
      ...Array.from({ length: 12 }, (_, at) => `  + line ${at}`),
      '  … 28 more lines',
    ])
  })

  test('that reports no diff is shown with the texts of its input', () => {
    const input = { filePath: '/workspaces/default/a.ts', content: 'one\ntwo\n' }
    expect(lines([call('1', { kind: 'edit', input }), result('1', {})], { live: true })).toEqual([
      '✓ Edit a.ts · 2 lines · 1.0s',
      '  + one',
      '  + two',
    ])
    const replaced = { file_path: 'a', old_string: 'x', new_string: 'y' }
    expect(lines([call('1', { kind: 'edit', input: replaced }), result('1', {})], { live: true })).toEqual([
      '✓ Edit a +1 -1 · 1.0s',
      '  - x',
      '  + y',
    ])
  })

  test('shows the diff of a question once', () => {
    const renderer = createRenderer({ columns: () => 80, colours: false, live: true })
    const content = [{ type: 'diff', path: 'a', oldText: 'x', newText: 'y' }]
    renderer.take({ index: 0, type: 'tool_call', tool_call_id: '1', kind: 'edit', at: second(0) })
    const tool_call = { toolCallId: '1', kind: 'edit', content }
    expect(renderer.question({ index: 1, type: 'permission_request', tool_call })).toEqual([
      '? the droid asks for permission',
      '  │ Edit a',
      '  - x',
      '  + y',
    ])
    const text = { type: 'content', content: { type: 'text', text: 'ok' } }
    const ended = { index: 2, ...result('1', { content: [text] }), at: second(2) }
    expect(renderer.take(ended)).toContainEqual({ kind: 'lines', lines: ['✓ Edit a +1 -1 · 2.0s'] })
    // Unless the edit is another one.
    renderer.take({ index: 3, type: 'tool_call', tool_call_id: '1', kind: 'edit', at: second(0) })
    renderer.question({ index: 4, type: 'permission_request', tool_call })
    const other = result('1', { content: [{ ...content[0], newText: 'z' }] })
    expect(renderer.take({ index: 5, ...other, at: second(2) })).toContainEqual({
      kind: 'lines',
      lines: ['✓ Edit a +1 -1 · 2.0s', '  - x', '  + z'],
    })
  })

  test('that never ends is shown with the end of its turn', () => {
    const events = (stop_reason: string) => [
      call('1', { kind: 'execute', input: { command: 'sleep 60' } }),
      { type: 'completion', stop_reason },
    ]
    expect(lines(events('cancelled'), { live: true })).toEqual([
      '✗ $ sleep 60 · 1.0s',
      '✗ cancelled after 0.0s',
    ])
    expect(lines(events('end_turn'), { live: true })[0]).toBe('● $ sleep 60 · 1.0s')
  })
})

describe('a turn', () => {
  const user = { type: 'message', role: 'user', text: 'hi' }
  test('ends with its time, tokens and cost, whoever reports them', () => {
    const end = { type: 'completion', stop_reason: 'end_turn' }
    const gateway = {
      type: 'usage',
      source: 'gateway',
      input_tokens: 6000,
      output_tokens: 400,
      cost_usd: 0.02,
    }
    expect(lines([user, gateway, gateway, { ...end, usage: { inputTokens: 9 } }])).toEqual([
      '✓ done in 3.0s · 12k tokens in, 800 out · $0.0400',
    ])
    expect(lines([user, { ...end, usage: { inputTokens: 9, outputTokens: 2 } }])).toEqual([
      '✓ done in 1.0s · 9 tokens in, 2 out',
    ])
    const agent = (amount: number) => ({ type: 'usage', used: 10, cost: { amount, currency: 'USD' } })
    expect(
      lines([user, agent(1.5), end, user, agent(1.75), { ...end, usage: { input_tokens: 1_500_000 } }]),
    ).toEqual(['✓ done in 2.0s · $1.50', '✓ done in 2.0s · 1.5M tokens in, 0 out · $0.2500'])
    expect(lines([user, end])).toEqual(['✓ done in 1.0s'])
  })

  test('that fails says why, once', () => {
    expect(
      lines([
        user,
        {
          type: 'completion',
          stop_reason: 'error',
          exit_code: 7,
          error: 'the script failed with exit code 7',
        },
      ]),
    ).toEqual(['✗ exit code 7 after 1.0s'])
    expect(lines([user, { type: 'completion', stop_reason: 'refusal' }])).toEqual([
      '✗ stopped after 1.0s: refusal',
    ])
    expect(
      lines([
        { type: 'error', message: 'the image failed to build\nlast line' },
        { type: 'completion', stop_reason: 'not_run' },
        { type: 'status', status: 'failed', reason: 'the image failed to build\nlast line' },
      ]),
    ).toEqual(['✗ the image failed to build', '  last line', '✗ the prompt was not run'])
    expect(lines([{ type: 'status', status: 'failed', reason: 'gone' }])).toEqual(['✗ failed: gone'])
  })

  test('shows what it waits for', () => {
    const status = (more: Fields) => ({ type: 'status', ...more })
    expect(
      live([
        status({ status: 'queued', queue_position: 2, reason: 'not enough memory' }),
        status({ status: 'preparing', step: 'building image opencode: step 4 of 9', percent: 44.4 }),
        status({ status: 'starting' }),
        status({ status: 'running' }),
        status({ status: 'idle' }),
      ]),
    ).toEqual([
      'queued at position 2: not enough memory',
      'building image opencode: step 4 of 9 · 44%',
      'starting the droid',
      'working',
      undefined,
    ])
  })
})

test('of a plan, the first is shown whole, then only what changed', () => {
  const plan = (...states: string[]) => ({
    type: 'plan',
    entries: states.map((status, at) => ({ content: `step ${at}`, status })),
  })
  expect(
    lines([plan('in_progress', 'pending'), plan('in_progress', 'pending'), plan('completed', 'in_progress')]),
  ).toEqual([
    '● Plan 0 of 2 done',
    '  ▶ step 0',
    '  ☐ step 1',
    '● Plan 1 of 2 done',
    '  ☑ step 0',
    '  ▶ step 1',
  ])
})

test('the first line names droid, model, place and session', () => {
  const started = {
    droid: 'opencode',
    project: 'site',
    workspace: 'default',
    session_id: 'gogol_0123456789abcdefghij',
  }
  const renderer = createRenderer({ columns: () => 80, colours: false, live: false })
  expect(renderer.starting({ ...started, model: 'claude-opus-4-5' })).toEqual([
    { kind: 'lines', lines: ['● opencode · claude-opus-4-5 · site/default · gogol_01234567'] },
  ])
  expect(renderer.starting({ ...started, model: null })).toMatchObject([
    { lines: ['● opencode · site/default · gogol_01234567'] },
  ])
  const [long] = renderer.starting({ ...started, model: 'm'.repeat(60), project: 'p'.repeat(60) })
  expect(widthOf(long?.kind === 'lines' ? long.lines[0]! : '')).toBe(80)
})

describe('what a droid chooses', () => {
  const attack = '\x1b]0;t\x07\x1b[2J\x9b1A\r\u202e\u2028\nrm -rf /'
  const controls = /[\p{Cc}\u202a-\u202e\u2066-\u2069\u2028]/u
  const hostile: Fields[] = [
    call(attack, { title: attack, kind: 'execute', input: { command: attack } }),
    result(attack, { status: 'failed', output: attack }),
    call('2', { title: attack, kind: attack, locations: [{ path: attack }], input: { [attack]: attack } }),
    result('2', { content: [{ type: 'diff', path: attack, oldText: attack, newText: `${attack}x` }] }),
    { type: 'plan', entries: [{ content: attack, status: attack }, null, 'x', 3] },
    { type: 'status', status: 'queued', reason: attack, queue_position: attack },
    { type: 'status', status: 'preparing', step: attack, percent: attack },
    { type: 'status', status: 'failed', reason: attack },
    { type: 'error', message: attack },
    { type: 'warning', message: attack },
    { type: 'caller_tool_request', tool: attack, arguments: { attack } },
    { type: 'completion', stop_reason: attack, error: attack, usage: attack },
    { type: 'completion', stop_reason: 'error', exit_code: 3, error: attack },
    { type: 'message', role: 'user', text: attack },
    { type: attack },
  ]

  test('has no control characters, and fits the terminal', () => {
    for (const columns of [80, 40, 20])
      for (const options of [{ live: true, messages: true }, { live: false }]) {
        const all = pieces(hostile, { columns: () => columns, ...options })
        const shown = all.flatMap((piece) =>
          piece.kind === 'lines' ? piece.lines : piece.kind === 'live' ? [piece.text ?? ''] : [],
        )
        expect(shown.length).toBeGreaterThan(10)
        for (const line of shown) expect(line).not.toMatch(controls)
        if (columns >= 40) for (const line of shown) expect(widthOf(line), line).toBeLessThanOrEqual(columns)
      }
  })

  test('is never hidden: a question shows the whole command', () => {
    const renderer = createRenderer({ columns: () => 80, colours: false, live: true })
    renderer.starting({ droid: 'agent', project: 'p', workspace: 'w', session_id: 's' })
    const command = `ls \x1b]0;\r${' '.repeat(200)}; rm -rf /\n${'x\n'.repeat(20)}`
    const shown = renderer.question({
      index: 1,
      type: 'permission_request',
      tool_call: { toolCallId: 'a', title: 'ls', kind: 'execute', rawInput: { command } },
    })
    expect(shown[0]).toBe('? agent asks for permission')
    expect(shown[1]).toContain('$ ls ␛]0;␍')
    expect(shown.join('\n')).toContain('; rm -rf /')
    expect(shown.at(-1)).toMatch(/… \d+ more lines, not shown/)
    for (const line of shown) expect(widthOf(line)).toBeLessThanOrEqual(80)
  })

  test('is shown with the arguments of an upstream tool', () => {
    const renderer = createRenderer({ columns: () => 80, colours: false, live: true })
    const request = { index: 1, type: 'tool_approval_request', server: 'github', tool: 'create\x1bissue' }
    expect(renderer.question({ ...request, kind: 'tool', arguments: { title: 'x' } })).toEqual([
      '? the droid asks for permission',
      '  │ github: create␛issue title=x',
    ])
    expect(renderer.question({ ...request, kind: 'consent', detail: { url: 'https://a' } })[1]).toBe(
      '  │ consent: github: create␛issue url=https://a',
    )
  })

  test('cannot use up the time or the memory of this program', () => {
    const started_ms = performance.now()
    const long = '\x1b]'.repeat(500_000)
    const old = Array.from({ length: 100_000 }, (_, at) => `${at}`).join('\n')
    lines([
      call('1', { title: long, kind: 'execute', input: { command: long } }),
      result('1', { status: 'failed', output: long }),
      result('2', {
        content: [{ type: 'diff', path: 'a', oldText: old, newText: old.replaceAll('1', 'x') }],
      }),
      {
        type: 'plan',
        entries: Array.from({ length: 100_000 }, (_, at) => ({ content: `${at}`, status: 'pending' })),
      },
    ])
    const many = Array.from({ length: 20_000 }, (_, at) => call(String(at), { title: 'x' }))
    const end = { type: 'completion', stop_reason: 'cancelled' }
    expect(lines([...many, end], { live: true })).toHaveLength(11)
    const [last] = live(many, { live: true }).slice(-1)
    expect(last).toBe('x (and 999 more)')
    expect(performance.now() - started_ms).toBeLessThan(8_000)
  })
})

test('colours appear only if they are wanted', () => {
  const events = [call('1', { kind: 'execute', input: { command: 'ls' } }), result('1', {})]
  expect(lines(events, { colours: true, live: true })).toEqual(['\x1b[32m✓\x1b[0m $ ls\x1b[2m · 1.0s\x1b[0m'])
  expect(lines(events).join('')).not.toContain('\x1b')
})
