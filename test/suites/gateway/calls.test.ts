// Calls of upstream tools: each is a row before it leaves. After a kill of the server, what may be repeated is repeated, and
// what may have taken effect is reported as such.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Dialled, type Droid, dialAs, droid } from '../../fixtures/droid-socket.ts'
import {
  reading,
  type ScriptedServer,
  startScripted,
  textResult,
  tool,
} from '../../fixtures/gateway/scripted-server.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let upstream: ScriptedServer
let one: Droid
let project_id: string
const open: Dialled[] = []

const name = 'notes'
const careful = { annotations: { readOnlyHint: false, destructiveHint: false } }
const strict = {
  inputSchema: {
    type: 'object',
    properties: { count: { type: 'integer', minimum: 1 } },
    required: ['count'],
    additionalProperties: false,
  },
}
const tools = [
  tool('read_note', reading),
  tool('add_note', careful),
  tool('set_note', { annotations: { destructiveHint: false, idempotentHint: true } }),
  tool('count_notes', { ...reading, ...strict }),
  tool('delete_note', { annotations: { destructiveHint: true } }),
]

beforeAll(async () => {
  upstream = await startScripted({ era: 'modern', tools })
  booted = await boot({ config: { log: { level: 'info' } } })
  project_id = await booted.project({ mcp_servers: [name] })
  await booted.ok('mcp_server', {
    action: 'add',
    name,
    transport: 'http',
    url: upstream.url,
    timeout_seconds: 2,
    options: { max_result_bytes: 20_000 },
  })
  one = await droid(booted, project_id)
})
afterAll(async () => {
  for (const dialled of open) dialled.close()
  await booted?.stop()
  await upstream?.stop()
})
beforeEach(() => {
  upstream.calls.length = 0
  upstream.answers = {}
})

async function ask(which: string, args: object = {}, call_id: string = randomUUID()): Promise<Answer> {
  const dialled = await dialAs(one)
  open.push(dialled)
  return (await dialled.ask('oubliette_call_tool', {
    tool: `mcp__${name}__${which}`,
    arguments: args,
    call_id,
  })) as Answer
}
const rowOf = async (call_id: string): Promise<Answer> =>
  (await booted.query<Answer>('select * from upstream_calls where call_id = $1', [call_id]))[0]!
const untilRow = async (call_id: string, status: string): Promise<Answer> =>
  await until(
    async () => {
      const row = await rowOf(call_id)
      return row?.status === status && row
    },
    { what: `the call is ${status}` },
  )
/** A tool that waits until it is released. */
function held(which: string): { release: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>()
  upstream.answers[which] = async () => {
    await promise
    return textResult('late')
  }
  return { release: resolve }
}
async function killAndRestart(): Promise<void> {
  await booted.server.restart('SIGKILL')
  await booted.reconnect()
}

describe('a call', () => {
  it('is checked against the schema before it leaves', async () => {
    const { error } = await ask('count_notes', { count: 0 })
    expect(error).toMatchObject({ data: { kind: 'invalid' } })
    expect(error.message).toContain('count')
    expect(upstream.calls).toEqual([])
    expect((await ask('count_notes', { count: 1 })).result.content).toMatchObject([{ type: 'text' }])
  })

  it('passes results as they are, errors and structured content included', async () => {
    const result = {
      content: [
        { type: 'text', text: 'no such note' },
        { type: 'image', data: 'AAAA', mimeType: 'image/png' },
        { type: 'resource_link', uri: 'note://1', name: 'one' },
      ],
      structuredContent: { found: false },
      isError: true,
    }
    upstream.answers.read_note = async () => result
    expect((await ask('read_note')).result).toMatchObject(result)
  })

  it('that is repeated gets the stored result, and is not sent again', async () => {
    const call_id = randomUUID()
    const first = await ask('add_note', { text: 'a' }, call_id)
    await untilRow(call_id, 'done')
    const again = await ask('add_note', { text: 'a' }, call_id)
    expect(again.result.content).toEqual(first.result.content)
    expect(upstream.calls).toHaveLength(1)
    expect((await ask('add_note', { text: 'b' }, call_id)).error).toMatchObject({
      data: { kind: 'conflict' },
    })
  })

  it('whose result is too large is an error that says so', async () => {
    upstream.answers.read_note = async () => textResult('x'.repeat(50_000))
    const answer = await ask('read_note')
    expect(answer.result?.isError ?? answer.error).toBeTruthy()
    expect(JSON.stringify(answer)).toMatch(/20000 bytes|sent too much/)
    upstream.answers = {}
    expect((await ask('read_note')).result.content).toMatchObject([{ type: 'text' }])
  })

  it('that times out after it was sent has an unknown outcome if it may not be repeated', async () => {
    const { release } = held('add_note')
    const call_id = randomUUID()
    const { result } = await ask('add_note', {}, call_id)
    release()
    expect(result).toMatchObject({
      isError: true,
      structuredContent: { error: { kind: 'outcome_unknown', server: name, tool: 'add_note' } },
    })
    expect(result.structuredContent.error.sent_at).toBeTruthy()
    expect(await untilRow(call_id, 'outcome_unknown')).toMatchObject({ repeatable: false })
  })

  it('is refused if the project disables the tool or the whole server', async () => {
    for (const disabled of [`mcp__${name}__read_note`, `mcp__${name}`]) {
      await booted.ok('project', { action: 'update', project_id, disabled_tools: [disabled] })
      const refused = async () => (await ask('read_note')).error?.data.kind === 'forbidden'
      await until(refused, { what: `${disabled} is disabled` })
    }
    await booted.ok('project', { action: 'update', project_id, disabled_tools: [] })
    await until(async () => (await ask('read_note')).result !== undefined, { what: 'it is enabled' })
  })

  it('of a destructive tool waits for its approval, and its reason reaches the model', async () => {
    const waiting = ask('delete_note', { text: 'x' })
    const asked = await until(
      async () => {
        const { approvals } = await booted.ok('approval', { action: 'list', status: 'open', project_id })
        return approvals.find(({ kind }: Answer) => kind === 'tool')
      },
      { what: 'the call is asked' },
    )
    expect(upstream.calls).toEqual([])
    await booted.ok('approval', {
      action: 'decide',
      approval_id: asked.approval_id,
      decision: 'deny',
      reason: 'keep the notes',
    })
    expect((await waiting).error.message).toContain('keep the notes')
    expect(upstream.calls).toEqual([])
  })

  it('uses the cache only where the server has one and the tool only reads', async () => {
    await booted.ok('mcp_server', { action: 'update', name, options: { cache_seconds: 60 } })
    for (const which of ['read_note', 'add_note']) {
      upstream.calls.length = 0
      await ask(which, { text: 'cached' })
      await ask(which, { text: 'cached' })
      await ask(which, { text: 'other' })
      expect(upstream.calls).toHaveLength(which === 'read_note' ? 2 : 3)
    }
    await booted.ok('mcp_server', { action: 'update', name, options: { cache_seconds: 0 } })
  })
})

describe('a kill of the server', () => {
  it('during a call that may take effect: the repeat gets the facts, and nothing is sent twice', async () => {
    held('add_note')
    const call_id = randomUUID()
    void ask('add_note', { text: 'once' }, call_id)
    await until(async () => upstream.calls.length === 1, { what: 'the call has arrived' })
    expect((await rowOf(call_id)).status).toBe('sent')
    await killAndRestart()
    upstream.answers = {}
    const { result } = await ask('add_note', { text: 'once' }, call_id)
    expect(result).toMatchObject({
      isError: true,
      structuredContent: { error: { kind: 'outcome_unknown', tool: 'add_note', server: name } },
    })
    expect(upstream.calls).toHaveLength(1)
    expect((await rowOf(call_id)).status).toBe('outcome_unknown')
  })

  it.each(['read_note', 'set_note'])(
    'during a call of %s, which may be repeated: the repeat is sent',
    async (which) => {
      held(which)
      const call_id = randomUUID()
      void ask(which, { text: 'again' }, call_id)
      await until(async () => upstream.calls.length === 1, { what: 'the call has arrived' })
      await killAndRestart()
      upstream.answers = {}
      const { result } = await ask(which, { text: 'again' }, call_id)
      expect(result.isError).toBeUndefined()
      expect(upstream.calls).toHaveLength(2)
      await untilRow(call_id, 'done')
    },
  )

  it('after the end of a call: the repeat gets the stored result', async () => {
    const call_id = randomUUID()
    await ask('add_note', { text: 'done' }, call_id)
    await untilRow(call_id, 'done')
    await killAndRestart()
    const { result } = await ask('add_note', { text: 'done' }, call_id)
    expect(JSON.stringify(result.content)).toContain('done')
    expect(upstream.calls).toHaveLength(1)
  })

  it('while a call waits for its approval: the decision counts, and the call runs once', async () => {
    const call_id = randomUUID()
    void ask('delete_note', { text: 'y' }, call_id)
    const asked = await until(
      async () => {
        const { approvals } = await booted.ok('approval', { action: 'list', status: 'open', project_id })
        return approvals.find(({ kind }: Answer) => kind === 'tool')
      },
      { what: 'the call is asked' },
    )
    await killAndRestart()
    await booted.ok('approval', { action: 'decide', approval_id: asked.approval_id, decision: 'allow' })
    const { result } = await ask('delete_note', { text: 'y' }, call_id)
    expect(result.content).toMatchObject([{ type: 'text' }])
    await untilRow(call_id, 'done')
    await ask('delete_note', { text: 'y' }, call_id)
    expect(upstream.calls).toHaveLength(1)
  })

  it('leaves an audit row of every call, settled', async () => {
    const rows = await until(
      async () => {
        const found = await booted.query<Answer>(
          `select outcome, count(*)::int as calls from audit where tool = 'mcp:${name}' group by 1`,
        )
        return !found.some(({ outcome }) => outcome === 'pending') && found
      },
      { what: 'all are settled' },
    )
    const outcomes = Object.fromEntries(rows.map(({ outcome, calls }) => [outcome, calls]))
    // A row for each kill in the middle.
    expect(outcomes.unknown).toBeGreaterThanOrEqual(3)
    expect(outcomes.ok).toBeGreaterThan(5)
  })
})
