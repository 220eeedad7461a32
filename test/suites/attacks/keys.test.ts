// Attacks on the keys of sessions: reading one, using it for more than its project, and leaving something behind that
// outlasts it.

import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type Call,
  expectKinds,
  listed,
  mint,
  statusOf,
  withKey,
  withToken,
} from '../../fixtures/attacks/authority.ts'
import { type Droid, dial, droid, keyOf, socketOf } from '../../fixtures/droid-socket.ts'
import { end, get, history, untilStatus } from '../../fixtures/sessions.ts'
import { type Booted, boot, uniqueName } from '../../harness/booted.ts'

let booted: Booted
/** Without a grant, and with the grant `admin`. */
let plain: string
let granted: string

beforeAll(async () => {
  booted = await boot({
    config: {
      log: { level: 'warn' },
      limits: { max_active_sessions: 500, max_spawns_per_minute: 1000, max_agents_per_session: 500 },
    },
  })
  ;[plain, granted] = await Promise.all([booted.project(), booted.project({ api_scope_grant: 'admin' })])
  await Promise.all(
    [plain, granted].map((project_id) => booted.ok('container', { action: 'start', project_id })),
  )
})
afterAll(() => booted?.stop())

const keysInProc = `for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ 2>/dev/null; done | sed -n 's/^OUBLIETTE_API_KEY=//p' | sort -u`
const mintInside = (key: string) =>
  `OUBLIETTE_API_KEY=${key} /opt/oubliette/oubliette-client call token_create '{"name":"stolen","scope":"admin"}'`
const refusedSpawn = (project_id: string, api_scope: string) =>
  booted.fault('session', { action: 'spawn', project_id, prompt: 'true', new_session: true, api_scope })
const asDroid = (session_id: string, project_id: string, generation = 1): Droid => ({
  session_id,
  project_id,
  api_key: keyOf(booted, session_id, generation),
  socket: socketOf(booted, project_id),
})

describe('reading a key from /proc', () => {
  test('gives a token of the project nothing beyond the project: no key in it may do more', async () => {
    expect((await refusedSpawn(plain, 'admin')).kind).toBe('forbidden')
    const one = await droid(booted, plain, { api_scope: `project:${plain}` })
    const { token } = await mint(booted, `project:${plain}`)
    const thief = await withToken(booted, token)
    // The control: one container is one trust domain, so the key itself is there to be read.
    const exec = async (command: string) =>
      (await thief('container', { action: 'exec', project_id: plain, command })).result
    expect((await exec(keysInProc)).stdout).toContain(one.api_key)
    const use = (call: string) =>
      exec(`OUBLIETTE_API_KEY=${one.api_key} /opt/oubliette/oubliette-client call ${call}`)
    expect((await use(`project_get '{"project_id":"${plain}"}'`)).exit_code).toBe(0)
    for (const call of [
      `token_create '{"name":"x","scope":"admin"}'`,
      `project_create '{"name":"${uniqueName()}"}'`,
      `project_get '{"project_id":"${granted}"}'`,
      `container_exec '{"project_id":"${granted}","command":"true"}'`,
      `session_spawn '{"project_id":"${plain}","prompt":"true","new_session":true,"api_scope":"admin"}'`,
    ]) {
      const { exit_code, stdout } = await use(call)
      expect(exit_code, call).toBe(1)
      expect(JSON.parse(stdout).error.kind, call).toMatch(/^(forbidden|not_found)$/)
    }
    await thief.close()
    await end(booted, one.session_id)
  })

  test('is not possible for it where a key may do more, and what an admin mints there ends with the session', async () => {
    const one = await droid(booted, granted, { api_scope: 'admin' })
    const { token } = await mint(booted, `project:${granted}`)
    const thief = await withToken(booted, token)
    const theft = { action: 'exec', project_id: granted, command: keysInProc }
    expectKinds([await thief('container', theft)], 'forbidden')
    // The control: an admin may act there, finds the key, and it mints.
    expect((await booted.exec(granted, keysInProc)).stdout).toContain(one.api_key)
    const minted = JSON.parse((await booted.exec(granted, mintInside(one.api_key))).stdout)
    expect(await statusOf(booted, minted.token)).toBe(200)
    await end(booted, one.session_id)
    expect(await statusOf(booted, minted.token)).toBe(401)
    expect((await booted.exec(granted, mintInside(one.api_key))).exit_code).toBe(1)
    await thief.close()
  })
})

describe('an api_scope beyond the project', () => {
  test('is refused to every caller without a grant, over every interface', async () => {
    const beyond = ['admin', 'admin:ro', `project:${granted}`, `project:${granted}:ro`]
    for (const api_scope of beyond) {
      expect((await refusedSpawn(plain, api_scope)).kind).toBe('forbidden')
      const message = { action: 'message', project_id: plain, message: 'true', api_scope }
      expect((await booted.fault('session', message)).kind).toBe('forbidden')
    }
    // An agent of another project that holds everything gives a session of this one no more than its project either.
    const strong = await droid(booted, granted, { api_scope: 'admin' })
    const call = await withKey(strong)
    const spawning = { action: 'spawn', project_id: plain, prompt: 'true', new_session: true }
    expectKinds([await call('session', { ...spawning, api_scope: 'admin' })], 'forbidden')
    expectKinds([await call('session', { ...spawning, api_scope: `project:${plain}` })], 'ok')
    expectKinds([await call('session', { ...spawning, project_id: granted, api_scope: 'admin' })], 'ok')
    call.dialled.close()
    await end(booted, strong.session_id)
  })

  test('is at most what was granted', async () => {
    const project_id = await booted.project({ api_scope_grant: 'admin:ro' })
    for (const api_scope of ['admin', `project:${plain}`])
      expect((await refusedSpawn(project_id, api_scope)).kind).toBe('forbidden')
    const one = await droid(booted, project_id, { api_scope: `project:${plain}:ro` })
    const call = await withKey(one)
    expectKinds([await call('project_get', { project_id: plain })], 'ok')
    expectKinds([await call('project_get', { project_id: granted })], 'not_found')
    call.dialled.close()
    await booted.ok('project', { action: 'delete', project_id })
  })
})

describe('a token that a session mints', () => {
  const child = async (call: Call, more: object = {}) => {
    const { kind, result } = await call('token', {
      action: 'create',
      name: 'child',
      scope: 'admin',
      ...more,
    })
    expect(kind).toBe('ok')
    return result as { token: string; token_id: string; expires_at: string | null }
  }

  test('ends with the session, and so does what was minted with it', async () => {
    const one = await droid(booted, granted, { api_scope: 'admin' })
    const first = await child(await withKey(one))
    const second = await child(await withToken(booted, first.token))
    expect(await listed(booted, second.token_id)).toMatchObject({
      parent_session_id: one.session_id,
      parent_token_id: first.token_id,
    })
    const admins = await mint(booted, 'admin:ro')
    for (const { token } of [first, second, admins]) expect(await statusOf(booted, token)).toBe(200)
    await end(booted, one.session_id)
    for (const { token } of [first, second]) expect(await statusOf(booted, token)).toBe(401)
    // The control: what an admin mints with a token of his own stays.
    expect(await statusOf(booted, admins.token)).toBe(200)
    expect((await listed(booted, admins.token_id)).parent_session_id).toBeNull()
  })

  test('ends when the key of the session changes', async () => {
    const { session_id } = await booted.ok('session', {
      action: 'spawn',
      project_id: granted,
      prompt: 'true',
      new_session: true,
      api_scope: 'admin',
      wait_seconds: 30,
    })
    const one = asDroid(session_id, granted)
    const { token } = await child(await withKey(one))
    await booted.ok('container', { action: 'stop', project_id: granted, grace_seconds: 0 })
    expect(await statusOf(booted, token)).toBe(401)
    await booted.ok('session', { action: 'message', session_id, message: 'sleep 900' })
    await untilStatus(booted, session_id, 'running', 30_000)
    expect(await statusOf(booted, token)).toBe(401)
    expectKinds([await (await withKey(one))('project_list')], 'unauthenticated')
    expectKinds([await (await withKey(asDroid(session_id, granted, 2)))('project_list')], 'ok')
    await end(booted, session_id)
  })

  test('ends with the token behind the session, at once, as the key does', async () => {
    const parent = await mint(booted, 'admin')
    const spawner = await withToken(booted, parent.token)
    const spawning = { action: 'spawn', project_id: granted, prompt: 'sleep 900', new_session: true }
    const { session_id } = (await spawner('session', { ...spawning, api_scope: 'admin' })).result
    await untilStatus(booted, session_id, 'running')
    const call = await withKey(asDroid(session_id, granted))
    const { token } = await child(call)
    expectKinds([await call('project_list')], 'ok')
    await booted.ok('token', { action: 'revoke', token_id: parent.token_id })
    expectKinds([await call('project_list')], 'unauthenticated')
    expect(await statusOf(booted, token)).toBe(401)
    await end(booted, session_id)
  })

  test('expires with the token behind the session at the latest', async () => {
    const parent = await mint(booted, 'admin', { expires_in_hours: 1 })
    const spawner = await withToken(booted, parent.token)
    const spawning = { action: 'spawn', project_id: granted, prompt: 'sleep 900', new_session: true }
    const { session_id } = (await spawner('session', { ...spawning, api_scope: 'admin' })).result
    await untilStatus(booted, session_id, 'running')
    const call = await withKey(asDroid(session_id, granted))
    const long = await child(call, { expires_in_hours: 1000 })
    expect(long.expires_at).toBe(parent.expires_at)
    expect((await child(call)).expires_at).toBe(parent.expires_at)
    const short = await child(call, { expires_in_hours: 0.5 })
    expect(Date.parse(short.expires_at!)).toBeLessThan(Date.parse(parent.expires_at!))
    const below = await child(await withToken(booted, short.token), { expires_in_hours: 1000 })
    expect(below.expires_at).toBe(short.expires_at)
    await end(booted, session_id)
  })

  test('is never made by a session that ends at the same moment', { timeout: 60_000 }, async () => {
    const droids = await Promise.all(
      Array.from({ length: 4 }, () => droid(booted, granted, { api_scope: 'admin' })),
    )
    let made = 0
    await Promise.all(
      droids.map(async (one) => {
        const call = await withKey(one)
        const minting = Array.from({ length: 40 }, () =>
          call('token_create', { name: 'racing', scope: 'admin' }),
        )
        await Promise.all([...minting, end(booted, one.session_id)])
        made += (await Promise.all(minting)).filter(({ kind }) => kind === 'ok').length
      }),
    )
    expect(made).toBeGreaterThan(0)
    const left = await booted.query(
      'select id from tokens where parent_session_id = any($1) and revoked_at is null',
      [droids.map(({ session_id }) => session_id)],
    )
    expect(left).toEqual([])
  })
})

describe('what a session leaves behind', () => {
  test('a schedule that it made with more than its project is disabled with it', async () => {
    const one = await droid(booted, granted, { api_scope: 'admin' })
    const own = await droid(booted, plain, { api_scope: `project:${plain}` })
    const timing = { name: 'left', cron_expr: '@yearly', prompt: 'true' }
    const make = async (call: Call, project_id: string) =>
      (await call('schedule_create', { ...timing, targets: [{ project_id }] })).result
    const beyond = await make(await withKey(one), plain)
    const within = await make(await withKey(own), plain)
    expect([beyond.enabled, within.enabled]).toEqual([true, true])
    await Promise.all([end(booted, one.session_id), end(booted, own.session_id)])
    const state = (schedule_id: string) => booted.ok('schedule', { action: 'get', schedule_id })
    expect(await state(beyond.schedule_id)).toMatchObject({
      enabled: false,
      disabled_reason: expect.stringContaining(one.session_id),
    })
    const trigger = { action: 'trigger', schedule_id: beyond.schedule_id }
    expect((await booted.fault('schedule', trigger)).kind).toBe('conflict')
    // What it made for its own project, with no more than that, is the project's.
    expect((await state(within.schedule_id)).enabled).toBe(true)
    // An admin may take the other one over.
    const adopted = { action: 'update', schedule_id: beyond.schedule_id, enabled: true }
    expect(await booted.ok('schedule', adopted)).toMatchObject({ enabled: true, disabled_reason: null })
  })

  test('its key is not restored by its container, which claims that it runs', async () => {
    const project_id = await booted.project()
    const one = await droid(booted, project_id, { api_scope: `project:${project_id}` })
    await booted.ok('container', { action: 'stop', project_id, grace_seconds: 0 })
    expect((await get(booted, one.session_id)).status).toBe('failed')
    const proof = (await readFile(join(dirname(one.socket), 'proof'), 'utf8')).trim()
    const rogue = await dial(one.socket)
    const hello = {
      role: 'supervisor',
      protocol: 1,
      client_version: 'x',
      boot_id: 'x',
      sessions: [
        {
          session_id: one.session_id,
          status: 'running',
          live: false,
          last_seq: 1000,
          agent_session_id: null,
          turn_id: null,
          queued_turn_ids: [],
        },
      ],
    }
    const seated = await rogue.ask('hello', { ...hello, proof })
    expect(seated.error).toBeUndefined()
    const seq = seated.result!.committed[one.session_id] + 1
    const at = new Date().toISOString()
    const events = [
      { seq, type: 'error', at, message: 'heard' },
      { seq: seq + 1, type: 'status', at, status: 'running' },
    ]
    expect((await rogue.ask('events', { session_id: one.session_id, events })).error).toBeUndefined()
    // The control: it is listened to, in everything else.
    const heard = (await history(booted, one.session_id)).filter(({ type }) => type === 'error')
    expect(heard).toMatchObject([{ message: 'heard' }])
    expect((await get(booted, one.session_id)).status).toBe('failed')
    expectKinds([await (await withKey(one))('project_list')], 'unauthenticated')
    rogue.close()
  })
})
