import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/agents/scripted-agent.ts'
import { end, get, history, say, spawn, textOf } from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { connect } from '../../harness/client.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({
    config: { droids: scriptedDroids, limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } },
  })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

describe('spawning again', () => {
  test('resumes the latest session of the workspace unless a new one is requested', async () => {
    const workspace_id = 'ws-resume'
    const more = { workspace_id, create_workspace: true, new_session: false }
    const first = await spawn(booted, project_id, 'x=1; echo first', more)
    const second = await spawn(booted, project_id, 'echo second', more)
    expect(second).toMatchObject({ session_id: first.session_id, spawned: false, turns: 2 })
    const other = await spawn(booted, project_id, 'echo third', { ...more, new_session: true })
    expect(other.session_id).not.toBe(first.session_id)
    const latest = await booted.ok('session', {
      action: 'message',
      project_id,
      workspace_id,
      message: 'echo fourth',
      wait_seconds: 30,
    })
    expect(latest).toMatchObject({ session_id: other.session_id, final_text: 'fourth\n' })
    await end(booted, other.session_id)
    // The latest that is not over for good is the first.
    expect((await spawn(booted, project_id, 'echo fifth', more)).session_id).toBe(first.session_id)
    await end(booted, first.session_id)
    const fresh = await booted.ok('session', {
      action: 'message',
      project_id,
      workspace_id,
      message: 'echo sixth',
      wait_seconds: 30,
    })
    expect(fresh).toMatchObject({ spawned: true, final_text: 'sixth\n' })
  })

  test('with another droid starts a session of that droid, and leaves the session of the first one as it is', async () => {
    await putAgent(booted, project_id)
    const more = { workspace_id: 'ws-droids', create_workspace: true, new_session: false }
    const shell = await spawn(booted, project_id, 'echo shell', more)
    const scripted = await spawn(booted, project_id, 'echo agent', { ...more, droid: 'scripted' })
    expect(scripted).toMatchObject({ droid: 'scripted', spawned: true, final_text: 'agent' })
    expect(scripted.session_id).not.toBe(shell.session_id)
    expect(await get(booted, shell.session_id)).toMatchObject({ droid: 'shell', turns: 1 })
    const again = await spawn(booted, project_id, 'echo again', { ...more, droid: 'scripted' })
    expect(again).toMatchObject({ session_id: scripted.session_id, spawned: false, turns: 2 })
    const back = await spawn(booted, project_id, 'echo back', { ...more, droid: 'shell' })
    expect(back).toMatchObject({ session_id: shell.session_id, spawned: false, turns: 2 })
    for (const { session_id } of [shell, scripted]) await end(booted, session_id)
  })

  test('with a droid that does not exist is refused, with a hint that names the droids', async () => {
    const refused = await booted.fault('session', {
      action: 'spawn',
      project_id,
      prompt: 'x',
      droid: 'nobody',
    })
    expect(refused).toMatchObject({ kind: 'invalid', hint: expect.stringContaining('shell') })
  })
})

describe('a session that was spawned with more or with something else', () => {
  test('is not resumed by a spawn that asks for another model, autonomy or scope', async () => {
    const more = { workspace_id: 'ws-fits', create_workspace: true, new_session: false }
    const plain = await spawn(booted, project_id, 'echo plain', more)
    const same = await spawn(booted, project_id, 'echo same', {
      ...more,
      autonomy_level: plain.autonomy_level,
    })
    expect(same.session_id).toBe(plain.session_id)
    for (const wish of [
      { model: 'another' },
      { autonomy_level: 'low' },
      { api_scope: `project:${project_id}` },
      { tools_disallowed: ['Bash'] },
    ]) {
      const other = await spawn(booted, project_id, 'echo other', { ...more, ...wish })
      expect(other, JSON.stringify(wish)).toMatchObject({ spawned: true })
      const again = await spawn(booted, project_id, 'echo again', { ...more, ...wish })
      expect(again.session_id, JSON.stringify(wish)).toBe(other.session_id)
    }
  })

  test('takes no message from a token that holds less than its key', async () => {
    // Beyond the project only with a grant, and there a lesser token does not act at all.
    const granted = await booted.project({ api_scope_grant: 'admin' })
    const strong = await spawn(booted, granted, 'echo strong', { api_scope: 'admin' })
    const { token } = await booted.ok('token', {
      action: 'create',
      name: 'weak',
      scope: `project:${granted}`,
    })
    const weak = await connect(booted.server, token)
    const attempts = [
      { action: 'message', session_id: strong.session_id, message: 'oubliette-client call token_list {}' },
      { action: 'spawn', project_id: granted, prompt: 'oubliette-client call token_list {}' },
    ]
    for (const attempt of attempts)
      expect(await weak.call('session', attempt)).toMatchObject({
        is_error: true,
        structured: { error: { kind: 'forbidden' } },
      })
    expect(await get(booted, strong.session_id)).toMatchObject({ turns: 1 })
    await weak.close()
  })
})

describe('an idempotency key', () => {
  const spawnWith = (idempotency_key: string, prompt: string) =>
    spawn(booted, project_id, prompt, { idempotency_key })

  test('returns the first session again, and refuses a different request', async () => {
    const first = await spawnWith('key-1', 'echo once')
    const again = await spawnWith('key-1', 'echo once')
    expect(again).toMatchObject({ session_id: first.session_id, turn_id: first.turn_id, turns: 1 })
    const refused = await booted.fault('session', {
      action: 'spawn',
      project_id,
      prompt: 'echo other',
      new_session: true,
      idempotency_key: 'key-1',
    })
    expect(refused.kind).toBe('conflict')
    expect(textOf(await history(booted, first.session_id))).toBe('once\n')
  })

  test('holds for requests that come at the same moment', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => spawnWith('key-2', 'echo once')))
    expect(new Set(all.map((session) => session.session_id)).size).toBe(1)
    expect(textOf(await history(booted, all[0]!.session_id))).toBe('once\n')
  })
})

describe('the workspace of a session', () => {
  const where = async (more: object) => (await spawn(booted, project_id, 'pwd', more)).final_text.trim()

  test('is found as the contract says', async () => {
    expect(await where({})).toBe('/workspaces/default')
    const made = await where({ create_workspace: true })
    expect(made).toMatch(/^\/workspaces\/.+/)
    expect(made).not.toBe('/workspaces/default')
    expect(await where({ workspace_id: made.slice('/workspaces/'.length) })).toBe(made)
    expect(await where({ workspace_id: 'mine', create_workspace: true })).toBe('/workspaces/mine')
    const refused = await booted.fault('session', {
      action: 'spawn',
      project_id,
      prompt: 'pwd',
      workspace_id: 'not-there',
    })
    expect(refused.kind).toBe('not_found')
  })

  test('is a new one for each session where the project isolates workspaces', async () => {
    const isolated = await booted.project({ workspace_isolation: true })
    const inside = async (more: object = {}) => (await spawn(booted, isolated, 'pwd', more)).workspace_id
    const [first, second] = [await inside(), await inside()]
    expect(first).not.toBe(second)
    expect([first, second]).not.toContain('default')
    expect(await inside({ workspace_id: first })).toBe(first)
  })

  test('gets the attachments before the prompt is read', async () => {
    const attachments = [
      { name: 'note.txt', data: 'grüße\n' },
      { name: 'raw.bin', encoding: 'base64', data: Buffer.from([0, 255, 10, 1]).toString('base64') },
    ]
    const prompt = 'find . -name note.txt -exec cat {} +; find . -name raw.bin -exec od -An -tu1 {} +'
    const session = await spawn(booted, project_id, prompt, { attachments, create_workspace: true })
    expect(session.final_text).toMatch(/grüße\n\s+0 255\s+10\s+1\n/)
    const [, said] = await history(booted, session.session_id)
    expect(said?.attachments).toEqual(['note.txt', 'raw.bin'])
    const next = await say(booted, session.session_id, 'find . -name later.txt -exec cat {} +', {
      attachments: [{ name: 'later.txt', data: 'later' }],
    })
    expect(next.final_text).toBe('later')
  })
})

describe('listing and cleaning up', () => {
  test('pages through the sessions of a project, oldest first, by status', async () => {
    const own = await booted.project()
    const ids = []
    for (const n of [1, 2, 3, 4, 5]) ids.push((await spawn(booted, own, `echo ${n}`)).session_id)
    await end(booted, ids[1])
    await end(booted, ids[3])
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const page = await booted.ok('session', {
        action: 'list',
        project_id: own,
        limit: 2,
        ...(cursor ? { cursor } : {}),
      })
      expect(page.sessions.length).toBeLessThanOrEqual(2)
      seen.push(...page.sessions.map((session: { session_id: string }) => session.session_id))
      cursor = page.next_cursor ?? undefined
    } while (cursor)
    expect(seen).toEqual(ids)
    const of = async (status: string) =>
      (await booted.ok('session', { action: 'list', project_id: own, status })).sessions.map(
        (session: { session_id: string }) => session.session_id,
      )
    expect(await of('completed')).toEqual([ids[1], ids[3]])
    expect(await of('idle')).toEqual([ids[0], ids[2], ids[4]])
    expect(await of('failed')).toEqual([])
    // Ended sessions go with their events; the others stay.
    const kept = await booted.ok('session', { action: 'cleanup', project_id: own })
    expect(kept.removed).toEqual([])
    const { removed } = await booted.ok('session', { action: 'cleanup', project_id: own, max_age_hours: 0 })
    expect(removed.sort()).toEqual([ids[1], ids[3]].sort())
    expect((await booted.fault('session', { action: 'get', session_id: ids[1] })).kind).toBe('not_found')
    expect(
      await booted.query('select 1 from events where session_id = any ($1)', [[ids[1], ids[3]]]),
    ).toEqual([])
    expect((await get(booted, ids[0])).status).toBe('idle')
  })
})
