// The life of a token, and how often one may call.
import { readFile, stat } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'
import { headersFor, openSession, type Reply, rpc, send } from '../../harness/rpc.ts'
import { bootServer } from '../../harness/server.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let url: string
beforeAll(async () => {
  booted = await boot({ config: { log: { level: 'debug' } } })
  url = booted.server.url
})
afterAll(() => booted?.stop())

type Made = { token_id: string; token: string }
const make = async (more: Record<string, unknown> = {}) =>
  (await booted.ok('token', { action: 'create', name: 'a caller', scope: 'admin:ro', ...more })) as Made
const revoke = (token_id: string) => booted.ok('token', { action: 'revoke', token_id })
const statusOf = async (token: string, session?: string) =>
  (await rpc(url, token, 'tools/list', {}, session ? { session } : {})).status

/** A GET stream, read until it ends. */
function openStream(headers: Record<string, string | undefined>): Promise<{ ended: Promise<void> }> {
  const given = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined))
  return new Promise((resolve, reject) => {
    const outgoing = request(new URL('/mcp', url), { headers: given as Record<string, string> })
    outgoing.on('error', reject)
    outgoing.on('response', (incoming) => {
      if (incoming.statusCode !== 200) return reject(new Error(`HTTP ${incoming.statusCode}`))
      const ended = new Promise<void>((done) => incoming.on('close', () => done()))
      incoming.resume()
      resolve({ ended })
    })
    outgoing.end()
  })
}

describe('a token', () => {
  it('is shown once; only its hash is stored', async () => {
    const { token, token_id } = await make()
    expect(token).toMatch(/^oub_[0-9a-f]{64}$/)
    expect(await statusOf(token)).toBe(200)
    const tables = await booted.query<{ name: string }>(
      "select tablename as name from pg_tables where schemaname = 'public'",
    )
    const rows = []
    for (const { name } of tables)
      rows.push(...(await booted.query<{ row: string }>(`select t::text as row from "${name}" t`)))
    const dump = rows.map(({ row }) => row).join('\n')
    expect(dump).toContain(token_id)
    for (const secret of [token, booted.server.admin_token]) {
      expect(dump).not.toContain(secret.slice(4))
      expect(dump).not.toContain(Buffer.from(secret).toString('hex'))
    }
    const { tokens } = await booted.ok('token', { action: 'list', limit: 200 })
    expect(JSON.stringify(tokens)).not.toContain(token.slice(4))
  })

  it('reports when it was used last', async () => {
    const { token, token_id } = await make()
    await statusOf(token)
    const used = async () => {
      const { tokens } = await booted.ok('token', { action: 'list', limit: 200 })
      return tokens.find((one: Made) => one.token_id === token_id)?.last_used_at
    }
    expect(await until(used, { what: 'its last use is known', deadline_ms: 20_000, every_ms: 250 })).toMatch(
      /^2/,
    )
  })

  it('ends when it expires, also while it is remembered', async () => {
    const { token } = await make({ expires_in_hours: 0.001 })
    expect(await statusOf(token)).toBe(200)
    await until(async () => (await statusOf(token)) === 401, { what: 'it has expired' })
    const reply = await rpc(url, token, 'tools/list')
    expect(reply.headers['www-authenticate']).toMatch(/^Bearer .*error="invalid_token"/)
    expect(JSON.parse(reply.text).error).toMatchObject({
      kind: 'unauthenticated',
      message: 'the token has expired',
    })
  })

  it('ends at the next request when it is revoked, and stays revoked', async () => {
    const { token, token_id } = await make()
    expect(await statusOf(token)).toBe(200)
    const first = await revoke(token_id)
    expect(await statusOf(token)).toBe(401)
    const again = await revoke(token_id)
    expect(again.revoked_at).toBe(first.revoked_at)
    expect(
      (await booted.fault('token', { action: 'revoke', token_id: 'tok_00000000000000000000' })).kind,
    ).toBe('not_found')
  })

  it('takes its MCP sessions and streams along when it is revoked', async () => {
    const { token, token_id } = await make()
    const session = await openSession(url, token)
    expect(await statusOf(token, session)).toBe(200)
    const stream = await openStream({
      ...headersFor('2025-11-25', token, 'x'),
      'content-type': undefined,
      accept: 'text/event-stream',
      'mcp-session-id': session,
    })
    await revoke(token_id)
    await stream.ended
    expect(await statusOf(token, session)).toBe(401)
    // The session is gone, not only closed to this token.
    expect(await statusOf(booted.server.admin_token, session)).toBe(404)
  })

  it('opens no session of another token', async () => {
    const [mine, theirs] = [await make(), await make()]
    const session = await openSession(url, mine.token)
    expect(await statusOf(theirs.token, session)).toBe(404)
    expect(await statusOf(mine.token, session)).toBe(200)
  })

  it('is refused in any other form', async () => {
    const { token } = await make()
    const forms = [
      token,
      `Basic ${token}`,
      `Bearer${token}`,
      `Bearer ${token}x`,
      `Bearer ${token} ${token}`,
      'Bearer',
    ]
    for (const authorization of forms) {
      const headers = { ...headersFor('2026-07-28', undefined, 'tools/list'), authorization }
      expect(await send(url, { headers, body: '{}' }), authorization).toMatchObject({ status: 401 })
    }
    expect((await send(url, { path: `/mcp?token=${token}`, body: '{}' })).status).toBe(401)
  })

  it('is never written to the log', () => {
    const log = booted.server.log()
    expect(log).toContain('"level":"debug"')
    expect(log).not.toMatch(/oub_[0-9a-f]{16}/)
    expect(log).not.toContain(booted.server.admin_token.slice(4, 40))
  })
})

describe('the admin token', () => {
  it('is minted into a file that only its owner reads, and stays the same', async () => {
    const server = await bootServer({ env: { OUBLIETTE_ADMIN_TOKEN: '' } })
    try {
      const file = join(server.home, 'admin.token')
      expect((await stat(file)).mode & 0o777).toBe(0o600)
      const token = (await readFile(file, 'utf8')).trim()
      expect((await rpc(server.url, token, 'tools/list')).status).toBe(200)
      await server.restart()
      expect((await readFile(file, 'utf8')).trim()).toBe(token)
      expect((await rpc(server.url, token, 'tools/list')).status).toBe(200)
      expect(server.log()).not.toContain(token.slice(4))
    } finally {
      await server.stop()
    }
  })

  it('is not written anywhere when it is given', async () => {
    await expect(stat(join(booted.server.home, 'admin.token'))).rejects.toMatchObject({ code: 'ENOENT' })
  })
})

describe('rates', () => {
  const limited = (reply: Reply) => {
    expect(Number(reply.headers['retry-after'])).toBeGreaterThanOrEqual(1)
    expect(JSON.parse(reply.text).error).toMatchObject({ kind: 'exhausted' })
  }
  let slow: Booted
  beforeAll(async () => {
    const rate = { per_token_per_second: 0.5, per_token_burst: 20, failures_per_address_per_minute: 5 }
    slow = await boot({ config: { rate } })
  })
  afterAll(() => slow?.stop())

  it('are counted per token', async () => {
    const made = (await slow.ok('token', { action: 'create', name: 'busy', scope: 'admin:ro' })) as Made
    const replies = await Promise.all(
      Array.from({ length: 30 }, () => rpc(slow.server.url, made.token, 'tools/list')),
    )
    const refused = replies.filter(({ status }) => status === 429)
    expect(replies.length - refused.length).toBeGreaterThanOrEqual(20)
    expect(refused.length).toBeGreaterThanOrEqual(5)
    for (const reply of refused) limited(reply)
    // Its neighbour is not held up.
    expect((await rpc(slow.server.url, slow.server.admin_token, 'tools/list')).status).toBe(200)
  })

  it('are counted per address for those without a valid token, who cannot hold up a valid one', async () => {
    const guess = (n: number) => `oub_${String(n).padStart(64, '0')}`
    const replies = []
    for (let n = 0; n < 12; n++) replies.push(await rpc(slow.server.url, guess(n), 'tools/list'))
    expect(replies.slice(0, 5).map(({ status }) => status)).toEqual(Array(5).fill(401))
    const refused = replies.filter(({ status }) => status === 429)
    expect(refused.length).toBeGreaterThanOrEqual(5)
    for (const reply of refused) limited(reply)
    expect((await rpc(slow.server.url, slow.server.admin_token, 'tools/list')).status).toBe(200)
  })
})
