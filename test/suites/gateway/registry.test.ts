// Where servers come from: mcp-servers.json, `.mcp.json` of a project and `server.json` of the registry; and stdio servers, as a
// process of the host only where the file says so, else in a container of their own.
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build } from 'esbuild'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import { dialAs, droid } from '../../fixtures/droid-socket.ts'
import { type ScriptedServer, startScripted } from '../../fixtures/gateway/scripted-server.ts'
import { everything, filesystem } from '../../fixtures/upstream/servers.ts'
import { type Answer, type Booted, boot, docker, instanceOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let upstream: ScriptedServer
let project_id: string
const file = () => join(booted.server.home, 'mcp-servers.json')
const write = async (servers: object) => await writeFile(file(), JSON.stringify({ mcpServers: servers }))
const names = async (more: object = {}): Promise<string[]> =>
  (await booted.ok('mcp_server', { action: 'list', ...more })).servers.map(({ name }: Answer) => name).sort()

beforeAll(async () => {
  upstream = await startScripted()
  booted = await boot({ config: { log: { level: 'info' } } })
  project_id = await booted.project()
})
afterAll(async () => {
  await booted?.stop()
  await upstream?.stop()
})

describe('mcp-servers.json', () => {
  it('is read while the server runs; an invalid entry does not affect the others', async () => {
    expect(await names()).toEqual([])
    await write({
      scripted: { url: upstream.url, projects: 'all', disabledTools: ['ignored'] },
      broken: { transport: 'carrier pigeon', url: upstream.url },
      risky: { url: upstream.url, unsafe: true },
      'local files': { command: process.execPath, args: [everything, 'stdio'], run: 'process' },
    })
    await until(async () => (await names()).length === 3, { what: 'the file is read' })
    expect(await names()).toEqual(['local files', 'risky', 'scripted'])
    expect(booted.server.log()).toContain('carrier pigeon')
    expect(await names({ project_id })).toEqual(['scripted'])
  })

  it('is read-only over the API, except that an admin enables what is unsafe', async () => {
    const get = (name: string) => booted.ok('mcp_server', { action: 'get', name })
    expect(await get('risky')).toMatchObject({ source: 'file', enabled: false, state: 'disabled' })
    expect(
      await booted.fault('mcp_server', { action: 'call', name: 'risky', tool: 'read_note' }),
    ).toMatchObject({
      kind: 'conflict',
    })
    for (const change of [{ action: 'remove' }, { action: 'update', url: 'https://x.example.com' }])
      expect(await booted.fault('mcp_server', { name: 'scripted', ...change })).toMatchObject({
        kind: 'conflict',
      })
    expect(await booted.ok('mcp_server', { action: 'update', name: 'risky', enabled: true })).toMatchObject({
      state: 'connected',
      tools: 2,
    })
  })

  it('keeps what is known when it cannot be parsed, and removes what is no longer in it', async () => {
    const content = await readFile(file(), 'utf8')
    await writeFile(file(), '{"mcpServers": {')
    await until(async () => booted.server.log().includes('the known ones stay'), {
      what: 'the failure is logged',
    })
    expect(await names()).toHaveLength(3)
    const { scripted, risky, 'local files': local } = JSON.parse(content).mcpServers
    await write({ risky, 'local files': local, scripted: { ...scripted, deny: ['write_*'] } })
    const denied = async () =>
      (await booted.ok('mcp_server', { action: 'get', name: 'scripted' })).deny?.[0] === 'write_*'
    await until(denied, { what: 'the change is read' })
    expect(await booted.ok('mcp_server', { action: 'get', name: 'risky' })).toMatchObject({ enabled: true })
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(await names()).toHaveLength(3)
    expect(await booted.ok('mcp_server', { action: 'get', name: 'risky' })).toMatchObject({ enabled: true })
    await rm(file())
    await until(async () => (await names()).length === 0, { what: 'they are removed' })
    await write({ 'local files': local })
    await until(async () => (await names()).length === 1, { what: 'it is back' })
  })

  it('runs a stdio server as a process of the host where it says so', async () => {
    const call = { action: 'call', name: 'local files', tool: 'echo', arguments: { message: 'by stdio' } }
    const { result } = await booted.ok('mcp_server', call)
    expect(JSON.stringify(result)).toContain('by stdio')
    const { tools } = await booted.ok('mcp_server', { action: 'tools', name: 'local files' })
    expect(tools[0].visible_name).toMatch(/^mcp__local_files__[a-z_-]+_[0-9a-f]{12}$/)
  })
})

describe('import', () => {
  it('adds the servers of .mcp.json of a project', async () => {
    const servers = { here: { type: 'http', url: upstream.url }, nowhere: { type: 'smoke' } }
    await booted.ok('workspace', {
      action: 'write_file',
      project_id,
      path: '.mcp.json',
      content: JSON.stringify({ mcpServers: servers }),
    })
    const { added, problems } = await booted.ok('mcp_server', { action: 'import', project_id })
    expect(added).toEqual(['here'])
    expect(problems).toEqual([expect.stringContaining('smoke')])
    const again = await booted.ok('mcp_server', { action: 'import', project_id })
    expect(again.problems).toContainEqual(expect.stringContaining('already exists'))
  })

  it('adds a server of the registry, disabled if it needs values', async () => {
    const remote = {
      name: 'io.example/weather',
      description: 'x',
      version: '1.0.0',
      remotes: [{ type: 'streamable-http', url: upstream.url }],
    }
    expect(await booted.ok('mcp_server', { action: 'import', document: remote })).toEqual({
      added: ['weather'],
      problems: [],
    })
    const packaged = {
      name: 'io.example/mailer',
      packages: [
        {
          registryType: 'npm',
          identifier: '@example/mailer',
          version: '2.0.0',
          transport: { type: 'stdio' },
          environmentVariables: [{ name: 'MAIL_KEY', isRequired: true, isSecret: true }],
        },
      ],
    }
    const { added, problems } = await booted.ok('mcp_server', { action: 'import', document: packaged })
    expect(added).toEqual(['mailer'])
    expect(problems).toEqual([expect.stringContaining('MAIL_KEY')])
    expect(await booted.ok('mcp_server', { action: 'get', name: 'mailer' })).toMatchObject({
      enabled: false,
      command: 'npx',
      args: ['-y', '@example/mailer@2.0.0'],
    })
  })
})

describe('a stdio server of a project', () => {
  it("runs in a container of its own, with the project's workspaces, and serves a droid without network", async () => {
    const workspace = layoutOf(booted.server.home).workspace(project_id, 'default')
    await booted.ok('container', { action: 'start', project_id })
    const { outputFiles } = await build({
      entryPoints: [filesystem],
      bundle: true,
      write: false,
      platform: 'node',
      format: 'esm',
      banner: { js: "import{createRequire as make}from'node:module';const require=make(import.meta.url);" },
    })
    await writeFile(join(workspace, 'server.mjs'), outputFiles[0]!.contents)
    await writeFile(join(workspace, 'note.txt'), 'from the workspace')
    const added = await booted.ok('mcp_server', {
      action: 'add',
      name: 'files',
      project_id,
      transport: 'stdio',
      command: 'node',
      args: ['/workspaces/default/server.mjs', '/workspaces/default'],
      options: { workspace: 'read' },
    })
    expect(added).toMatchObject({ state: 'connected', reason: null })
    const label = [`oubliette.instance=${await instanceOf(booted.server)}`]
    const containers = await docker.listContainers({ filters: { label } })
    const own = containers.filter(({ Labels }) => Labels['oubliette.upstream'])
    expect(own).toHaveLength(1)
    const { HostConfig } = await docker.getContainer(own[0]!.Id).inspect()
    expect(HostConfig).toMatchObject({ NetworkMode: 'none', ReadonlyRootfs: true, CapDrop: ['ALL'] })
    const one = await droid(booted, project_id)
    const dialled = await dialAs(one)
    const read = { tool: 'mcp__files__read_text_file', arguments: { path: '/workspaces/default/note.txt' } }
    const answer = await dialled.ask('oubliette_call_tool', read)
    expect(JSON.stringify(answer)).toContain('from the workspace')
    dialled.close()
    await booted.ok('mcp_server', { action: 'remove', name: 'files', project_id })
    const gone = async () =>
      !(await docker.listContainers({ all: true, filters: { label } })).some(
        ({ Labels }) => Labels['oubliette.upstream'],
      )
    await until(gone, { what: 'its container is removed', deadline_ms: 20_000 })
  })
})
