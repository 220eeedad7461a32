// Remotes in ordinary use: cloned through the server where they speak HTTP, by the container's own network where they do not.
import type Docker from 'dockerode'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type GitRemote, startGitRemote } from '../../fixtures/git-remote.ts'
import { type Answer, type Booted, boot, containerOf, docker, instanceOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const sidecars: Docker.Container[] = []
let remote: GitRemote
let booted: Booted

beforeAll(async () => {
  remote = await startGitRemote('not used here')
  booted = await boot()
})
afterAll(async () => {
  for (const sidecar of sidecars) await sidecar.remove({ force: true, v: true })
  await booted?.stop()
  await remote?.[Symbol.asyncDispose]()
})

const script = `
git init -q /tmp/work && cd /tmp/work
echo "from the daemon" > README && git add . && git -c user.name=t -c user.email=t@t commit -qm first
git clone -q --bare /tmp/work /tmp/repo.git
exec git daemon --reuseaddr --export-all --base-path=/tmp /tmp
`

/** Containers cannot reach the host, so the git daemon is a neighbour on the project's own network. */
async function serveOn(project_id: string): Promise<void> {
  const { Config } = await (await containerOf(booted.server, project_id)).inspect()
  const label = [`oubliette.instance=${await instanceOf(booted.server)}`, `oubliette.project=${project_id}`]
  const [network] = await docker.listNetworks({ filters: { label } })
  const sidecar = await docker.createContainer({
    Image: Config.Image,
    User: '0:0',
    Entrypoint: ['bash', '-c', script],
    Cmd: [],
    HostConfig: { NetworkMode: network!.Name },
    NetworkingConfig: { EndpointsConfig: { [network!.Name]: { Aliases: ['forge'] } } },
  })
  sidecars.push(sidecar)
  await sidecar.start()
  await until(
    async () => (await booted.exec(project_id, 'timeout 2 bash -c "</dev/tcp/forge/9418"')).exit_code === 0,
    { what: 'the git daemon answers', deadline_ms: 20_000 },
  )
}

const workspace = async (project_id: string): Promise<Answer> =>
  (await booted.ok('workspace', { action: 'list', project_id })).workspaces[0]
const start = (project_id: string) => booted.ok('container', { action: 'start', project_id })

test('a public remote is cloned without a network, and its files belong to the container', async () => {
  const project_id = await booted.project({ remote_url: `${remote.url}/open/repo.git/`, wait: true })
  expect(await workspace(project_id)).toMatchObject({ state: 'ready', prepared_at: expect.any(String) })
  const { content } = await booted.ok('workspace', { action: 'read_file', project_id, path: 'README' })
  expect(content).toBe('from repo\n')
  const { stdout } = await booted.exec(
    project_id,
    'stat -c %u README; git log --format=%s; git pull -q && echo pulled',
  )
  expect(stdout).toBe('1000\nfirst of repo\npulled\n')
})

test('a remote that does not use HTTP is reached by the network of the container, and start retries it', async () => {
  const project_id = await booted.project({ network: 'open', remote_url: 'git://forge/repo.git' })
  const failed = await until(
    async () => {
      const found = await workspace(project_id)
      return found.state === 'failed' && found
    },
    { deadline_ms: 30_000, what: 'the clone failed' },
  )
  expect(failed).toMatchObject({ prepared_at: null, prepare_error: expect.stringContaining('forge') })
  expect(await booted.ok('project', { action: 'get', project_id })).toMatchObject({
    container: { status: 'running' },
    default_workspace: { state: 'failed', prepare_error: failed.prepare_error },
  })
  await serveOn(project_id)
  await start(project_id)
  expect(await workspace(project_id)).toMatchObject({ state: 'ready', prepare_error: null })
  expect((await booted.exec(project_id, 'cat README')).stdout).toBe('from the daemon\n')
})

test('a private remote is refused without a credential, and no password is prompted for', async () => {
  const name = { remote_url: `${remote.url}/closed/repo.git`, wait: true }
  await expect(booted.project(name)).rejects.toThrow(/requires a credential \(HTTP 401\)/)
})

test('files that block a clone are not touched, and the clone is made when they are removed', async () => {
  remote.shut()
  const project_id = await booted.project({ remote_url: `${remote.url}/page/repo.git` })
  await until(async () => (await workspace(project_id)).state === 'failed', { what: 'the clone failed' })
  await booted.ok('workspace', { action: 'write_file', project_id, path: 'README', content: 'mine' })
  await booted.query('update projects set remote_url = $1 where id = $2', [
    `${remote.url}/open/repo.git`,
    project_id,
  ])
  await booted.ok('container', { action: 'start', project_id, recreate: true })
  expect((await workspace(project_id)).prepare_error).toContain('not empty')
  expect((await booted.exec(project_id, 'cat README; rm README')).stdout).toBe('mine')
  await start(project_id)
  expect((await booted.exec(project_id, 'cat README')).stdout).toBe('from repo\n')
})

test('what a killed clone left behind is removed or finished', async () => {
  const project_id = await booted.project({ remote_url: `${remote.url}/page/repo.git` })
  await until(async () => (await workspace(project_id)).state === 'failed', { what: 'the clone failed' })
  await booted.query('update projects set remote_url = $1 where id = $2', [
    `${remote.url}/open/repo.git`,
    project_id,
  ])
  await booted.ok('container', { action: 'stop', project_id })
  await booted.ok('container', { action: 'start', project_id })
  const again = async () => {
    const text = `update workspaces set prepared_at = null, state = 'preparing' where project_id = $1`
    await booted.query(text, [project_id])
    await start(project_id)
    expect(await workspace(project_id)).toMatchObject({ state: 'ready', prepare_error: null })
    const { stdout } = await booted.exec(project_id, 'ls -A; git status --short')
    expect(stdout).toBe('.git\n.hidden\nREADME\na\nrun.sh\n')
  }
  // As if killed after the clone, before the row was written.
  await again()
  // As if killed while it moved the finished clone into place.
  const half =
    'mkdir .oubliette-clone && mv .git a .oubliette-clone/ && mkdir -p .oubliette-clone.part/.git/objects'
  await booted.exec(project_id, half)
  await again()
  // As if killed while git was at work.
  await booted.exec(project_id, 'rm -rf .[!.]* *; mkdir -p .oubliette-clone.part/.git/objects')
  await again()
})

test('a project is deleted at once while its clone hangs', async () => {
  const creating = booted.client().call('project', {
    action: 'create',
    name: 'hangs',
    network: 'none',
    remote_url: `${remote.url}/silent/repo.git`,
    wait: true,
  })
  await until(() => remote.seen.some(({ url }) => url.startsWith('/silent/')), { what: 'git is cloning' })
  const { projects } = await booted.ok('project', { action: 'list', name_contains: 'hangs' })
  const from = performance.now()
  await booted.ok('project', { action: 'delete', project_id: projects[0].project_id })
  expect(performance.now() - from).toBeLessThan(10_000)
  const { structured } = await creating
  expect(structured.error).toMatchObject({ kind: 'conflict', message: expect.stringContaining('deleted') })
})
