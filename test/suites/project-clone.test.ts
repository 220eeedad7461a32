import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFile, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type Docker from 'dockerode'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Answer, type Booted, boot, containerOf, docker, instanceOf } from '../harness/booted.ts'
import { until } from '../harness/wait.ts'

const run = promisify(execFile)
const secret = `s3cr3t-${randomBytes(12).toString('hex')}`
const sidecars: Docker.Container[] = []
let booted: Booted

beforeAll(async () => {
  booted = await boot({
    config: { credentials: { forge: { provider: 'git', username: 'robot', key: '${env:FORGE_KEY}' } } },
    env: { FORGE_KEY: secret },
  })
})
afterAll(async () => {
  for (const sidecar of sidecars) await sidecar.remove({ force: true, v: true })
  await booted?.stop()
})

// A git server with a password, of what is at hand: git's plain HTTP protocol is files.
const server = `
const { readFileSync, writeFileSync } = require('node:fs')
const expected = 'Basic ' + Buffer.from('robot:' + process.env.EXPECTED).toString('base64')
require('node:http').createServer((request, response) => {
  const path = request.url.split('?')[0]
  if (path.startsWith('/closed/') && request.headers.authorization !== expected) {
    response.writeHead(401, { 'www-authenticate': 'Basic realm="forge"' }).end()
    return
  }
  if (path.startsWith('/slow/')) return
  try { response.end(readFileSync('/tmp/repo' + path.replace(/^\\/\\w+/, ''))) }
  catch { response.writeHead(404).end() }
}).listen(80)
`
const script = `
git init -q /tmp/work && cd /tmp/work
echo "from the remote" > README && git add . && git -c user.name=t -c user.email=t@t commit -qm first
git clone -q --bare /tmp/work /tmp/repo && cd /tmp/repo && git update-server-info
exec node -e "$SERVER"
`

/** Containers cannot reach the host, so the git server is a neighbour on the project's own network. */
async function serveOn(project_id: string): Promise<void> {
  const { Config } = await (await containerOf(booted.server, project_id)).inspect()
  const label = [`oubliette.instance=${await instanceOf(booted.server)}`, `oubliette.project=${project_id}`]
  const [network] = await docker.listNetworks({ filters: { label } })
  const sidecar = await docker.createContainer({
    Image: Config.Image,
    User: '0:0',
    Entrypoint: ['bash', '-c', script],
    Cmd: [],
    Env: [`EXPECTED=${secret}`, `SERVER=${server}`],
    HostConfig: {
      NetworkMode: network!.Name,
      Binds: [`${await realpath(process.execPath)}:/usr/local/bin/node:ro`],
    },
    NetworkingConfig: { EndpointsConfig: { [network!.Name]: { Aliases: ['forge'] } } },
  })
  sidecars.push(sidecar)
  await sidecar.start()
  await until(
    async () => (await booted.exec(project_id, 'timeout 2 bash -c "</dev/tcp/forge/80"')).exit_code === 0,
    { what: 'the git server answers', deadline_ms: 20_000 },
  )
}

const defaultWorkspace = async (project_id: string): Promise<Answer> =>
  (await booted.ok('workspace', { action: 'list', project_id })).workspaces[0]

test('a remote that cannot be cloned is told in the workspace, and tried again by the next start', async () => {
  const project_id = await booted.project({ network: 'open', remote_url: 'http://forge/open/' })
  const failed = await defaultWorkspace(project_id)
  expect(failed).toMatchObject({ prepared_at: null, prepare_error: expect.stringContaining('git') })
  expect((await booted.ok('project', { action: 'get', project_id })).container.status).toBe('running')

  await serveOn(project_id)
  await booted.ok('container', { action: 'start', project_id })
  expect(await defaultWorkspace(project_id)).toMatchObject({
    prepared_at: expect.any(String),
    prepare_error: null,
  })
  const { content } = await booted.ok('workspace', { action: 'read_file', project_id, path: 'README' })
  expect(content).toBe('from the remote\n')
  expect((await booted.exec(project_id, 'stat -c %u README; git log --oneline')).stdout).toMatch(
    /^1000\n\w+ first\n$/,
  )
})

test('a credential clones a closed remote and is found nowhere afterwards', async () => {
  const { ok, server } = booted
  const project_id = await booted.project({
    network: 'open',
    remote_url: 'http://forge/closed/',
    credential_refs: ['forge'],
  })
  await serveOn(project_id)
  await ok('container', { action: 'start', project_id })
  expect(await defaultWorkspace(project_id)).toMatchObject({ prepare_error: null })
  const path = join(server.home, 'projects', project_id, 'workspaces/default')
  expect(await readFile(join(path, 'README'), 'utf8')).toBe('from the remote\n')

  const config = await readFile(join(path, '.git/config'), 'utf8')
  expect(config).toContain('url = http://forge/closed/')
  expect(config).not.toMatch(/robot|credential|helper/)
  // grep ends with 1 when it finds nothing.
  await expect(run('grep', ['-rlaF', secret, server.home])).rejects.toMatchObject({ code: 1 })
  const seen = await (await containerOf(server, project_id)).inspect()
  expect(JSON.stringify(seen)).not.toContain(secret)
  expect(server.log()).not.toContain(secret)
  for (const table of ['projects', 'containers', 'workspaces', 'audit'])
    expect(JSON.stringify(await booted.query(`select * from ${table}`))).not.toContain(secret)
  const inside = await booted.exec(
    project_id,
    'env; cat /proc/1/environ /proc/*/cmdline | tr "\\0" "\\n"; git config -l',
  )
  expect(inside.stdout).not.toContain(secret)
})

test('without its credential a closed remote is refused, and nobody is asked for a password', async () => {
  const project_id = await booted.project({ network: 'open', remote_url: 'http://forge/closed/' })
  await serveOn(project_id)
  await booted.ok('container', { action: 'start', project_id })
  const { prepare_error } = await defaultWorkspace(project_id)
  expect(prepare_error).toMatch(/could not read Username|terminal prompts disabled|Authentication failed/i)
})

test('a project is deleted at once while its clone hangs', async () => {
  const project_id = await booted.project({ network: 'open', remote_url: 'http://forge/slow/' })
  await serveOn(project_id)
  const hanging = booted.client().call('container', { action: 'start', project_id })
  await until(async () => (await booted.exec(project_id, 'pgrep -f git-remote-http')).exit_code === 0, {
    what: 'git is cloning',
  })
  const from = performance.now()
  await booted.ok('project', { action: 'delete', project_id })
  expect(performance.now() - from).toBeLessThan(10_000)
  const { structured } = await hanging
  expect(structured.error).toMatchObject({ kind: 'conflict', message: expect.stringContaining('deleted') })
})
