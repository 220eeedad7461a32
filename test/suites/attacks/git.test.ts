// Git credentials never enter a container. The git host is on this machine's loopback, which containers do not reach: whatever
// they get from it came through the server's git proxy. The containers here have no network at all.
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { createConnection } from 'node:net'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Droid, droid, socketOf } from '../../fixtures/droid-socket.ts'
import { type GitRemote, startGitRemote } from '../../fixtures/git-remote.ts'
import { end, spawn } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, containerOf, docker, uniqueName } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const run = promisify(execFile)
const secret = `s3cr3t-${randomBytes(12).toString('hex')}`
const login = Buffer.from(`robot:${secret}`).toString('base64')
let remote: GitRemote
let booted: Booted
/** A clone of the closed repository, with a living session. */
let home: { project_id: string; droid: Droid }

const create = (path: string, fields: object = {}) => ({
  action: 'create',
  name: uniqueName(),
  network: 'none',
  remote_url: `${remote.url}${path}`,
  credential_refs: ['forge'],
  wait: true,
  ...fields,
})

beforeAll(async () => {
  remote = await startGitRemote(secret)
  booted = await boot({
    config: {
      log: { level: 'debug' },
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
      credentials: { forge: { provider: 'git', username: 'robot', key: '${env:FORGE_KEY}' } },
    },
    env: { FORGE_KEY: secret },
  })
  const { project_id } = await booted.ok('project', create('/closed/repo.git'))
  home = { project_id, droid: await droid(booted, project_id) }
})
afterAll(async () => {
  await booted?.stop()
  await remote?.[Symbol.asyncDispose]()
})

const workspace = async (project_id: string): Promise<Answer> =>
  (await booted.ok('workspace', { action: 'list', project_id })).workspaces[0]
const inState = (project_id: string, state: string) =>
  until(
    async () => {
      const found = await workspace(project_id)
      return found.state === state && found
    },
    { deadline_ms: 40_000, what: `the workspace is ${state}` },
  )

/** The body may have come in chunks, whose borders would hide what is searched for. */
function whole(text: string): string {
  const at = text.indexOf('\r\n\r\n') + 4
  if (!/^transfer-encoding: chunked/im.test(text.slice(0, at))) return text
  let body = ''
  for (let rest = text.slice(at); rest !== ''; ) {
    const end = rest.indexOf('\r\n')
    const length = Number.parseInt(rest.slice(0, end), 16)
    if (!(length > 0)) break
    body += rest.slice(end + 2, end + 2 + length)
    rest = rest.slice(end + 2 + length + 2)
  }
  return text.slice(0, at) + body
}

type Reply = { status: number; text: string }
/** One HTTP request on the socket of a container, byte for byte, as a process in it could send. */
function ask(socket: string, lines: string[], body = ''): Promise<Reply> {
  return new Promise((done, fail) => {
    const connection = createConnection(socket)
    let text = ''
    connection.on('data', (chunk) => {
      text += chunk.toString('latin1')
    })
    connection.once('error', fail)
    connection.once('close', () =>
      done({ status: Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0), text: whole(text) }),
    )
    connection.write([...lines, 'Host: git', 'Connection: close', '', body].join('\r\n'))
  })
}
const refs = '/git/remote/info/refs?service=git-upload-pack'
const bearer = (key: string) => `Authorization: Bearer ${key}`
const asDroid = (target: string, from: Droid = home.droid, method = 'GET') =>
  ask(from.socket, [`${method} ${target} HTTP/1.1`, bearer(from.api_key)])

/** Everything in a container where the credential could be: processes, files, and what the engine tells. */
async function everywhere(project_id: string): Promise<string> {
  const container = await containerOf(booted.server, project_id)
  const stream = await (
    await container.exec({
      // Patterns on stdin would be an environment or a command line that matches itself.
      Cmd: [
        'bash',
        '-c',
        `for p in /proc/[0-9]*; do cat $p/environ $p/cmdline 2>/dev/null; done | tr '\\0' '\\n'
         grep -rahoE 's3cr3t-[0-9a-f]{24}|${login.slice(0, 12)}[A-Za-z0-9+/=]*' /workspaces /home/droid /tmp /run /etc /var /dev/shm 2>/dev/null
         true`,
      ],
      AttachStdout: true,
    })
  ).start({})
  const inside = new Promise<string>((done) => {
    let text = ''
    docker.modem.demuxStream(stream, { write: (chunk: Buffer) => (text += chunk) } as never, process.stderr)
    stream.once('end', () => done(text))
  })
  return (await inside) + JSON.stringify(await container.inspect())
}

describe('the credential', () => {
  test('is in no process, file or engine record of the container, during a clone and after it', async () => {
    remote.shut()
    const events: string[] = []
    const listening = await docker.getEvents({ filters: { type: ['container'] } })
    listening.on('data', (chunk: Buffer) => events.push(chunk.toString()))
    const { project_id } = await booted.ok('project', create('/gated/repo.git', { wait: false }))
    await until(() => remote.gated() === 1, { what: 'git is in the middle of its clone' })
    const during = await everywhere(project_id)
    expect(during).toContain('git-remote-http')
    expect(during).toContain('oubg_')
    remote.open()
    await inState(project_id, 'ready')
    const after = await everywhere(project_id)
    ;(listening as unknown as { destroy(): void }).destroy()
    for (const text of [during, after, events.join('')]) {
      expect(text).not.toContain(secret)
      expect(text).not.toContain(login)
    }
    expect(after).not.toContain('oubg_')
    const config = await booted.exec(project_id, 'cat .git/config; cat README; git status --short')
    expect(config.stdout).toContain(`url = ${remote.url}/gated/repo.git`)
    expect(config.stdout).not.toMatch(/4141|oub[gs]_|Authorization|helper/)
    expect(config.stdout).toMatch(/from repo\n$/)

    // The same search finds it in each of these places once it is there.
    await booted.exec(project_id, `echo ${secret} > /tmp/planted`)
    expect(await everywhere(project_id)).toContain(secret)
    await booted.exec(project_id, `rm /tmp/planted; FORGE=${login} setsid sleep 300 >/dev/null 2>&1 &`)
    expect(await everywhere(project_id)).toContain(login)
  })

  test('is in no row, log line or file of the server’s home', async () => {
    expect(remote.seen.some(({ authorization }) => authorization === `Basic ${login}`)).toBe(true)
    for (const table of ['projects', 'containers', 'workspaces', 'audit', 'events'])
      expect(JSON.stringify(await booted.query(`select * from ${table}`))).not.toContain(secret)
    // grep ends with 1 when it finds nothing.
    await expect(run('grep', ['-rlaF', secret, booted.server.home])).rejects.toMatchObject({ code: 1 })
    const { stdout } = await run('grep', ['-rlaF', 'from repo', booted.server.home])
    expect(stdout).toContain('README')
    expect(booted.server.log()).toContain('git request')
    expect(booted.server.log()).not.toContain(secret)
    expect(booted.server.log()).not.toContain(login)
  })

  test('does not follow a redirect to another origin', async () => {
    const fault = await booted.fault('project', create('/away/repo.git'))
    expect(fault.message).toContain('redirects to another address')
    expect(remote.seenElsewhere).toEqual([])
    // On its own origin a remote may have moved, and the whole clone goes there.
    const { project_id } = await booted.ok('project', create('/moved/old.git'))
    const { stdout } = await booted.exec(project_id, 'cat README; git fetch && echo fetched')
    expect(stdout).toBe('from repo\nfetched\n')
  })

  test.each(['echo', 'mirror'])('is scrubbed where the remote repeats it (%s)', async (kind) => {
    const fault = await booted.fault('project', create(`/${kind}/repo.git`))
    expect(fault.message).toContain('you sent Basic ***')
    const project_id = /\(([0-9a-f-]{36})\)/.exec(fault.message)![1]!
    const from = await droid(booted, project_id)
    const { text } = await asDroid(refs, from)
    expect(text).toContain('you sent')
    for (const told of [text, JSON.stringify(fault), JSON.stringify(await workspace(project_id))]) {
      expect(told).not.toContain(secret)
      expect(told).not.toContain(login)
      expect(told).not.toMatch(/x-seen|set-cookie/i)
    }
  })

  test('belongs to the project that names it: another one gets nothing from the same host', async () => {
    const fault = await booted.fault('project', create('/closed/repo.git', { credential_refs: [] }))
    expect(fault).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('requires a credential'),
    })
    const { project_id } = await booted.ok('project', create('/open/repo.git', { credential_refs: [] }))
    expect((await booted.exec(project_id, 'cat README')).stdout).toBe('from repo\n')
  })
})

describe('a container', () => {
  test('does not reach the remote itself, only through the proxy', async () => {
    const { project_id } = home
    const direct = `git -c url.x.insteadOf=y ls-remote`
    const [through, around] = await Promise.all([
      booted.exec(project_id, 'git ls-remote origin'),
      booted.exec(project_id, `env -u GIT_CONFIG_COUNT ${direct} ${remote.url}/closed/repo.git`),
    ])
    expect(through).toMatchObject({ exit_code: 0, stdout: expect.stringContaining('refs/heads/main') })
    expect(around).toMatchObject({ exit_code: 128, stderr: expect.stringMatching(/connect|Could not/i) })
  })

  test.each([
    ['GET', '/git/../closed/other.git/info/refs?service=git-upload-pack'],
    ['GET', '/git/remote/../other.git/info/refs?service=git-upload-pack'],
    ['GET', '/git/remote/..%2fother.git/info/refs?service=git-upload-pack'],
    ['GET', '/git/%2e%2e/other.git/info/refs?service=git-upload-pack'],
    ['GET', '/git/remote%00/info/refs?service=git-upload-pack'],
    ['GET', '/git//other.git/info/refs?service=git-upload-pack'],
    ['GET', '/git/other.git/info/refs?service=git-upload-pack'],
    ['GET', '/git/remote@127.0.0.1/info/refs?service=git-upload-pack'],
    ['GET', '/git/remote/info/refs'],
    ['GET', '/git/remote/HEAD'],
    ['GET', '/git/remote/objects/info/packs'],
    ['GET', '/git/remote/info/refs?service=git-upload-archive'],
    ['GET', '/git/remote/info/refs?service=git-upload-pack&service=git-upload-archive'],
    ['POST', '/git/remote/git-upload-archive'],
    ['POST', '/git/remote/info/lfs/objects/batch'],
    ['DELETE', '/git/remote/info/refs?service=git-upload-pack'],
  ])('gets nothing of the host by %s %s', async (method, target) => {
    const before = remote.seen.length
    const { status, text } = await asDroid(target, home.droid, method)
    expect(status).toBe(404)
    expect(text).not.toContain('refs/heads')
    expect(remote.seen.length).toBe(before)
    expect((await asDroid(refs)).text).toContain('refs/heads/main')
  })

  test('gets the one remote by the one path, also when it names another by an absolute address', async () => {
    expect(await asDroid(refs)).toMatchObject({
      status: 200,
      text: expect.stringContaining('refs/heads/main'),
    })
    const before = remote.seen.length
    const absolute = await asDroid(`${remote.url}/closed/other.git/info/refs?service=git-upload-pack`)
    expect(absolute.status).toBe(404)
    expect(remote.seen.length).toBe(before)
  })

  test('sends the remote no header of its own', async () => {
    const before = remote.seen.length
    const reply = await ask(home.droid.socket, [
      `GET ${refs} HTTP/1.1`,
      bearer(home.droid.api_key),
      `X-Forwarded-Host: ${remote.elsewhere}`,
      'Cookie: a=b',
      'Git-Protocol: version=2\tx',
    ])
    expect(reply.status).toBe(200)
    expect(remote.seen.slice(before)).toEqual([
      {
        method: 'GET',
        url: '/closed/repo.git/info/refs?service=git-upload-pack',
        authorization: `Basic ${login}`,
        headers: ['accept', 'accept-encoding', 'authorization', 'connection', 'host', 'user-agent'],
      },
    ])
  })
})

describe('without the right key', () => {
  const withKey = (key: string | undefined, socket = home.droid.socket) =>
    ask(socket, [`GET ${refs} HTTP/1.1`, ...(key === undefined ? [] : [bearer(key)])])

  test('of a living session of this container nothing is passed on', async () => {
    const other = await droid(booted, await booted.project())
    const ended = await droid(booted, home.project_id)
    expect((await withKey(ended.api_key)).status).toBe(200)
    await end(booted, ended.session_id)
    const before = remote.seen.length
    const made_up = (prefix: string) => `${prefix}_${randomBytes(32).toString('hex')}`
    for (const key of [
      undefined,
      made_up('oubs'),
      made_up('oubg'),
      other.api_key,
      ended.api_key,
      login,
      secret,
    ])
      expect((await withKey(key)).status).toBe(403)
    // The key of one container in another, whose project has no remote at all.
    expect((await withKey(home.droid.api_key, other.socket)).status).toBe(403)
    expect((await withKey(other.api_key, other.socket)).status).toBe(404)
    expect(remote.seen.length).toBe(before)
    expect((await withKey(home.droid.api_key)).status).toBe(200)
  })

  test('the key of a preparation does not push, is worth nothing in another container, and ends with it', async () => {
    remote.shut()
    const { project_id } = await booted.ok('project', create('/gated/repo.git', { wait: false }))
    await until(() => remote.gated() === 1, { what: 'git is in the middle of its clone' })
    const key = /oubg_[0-9a-f]{64}/.exec(await everywhere(project_id))![0]
    const from = { ...home.droid, project_id, api_key: key, socket: socketOf(booted, project_id) }
    const with_it = (target: string) => asDroid(target, from)
    expect((await with_it(refs)).status).toBe(200)
    expect((await withKey(key)).status).toBe(403)
    expect(await with_it(refs.replace('upload', 'receive'))).toMatchObject({
      status: 403,
      text: expect.stringContaining('does not permit git-receive-pack'),
    })
    remote.open()
    await inState(project_id, 'ready')
    expect((await with_it(refs)).status).toBe(403)
  })

  test('an exec’s key ends with the exec', async () => {
    const { project_id } = home
    const { stdout } = await booted.exec(
      project_id,
      'echo $GIT_CONFIG_VALUE_1; git ls-remote -q >/dev/null && echo ok',
    )
    expect(stdout).toMatch(/^Authorization: Bearer oubg_[0-9a-f]{64}\nok\n$/)
    expect((await withKey(/oubg_[0-9a-f]{64}/.exec(stdout)![0])).status).toBe(403)
  })

  test('a request ends when its session ends', async () => {
    remote.shut()
    const { project_id } = await booted.ok('project', create('/open/repo.git'))
    await booted.query('update projects set remote_url = $1 where id = $2', [
      `${remote.url}/silent/repo.git`,
      project_id,
    ])
    const from = await droid(booted, project_id)
    const asked = asDroid(refs, from)
    await until(() => remote.seen.some(({ url }) => url.startsWith('/silent/')), {
      what: 'the remote was asked',
    })
    await end(booted, from.session_id)
    expect((await asked).status).toBe(403)
  })
})

test('a session fetches and pushes with its own key, large packs too', async () => {
  remote.open()
  const { project_id } = home
  const script = `set -e
    git config user.name droid; git config user.email droid@example
    head -c 3000000 /dev/urandom > big.bin; git add big.bin; git commit -qm 'from the droid'
    git push -q origin HEAD:refs/heads/droid
    git fetch -q origin && git rev-parse origin/droid HEAD; git config remote.origin.url`
  const session = await spawn(booted, project_id, script, { wait_seconds: 55 })
  expect(session.final_text).toMatch(
    new RegExp(`([0-9a-f]{40})\\n\\1\\n${remote.url.replaceAll('..', '\\.')}/closed/repo\\.git`),
  )
  expect(await remote.head('repo', 'droid')).toBe('from the droid')
  const exec = await booted.exec(project_id, 'git push -q origin HEAD:refs/heads/exec')
  expect(exec).toMatchObject({ exit_code: 0 })
})

describe('a clone that fails', () => {
  test('is an error of project create with wait; the project stays and start tries again', async () => {
    const name = uniqueName()
    const fault = await booted.fault('project', create('/closed/none.git', { name }))
    expect(fault).toMatchObject({ kind: 'unavailable', hint: expect.stringContaining('container start') })
    expect(fault.message).toMatch(
      /was created, but its remote was not cloned: .*does not have this repository/,
    )
    const { projects } = await booted.ok('project', { action: 'list', name_contains: name })
    expect(projects[0].default_workspace).toMatchObject({
      state: 'failed',
      prepare_error: expect.stringContaining(`${remote.url}/closed/none.git`),
    })
    const { project_id } = projects[0]
    expect(fault.message).toContain(project_id)
    await booted.query('update projects set remote_url = $1 where id = $2', [
      `${remote.url}/closed/repo.git`,
      project_id,
    ])
    await booted.ok('container', { action: 'start', project_id, recreate: true })
    expect(await workspace(project_id)).toMatchObject({ state: 'ready', prepare_error: null })
  })

  test('is a visible state of the workspace without wait', async () => {
    const created = await booted.ok('project', create('/page/repo.git', { wait: false }))
    expect(created.default_workspace).toEqual({ state: 'preparing', prepare_error: null })
    const { prepare_error } = await inState(created.project_id, 'failed')
    expect(prepare_error).toContain('smart HTTP')
    const shown = await booted.ok('project', { action: 'get', project_id: created.project_id })
    expect(shown.default_workspace).toEqual({ state: 'failed', prepare_error })
  })

  test('a credential for an ssh remote is refused at once', async () => {
    const wanted = { remote_url: 'ssh://git@git.example/a.git', network: 'open' }
    expect(await booted.fault('project', create('', wanted))).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('ssh'),
    })
    expect(
      await booted.fault('project', create('', { ...wanted, network: 'none', credential_refs: [] })),
    ).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('network none'),
    })
  })
})

test('a droid starts when its remote is cloned, not before', async () => {
  remote.shut()
  const { project_id } = await booted.ok('project', create('/gated/repo.git', { wait: false }))
  await until(() => remote.gated() === 1, { what: 'git is in the middle of its clone' })
  const spawned = spawn(booted, project_id, 'cat README')
  const listed = async () => (await booted.ok('session', { action: 'list', project_id })).sessions
  await until(async () => (await listed()).length === 1, { what: 'the session is there' })
  expect(['queued', 'preparing', 'starting']).toContain((await listed())[0].status)
  remote.open()
  expect((await spawned).final_text).toBe('from repo\n')
})

test('a server killed in the middle of a clone finishes it after its restart', async () => {
  remote.shut()
  const { project_id } = await booted.ok('project', create('/gated/repo.git', { wait: false }))
  await until(() => remote.gated() === 1, { what: 'git is in the middle of its clone' })
  await booted.server.restart('SIGKILL')
  await booted.reconnect()
  expect(await workspace(project_id)).toMatchObject({ state: 'preparing', prepared_at: null })
  await until(() => remote.gated() === 1, { what: 'the clone was begun again', deadline_ms: 40_000 })
  remote.open()
  await inState(project_id, 'ready')
  const { stdout } = await booted.exec(project_id, 'ls -A; git status --short; git log --format=%s')
  expect(stdout).toBe('.git\n.hidden\nREADME\na\nrun.sh\nfirst of repo\n')
})

describe('a remote', () => {
  test.each(['silent', 'endless'])(
    'that is %s holds up nobody else, and stop and delete work',
    async (kind) => {
      const { project_id } = await booted.ok('project', create(`/${kind}/repo.git`, { wait: false }))
      await until(() => remote.seen.some(({ url }) => url.startsWith(`/${kind}/`)), {
        what: 'the remote was asked',
      })
      if (kind === 'endless') await until(() => remote.endless() > 20_000_000, { what: 'it sends and sends' })
      const times: number[] = []
      for (let at = 0; at < 20; at += 1) {
        const from = performance.now()
        expect((await fetch(`${booted.server.url}/healthz`)).status).toBe(200)
        await booted.ok('project', { action: 'get', project_id: home.project_id })
        times.push(performance.now() - from)
      }
      expect(times.sort((a, b) => a - b)[10]).toBeLessThan(250)
      expect((await booted.exec(home.project_id, 'git ls-remote -q origin')).exit_code).toBe(0)
      await booted.ok('container', { action: 'stop', project_id })
      expect((await workspace(project_id)).state).toBe('failed')
      await booted.ok('project', { action: 'delete', project_id })
    },
  )

  test('is asked fifty times at once by one container, sixteen at a time, and another is not kept waiting', async () => {
    const script = 'for i in $(seq 50); do (git ls-remote -q origin >/dev/null && echo ok) & done; wait'
    const [many, one] = await Promise.all([
      booted.exec(home.project_id, script),
      booted.ok('project', create('/closed/repo.git')),
    ])
    expect(String(many.stdout).match(/ok/g)).toHaveLength(50)
    expect(one.default_workspace.state).toBe('ready')
  })

  test('a thousand requests in one piece cost the container its connections, nobody else theirs', async () => {
    const connection = createConnection(home.droid.socket)
    const closed = new Promise((done) => connection.once('close', done))
    connection.on('error', () => undefined).resume()
    connection.write(`GET ${refs} HTTP/1.1\r\nHost: git\r\n\r\n`.repeat(1000))
    await closed
    const { project_id } = await booted.ok('project', create('/closed/repo.git'))
    expect((await booted.exec(project_id, 'git ls-remote -q origin')).exit_code).toBe(0)
  })
})
