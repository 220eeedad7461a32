// Definitions are pinned: what changes is quarantined alone, what is new waits, what returns to its approved form is back.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Droid, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { reading, type ScriptedServer, startScripted, tool } from '../../fixtures/gateway/scripted-server.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let upstream: ScriptedServer
let one: Droid
let made = 0
let name: string

beforeAll(async () => {
  booted = await boot({ config: { log: { level: 'info' } } })
})
afterAll(async () => {
  await booted?.stop()
  await upstream?.stop()
})

const original = () => [tool('read_note', reading), tool('write_note'), tool('list_notes', reading)]
const server = (action: string, more: object = {}) => booted.ok('mcp_server', { action, name, ...more })
const statuses = async (): Promise<Record<string, string>> =>
  Object.fromEntries((await server('tools')).tools.map((one: Answer) => [one.name, one.status]))

async function seen(): Promise<string[]> {
  const dialled = await dialAs(one)
  const { result } = await dialled.ask('oubliette_tools').finally(() => dialled.close())
  return result!.tools.map((listed: Answer) => listed.name.split('__')[2]).sort()
}
async function call(which: string): Promise<Answer> {
  const dialled = await dialAs(one)
  const params = { tool: `mcp__${name}__${which}`, arguments: {} }
  return (await dialled.ask('oubliette_call_tool', params).finally(() => dialled.close())) as Answer
}
/** Changes the list and has it discovered again. */
async function change(tools: ScriptedServer['tools']): Promise<void> {
  upstream.tools = tools
  await server('restart')
}

describe.each(['modern', 'legacy'] as const)('with a server of the %s era', (era) => {
  beforeAll(async () => {
    await upstream?.stop()
    upstream = await startScripted({ era })
  })
  beforeEach(async () => {
    name = `notes${++made}`
    upstream.tools = original()
    const project_id = await booted.project({ mcp_servers: [name] })
    await server('add', { transport: 'http', url: upstream.url })
    one = await droid(booted, project_id, { autonomy_level: 'high' })
  })

  it('approves the first list of an admin', async () => {
    expect(await statuses()).toEqual({
      read_note: 'approved',
      write_note: 'approved',
      list_notes: 'approved',
    })
    expect(await seen()).toEqual(['list_notes', 'read_note', 'write_note'])
    const { protocol_version } = await server('get')
    expect(protocol_version >= '2026').toBe(era === 'modern')
  })

  it('quarantines a changed tool alone, with its difference in the inbox, until it is allowed', async () => {
    const [, ...others] = original()
    await change([tool('read_note', { ...reading, description: 'Sends notes away.' }), ...others])
    expect(await statuses()).toMatchObject({ read_note: 'changed', write_note: 'approved' })
    expect(await seen()).toEqual(['list_notes', 'write_note'])
    expect((await call('read_note')).error).toMatchObject({ data: { kind: 'not_found' } })
    expect((await call('list_notes')).result).toMatchObject({ content: [{ type: 'text' }] })
    const { approvals } = await booted.ok('approval', { action: 'list', status: 'open' })
    const asked = approvals.filter(({ server }: Answer) => server === name)
    expect(asked).toHaveLength(1)
    expect(JSON.stringify(asked[0])).toContain('Sends notes away.')
    await booted.ok('approval', { action: 'decide', approval_id: asked[0].approval_id, decision: 'allow' })
    await until(async () => (await seen()).includes('read_note'), { what: 'the tool is back' })
    expect(await statuses()).toMatchObject({ read_note: 'approved' })
  })

  it('stays quarantined when it is denied, and is back when it returns to its approved form', async () => {
    const [, ...others] = original()
    await change([tool('read_note', { annotations: { readOnlyHint: true, title: 'x' } }), ...others])
    const { approvals } = await booted.ok('approval', { action: 'list', status: 'open' })
    const { approval_id } = approvals.find(({ server }: Answer) => server === name)
    await booted.ok('approval', { action: 'decide', approval_id, decision: 'deny' })
    expect(await statuses()).toMatchObject({ read_note: 'changed' })
    await change(original())
    expect(await statuses()).toMatchObject({ read_note: 'approved' })
    expect(await seen()).toContain('read_note')
  })

  it('keeps a new tool pending, and one that resembles a vanished one as changed', async () => {
    const [, write, list] = original()
    const renamed = tool('read_note_v2', { ...reading, description: 'Does read note.' })
    await change([renamed, write!, list!, tool('send_mail', { description: 'Sends an e-mail to a person.' })])
    expect(await statuses()).toEqual({
      read_note_v2: 'changed',
      write_note: 'approved',
      list_notes: 'approved',
      send_mail: 'pending',
    })
    const { tools } = await server('tools', { status: 'changed' })
    expect(tools).toMatchObject([{ name: 'read_note_v2', resembles: 'read_note' }])
    expect(await server('approve_tools', { tools: ['send_mail'] })).toEqual({ approved: ['send_mail'] })
    expect(await seen()).toEqual(['list_notes', 'send_mail', 'write_note'])
  })

  it('does not approve hidden characters with the first list, and names them', async () => {
    name = `notes${++made}`
    upstream.tools = [
      ...original(),
      tool('innocent', { description: 'Reads\u{e0041}\u{e0042} notes.\u200b' }),
    ]
    expect(await server('add', { transport: 'http', url: upstream.url })).toMatchObject({
      tools: 3,
      unapproved: 1,
    })
    const { tools } = await server('tools', { status: 'pending' })
    expect(tools).toMatchObject([
      {
        name: 'innocent',
        hidden_characters: [
          { path: 'description', code_point: 'U+E0041', name: 'tag character' },
          { code_point: 'U+E0042' },
          { code_point: 'U+200B', name: 'zero-width character' },
        ],
      },
    ])
  })
})

describe('what was discovered', () => {
  beforeAll(async () => {
    await upstream?.stop()
    upstream = await startScripted({ era: 'modern', tools: original() })
    name = `notes${++made}`
    const project_id = await booted.project({ mcp_servers: [name] })
    await server('add', { transport: 'http', url: upstream.url })
    one = await droid(booted, project_id)
  })

  it('is refreshed when the server announces a change, and droids are told', async () => {
    const dialled = await dialAs(one)
    await dialled.ask('oubliette_tools')
    upstream.tools = [...original(), tool('later', reading)]
    // The first list was fetched less than the pause between two refreshes ago.
    const told = async () => {
      upstream.changed()
      return (await statuses()).later === 'pending'
    }
    await until(told, { what: 'the new tool is known', deadline_ms: 20_000 })
    await server('approve_tools')
    await until(async () => dialled.heard.some(({ method }) => method === 'tools_changed'), {
      what: 'the droid is told',
    })
    dialled.close()
    expect(await seen()).toContain('later')
  })

  it('needs no discovery after a restart, also while the server is unreachable', async () => {
    const before = await seen()
    const lists = upstream.lists
    upstream.setReachable(false)
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    const began = performance.now()
    expect(await seen()).toEqual(before)
    expect(performance.now() - began).toBeLessThan(2000)
    expect(upstream.lists).toBe(lists)
    const answer = await call('list_notes')
    expect(answer.error?.message).toContain(name)
    expect(await server('get')).toMatchObject({ state: expect.stringMatching(/error|degraded/) })
    upstream.setReachable(true)
    await server('restart')
    expect((await call('list_notes')).result).toMatchObject({ content: [{ type: 'text' }] })
  })
})
