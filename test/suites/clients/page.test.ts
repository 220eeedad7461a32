// What docs/clients.md says besides its table: the program for the SDK runs, and the strict check of the MCP Inspector finds
// nothing, so that every client and every model API can use the schemas.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { inspect } from '../../fixtures/clients/bridges.ts'
import { installClients } from '../../fixtures/clients/packages.ts'
import { shown } from '../../fixtures/clients/set-up.ts'
import { type Booted, boot } from '../../harness/booted.ts'

let booted: Booted
let project_id: string
const home = mkdtempSync(join(tmpdir(), 'oub-inspector-'))

beforeAll(async () => {
  await installClients('small')
  booted = await boot()
  project_id = await booted.project()
}, 420_000)
afterAll(async () => {
  await booted?.stop()
  rmSync(home, { recursive: true, force: true })
})

test('the program for the SDK lists the projects', async () => {
  const { url, admin_token: token } = booted.server
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', shown('SDK', { url, token, home })],
    // Packages are looked for from here.
    { cwd: resolve(import.meta.dirname, '../../..'), env: { ...process.env, OUBLIETTE_TOKEN: token } },
  )
  expect(stdout).toContain(project_id)
})

type Finding = { toolName: string; findings: { rule: string; severity: string; path: string }[] }
async function check(url: string, token: string) {
  const strict = ['--method', 'tools/list', '--strict', '--format', 'json']
  const { code, stdout, stderr } = await inspect({ url, token, home }, strict)
  const lines = stdout.trim().split('\n')
  const { result, schemaFindings = [] } = JSON.parse(lines.at(-1) || '{}') as {
    result?: { tools: unknown[] }
    schemaFindings?: Finding[]
  }
  return { code, stderr, tools: result?.tools.length, findings: schemaFindings }
}

test.each([
  ['admin', 12],
  ['admin:ro', 8],
  ['project', 10],
  ['project:ro', 7],
])('finds nothing in the tools of a token with scope %s', async (name, least) => {
  const scope = name.replace('project', `project:${project_id}`)
  const { token } = await booted.ok('token', { action: 'create', name, scope })
  const { code, tools, findings } = await check(booted.server.url, token)
  expect({ code, findings }).toEqual({ code: 0, findings: [] })
  expect(tools).toBeGreaterThanOrEqual(least)
})

test('finds what is wrong with others', async () => {
  const tool = { name: 'bad', inputSchema: { type: 'object', properties: { any: {}, always: true } } }
  const results: Record<string, unknown> = {
    initialize: {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'bad', version: '1' },
    },
    'tools/list': { tools: [tool] },
  }
  await using server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const { id, method } = JSON.parse(body || '{}') as { id?: number; method?: string }
    if (id === undefined) return void response.writeHead(request.method === 'POST' ? 202 : 405).end()
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method ?? ''] ?? {} }))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const { code, findings } = await check(`http://127.0.0.1:${port}`, 'none')
  expect(code).toBe(6)
  expect(
    findings.flatMap(({ findings }) => findings.map(({ rule, severity }) => `${severity} ${rule}`)),
  ).toEqual(['warning untyped-schema', 'error boolean-schema'])
})
