// `oubliette mcp setup CLIENT` writes configurations whose tokens work, with the least scope, and takes them back.
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'

const main = resolve(import.meta.dirname, '../../../cmd/oubliette-server/main.ts')
let booted: Booted
let folder: string
beforeAll(async () => {
  booted = await boot()
  folder = await mkdtemp(join(tmpdir(), 'oub-setup-'))
})
afterAll(async () => {
  await booted?.stop()
  await rm(folder, { recursive: true, force: true })
})

type Ran = { code: number; out: string; err: string }
function mcp(...args: string[]): Promise<Ran> {
  const env = {
    PATH: process.env.PATH ?? '',
    HOME: folder,
    OUBLIETTE_HOME: booted.server.home,
    OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
    OUBLIETTE_TOKEN: booted.server.admin_token,
  }
  return new Promise((done) => {
    execFile(process.execPath, [main, 'mcp', ...args], { env }, (error, out, err) =>
      done({ code: error ? Number(error.code) : 0, out, err }),
    )
  })
}

/** The status of a request with the token that a file holds. */
async function statusWith(file: string): Promise<number> {
  const token = /oub_[0-9a-f]{64}/.exec(await readFile(join(folder, file), 'utf8'))?.[0]
  const answer = await fetch(`${booted.server.url}/mcp`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } },
    }),
  })
  await answer.text()
  return answer.status
}

const files = {
  'claude-code': '.claude.json',
  'claude-desktop': '.config/Claude/claude_desktop_config.json',
  cursor: '.cursor/mcp.json',
  vscode: '.config/Code/User/mcp.json',
  codex: '.codex/config.toml',
  gemini: '.gemini/settings.json',
  opencode: '.config/opencode/opencode.json',
}

test.each(Object.entries(files))(
  'setup of %s writes a token that works, --remove revokes it',
  async (client, file) => {
    const { code, out, err } = await mcp('setup', client)
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(out).toContain(file)
    expect(out).not.toMatch(/oub_/)
    const text = await readFile(join(folder, file), 'utf8')
    expect(text).toContain(new URL(booted.server.url).host)
    expect(await statusWith(file)).toBe(200)
    await writeFile(join(folder, 'kept'), text)
    expect((await mcp('setup', client, '--remove')).out).toContain('tokens revoked: 1')
    expect(await readFile(join(folder, file), 'utf8')).not.toContain('oub_')
    expect(await statusWith('kept')).toBe(401)
  },
)

test('a second setup replaces the first and revokes its token', async () => {
  await mcp('setup', 'cursor')
  await writeFile(join(folder, 'first'), await readFile(join(folder, files.cursor)))
  await mcp('setup', 'cursor', '--read-only')
  expect(await statusWith('first')).toBe(401)
  expect(await statusWith(files.cursor)).toBe(200)
  const { tokens } = await booted.ok('token', { action: 'list' })
  const mine = (tokens as { name: string; scope: string; revoked_at: string | null }[]).filter(
    ({ name, revoked_at }) => name.startsWith('mcp cursor') && !revoked_at,
  )
  expect(mine.map(({ scope }) => scope)).toEqual(['admin:ro'])
})

test('--project restricts the token to one project', async () => {
  const project_id = await booted.project()
  expect((await mcp('setup', 'gemini', '--project', project_id)).out).toContain(`project:${project_id}`)
})

test('--print writes nothing and shows no token', async () => {
  const before = (await booted.ok('token', { action: 'list' })).tokens.length
  const { out } = await mcp('setup', 'codex', '--print')
  expect(out).toMatch(/^\[mcp_servers\.oubliette\]\nurl = ".*\/mcp"/)
  expect(out).toContain('<token>')
  expect((await booted.ok('token', { action: 'list' })).tokens.length).toBe(before)
})

test('a broken file and an unknown client are one clear line, and no token is left', async () => {
  await writeFile(join(folder, '.claude.json'), '{ "mcpServers": ')
  const before = (await booted.ok('token', { action: 'list' })).tokens.length
  const broken = await mcp('setup', 'claude-code')
  expect(broken).toMatchObject({
    code: 1,
    err: expect.stringMatching(/^oubliette: .*\.claude\.json: line 1: /),
  })
  expect(await readFile(join(folder, '.claude.json'), 'utf8')).toBe('{ "mcpServers": ')
  expect((await booted.ok('token', { action: 'list' })).tokens.length).toBe(before)
  expect(await mcp('setup', 'claude-cod')).toMatchObject({
    code: 2,
    err: expect.stringContaining('did you mean "claude-code"'),
  })
  expect(await mcp('nonsense')).toMatchObject({ code: 2, err: expect.stringContaining('unknown subcommand') })
})
