// Hostile containers, archives and callers of copies.
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { archiveRequest, tarOf } from '../../fixtures/archive.ts'
import { expectHealthy, latenciesDuring } from '../../fixtures/latency/latency.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
let other_id: string
let scratch: string
const mint = async (scope: string): Promise<{ token: string; token_id: string }> =>
  (await booted.ok('token', { action: 'create', name: 'someone', scope })) as never
const where = (more = {}) => ({
  url: booted.server.url,
  token: booted.server.admin_token,
  project_id,
  ...more,
})
const kindOf = (body: Buffer) => JSON.parse(String(body)).error?.kind

beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'oub-attack-'))
  booted = await boot()
  project_id = await booted.project()
  other_id = await booted.project()
})
afterAll(async () => {
  await booted?.stop()
  rmSync(scratch, { recursive: true, force: true })
})

test('scopes: a read-only token reads and does not write, a foreign one finds nothing', async () => {
  const archive = await tarOf([{ name: 'mine', content: 'x' }])
  const own = where({ token: (await mint(`project:${project_id}`)).token })
  const reader = where({ token: (await mint(`project:${project_id}:ro`)).token })
  const foreign = where({ token: (await mint(`project:${other_id}`)).token })
  expect((await archiveRequest('PUT', own, archive)).status).toBe(200)
  expect((await archiveRequest('GET', { ...reader, path: 'mine' })).status).toBe(200)
  const written = await archiveRequest('PUT', reader, archive)
  expect([written.status, kindOf(written.body)]).toEqual([403, 'forbidden'])
  for (const method of ['GET', 'PUT'] as const) {
    const { status, body } = await archiveRequest(method, foreign, method === 'PUT' ? archive : undefined)
    expect([status, JSON.parse(String(body)).error]).toMatchObject([
      404,
      { message: `no project ${project_id}` },
    ])
  }
})

test('an upload that is refused, at first or in the middle, is not sent to its end, and says why', async () => {
  const big = join(scratch, 'big')
  writeFileSync(big, '')
  truncateSync(big, 4 * 1024 ** 3)
  const small = await booted.project({ limits: { disk_mb: 16 } })
  const cp = async (token: string, of: string) => {
    const env = {
      OUBLIETTE_HOME: booted.server.home,
      OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
      OUBLIETTE_TOKEN: token,
    }
    const from = performance.now()
    const { code, stderr } = await runCli(['cp', big, `${of}:`], env)
    expect(performance.now() - from).toBeLessThan(5_000)
    return [code, stderr]
  }
  const { token } = await mint(`project:${project_id}:ro`)
  expect(await cp(token, project_id)).toEqual([
    1,
    expect.stringContaining("needs more than this token's scope"),
  ])
  expect(await cp(booted.server.admin_token, small)).toEqual([
    1,
    expect.stringContaining('exceeds the disk limit'),
  ])
  rmSync(big)
})

test('a container that exchanges directories for links gets nothing written or read outside', async () => {
  const victim = join(scratch, 'victim')
  mkdirSync(victim)
  writeFileSync(join(victim, 'secret'), 'THE-SECRET')
  const { exec_id } = await booted.exec(
    project_id,
    `cd /workspaces/default; while :; do rm -rf d; ln -s ${victim} d; rm -f d; mkdir d; echo inside > d/secret; done`,
    { detach: true, timeout_seconds: 120 },
  )
  const archive = await tarOf(
    Array.from({ length: 20 }, (_, at) => ({ name: `d/file-${at}`, content: 'planted' })),
  )
  const seen = { written: 0, refused: 0, read: 0 }
  const until_ms = performance.now() + 8_000
  while (performance.now() < until_ms) {
    const put = await archiveRequest('PUT', where(), archive)
    const { files = 0, skipped } = JSON.parse(String(put.body))
    seen.written += files
    seen.refused += skipped?.count ?? 0
    const got = await archiveRequest('GET', where({ path: 'd' })).catch(() => undefined)
    const text = String(got?.body)
    expect(text).not.toContain('THE-SECRET')
    if (text.includes('inside')) seen.read += 1
  }
  await booted.ok('container', { action: 'exec_kill', exec_id })
  process.stdout.write(`exchanged links: ${JSON.stringify(seen)}\n`)
  expect(readdirSync(victim)).toEqual(['secret'])
  expect(readFileSync(join(victim, 'secret'), 'utf8')).toBe('THE-SECRET')
  // The control: both happened, so the exchange was met.
  expect(seen.written).toBeGreaterThan(0)
  expect(seen.refused + seen.read).toBeGreaterThan(0)
}, 60_000)

test('a deep tree, a wide one and a file of terabytes delay no other caller', async () => {
  await booted.exec(
    project_id,
    `cd /workspaces/default; mkdir hard; cd hard; truncate -s 9G sparse
     bash -c 'for i in {1..600}; do mkdir d; cd d; done; echo x > bottom'
     mkdir wide; cd wide; for i in {1..20000}; do : > f$i; done`,
    { timeout_seconds: 120 },
  )
  const latencies = await latenciesDuring(booted, other_id, async () => {
    const [, deep, wide] = await Promise.all([
      archiveRequest('GET', where({ path: 'hard/sparse' }), undefined, 200_000_000).catch(() => undefined),
      archiveRequest('GET', where({ path: 'hard/d' })),
      archiveRequest('GET', where({ path: 'hard/wide' })),
    ])
    expect(JSON.parse(decodeURIComponent(deep.trailers['x-archive-skipped']!))).toMatchObject({
      count: 1,
      entries: [{ reason: 'is deeper than 128 levels' }],
    })
    expect(wide.body.length).toBeGreaterThan(20_000 * 512)
  })
  expectHealthy('archives of hostile trees', latencies)
}, 120_000)

test('a caller that leaves in the middle leaves nothing half written, and its place is free', async () => {
  const archive = await tarOf([{ name: 'whole', content: 'x'.repeat(5_000_000) }])
  async function* cut() {
    yield archive.subarray(0, 1_000_000)
    throw new Error('left')
  }
  for (let at = 0; at < 10; at++) await expect(archiveRequest('PUT', where(), cut())).rejects.toThrow('left')
  const { entries } = await booted.ok('workspace', { action: 'list_dir', project_id, path: '.' })
  expect(entries.map(({ name }: { name: string }) => name)).not.toContain('whole')
  await until(async () => (await archiveRequest('PUT', where(), archive)).status === 200, {
    what: 'a copy after those that were given up',
  })
})

describe('cp on the machine of a person', () => {
  /** A server that answers as a hostile container would make it answer. */
  async function hostile(archive: Buffer): Promise<{ address: string; close(): void }> {
    const server = createServer(async (incoming, outgoing) => {
      for await (const _ of incoming);
      if (incoming.url?.startsWith('/workspaces/')) return void outgoing.end(archive)
      const structuredContent = { path: 'd', exists: true, type: 'directory' }
      outgoing.setHeader('content-type', 'application/json')
      outgoing.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result: { structuredContent } }))
    })
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() }
  }

  test('an archive writes nothing outside of the destination', async () => {
    const outside = join(scratch, 'outside')
    const target = join(scratch, 'target')
    mkdirSync(outside)
    mkdirSync(target)
    // A link that is there already is not followed either.
    symlinkSync(outside, join(target, 'old'))
    const archive = await tarOf([
      { name: 'd/good', content: 'good' },
      { name: 'd/../../outside/one', content: 'x' },
      { name: `${outside}/two`, content: 'x' },
      { name: 'd/link', type: 'symlink', linkname: outside },
      { name: 'd/link/three', content: 'x' },
      { name: 'd/up', type: 'symlink', linkname: '../..' },
      { name: 'd/up/four', content: 'x' },
      { name: 'd/old/five', content: 'x' },
      { name: 'd/hard', type: 'link', linkname: '/etc/passwd' },
      { name: 'd/inner', type: 'symlink', linkname: 'good' },
      { name: 'd/\x1b]0;title\x07', type: 'fifo' },
    ])
    const { address, close } = await hostile(archive)
    const env = { OUBLIETTE_HOME: scratch, OUBLIETTE_ADDRESS: address, OUBLIETTE_TOKEN: 'oub_x' }
    const { code, stderr } = await runCli(['cp', `${project_id}:d/.`, target], env)
    close()
    expect(code).toBe(1)
    expect(readdirSync(outside)).toEqual([])
    expect(readdirSync(target).sort()).toEqual(['good', 'inner', 'link', 'old', 'up'])
    // Where a link was refused, the name became an ordinary directory.
    expect(readdirSync(join(target, 'link'))).toEqual(['three'])
    expect(readdirSync(join(target, 'up'))).toEqual(['four'])
    expect(readFileSync(join(target, 'good'), 'utf8')).toBe('good')
    expect(stderr).not.toContain('\x1b')
  })
})
