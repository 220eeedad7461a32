// Ways to another user or group than the container's own, and the server without root.
import { spawn as execute } from 'node:child_process'
import { once } from 'node:events'
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { makeUser, type SystemUser } from '../../fixtures/attacks/system-user.ts'
import { type Outside, openOutside, privateAddresses } from '../../fixtures/network/external-host.ts'
import { end, history, spawn, textOf, untilStatus } from '../../fixtures/sessions.ts'
import { type Booted, boot, containerOf, docker, inEngine, onDisk } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { freePort } from '../../harness/free-port.ts'
import { bootServer } from '../../harness/server.ts'
import { until } from '../../harness/wait.ts'

const own = 'uid=1000(droid) gid=1000(droid) groups=1000(droid)\n'

describe('in a container', () => {
  let booted: Booted
  let project_id: string
  let grouped_id: string
  const image = `oubtest-groups:${process.pid}`

  beforeAll(async () => {
    booted = await boot()
    project_id = await booted.project()
    await booted.ok('container', { action: 'start', project_id })

    await makeImage((await (await containerOf(booted.server, project_id)).inspect()).Config.Image)
    grouped_id = await booted.project({ image })
    await booted.ok('container', { action: 'start', project_id: grouped_id })
  })
  afterAll(async () => {
    await booted?.stop()
    await docker
      .getImage(image)
      .remove({ force: true })
      .catch(() => undefined)
  })

  /** Its user is in the groups of disks and of passwords, its names look like other numbers, a program is set-group-id. */
  async function makeImage(base: string): Promise<void> {
    const script = [
      'usermod --append --groups disk,shadow,kmem droid',
      'install --group disk --mode 2755 /usr/bin/id /usr/local/bin/id-disk',
      "sed -i '1i1000:x:0:0::/:/bin/sh' /etc/passwd",
      "sed -i '1i1000:x:6:' /etc/group",
    ].join(' && ')
    const container = await docker.createContainer({
      Image: base,
      User: '0:0',
      Entrypoint: ['sh', '-c', script],
      Cmd: [],
      HostConfig: { NetworkMode: 'none' },
    })
    try {
      await container.start()
      expect(await container.wait()).toMatchObject({ StatusCode: 0 })
      const [repo, tag] = image.split(':')
      await container.commit({ repo, tag })
    } finally {
      await container.remove({ force: true })
    }
  }

  /** What a container of this image that is not ours prints. */
  async function beside(command: string[], user: string): Promise<string> {
    const container = await docker.createContainer({
      Image: image,
      User: user,
      Entrypoint: command.slice(0, 1),
      Cmd: command.slice(1),
      HostConfig: { NetworkMode: 'none' },
    })
    try {
      await container.start()
      await container.wait()
      return (await container.logs({ stdout: true })).subarray(8).toString()
    } finally {
      await container.remove({ force: true })
    }
  }

  const foreign = [
    ...['root', '0', '00', '0:0', 'root:root', '1000:0', '1000:root', 'droid:root', 'nobody:root'],
    ...['1234', '1234:1234', '01000', 'nobody', 'nobody:droid', 'no-such-user'],
    ...['1000:6', '1000:disk', 'droid:shadow', 'droid:42', '1000:no-such-group', '1234:droid'],
  ]

  test('exec runs as no other user or group', async () => {
    for (const user of ['1000', '1000:1000', 'droid', 'droid:droid', 'droid:1000', '1000:droid'])
      expect((await booted.exec(project_id, ['id'], { user })).stdout, user).toBe(own)
    for (const user of foreign) {
      const request = { action: 'exec', project_id, command: 'touch made-by-another', user }
      expect((await booted.fault('container', request)).kind, user).toBe('forbidden')
    }
    const workspace = join(booted.server.home, 'projects', project_id, 'workspaces/default')
    expect(await readdir(workspace)).not.toContain('made-by-another')
  })

  test('files of an exec with a user belong to the container on the host too', async () => {
    await booted.exec(project_id, 'touch mine', { user: 'droid' })
    const { uid, gid } = await lstat(
      join(booted.server.home, 'projects', project_id, 'workspaces/default/mine'),
    )
    expect({ uid, gid }).toEqual({ uid: 1000, gid: 1000 })
  })

  test("an image's own groups are not given to exec, for any user that it names", async () => {
    expect(await beside(['id', '-G'], 'droid')).toContain('6')
    for (const user of [undefined, '1000', '1000:1000', 'droid'])
      expect((await booted.exec(grouped_id, ['id', '-G'], user ? { user } : {})).stdout, user).toBe('1000\n')
    // In this image that name means the group of disks.
    const request = { action: 'exec', project_id: grouped_id, command: 'id', user: 'droid:disk' }
    expect((await booted.fault('container', request)).kind).toBe('forbidden')
  })

  test("an image's own groups are not given to the main process and to sessions", async () => {
    const status = await booted.exec(grouped_id, 'cat /proc/1/status')
    expect(status.stdout).toMatch(/^Uid:\s+1000\s+1000\s+1000\s+1000$/m)
    expect(status.stdout).toMatch(/^Gid:\s+1000\s+1000\s+1000\s+1000$/m)
    expect(status.stdout).toMatch(/^Groups:\s*(1000)?\s*$/m)
    const { session_id } = await spawn(booted, grouped_id, 'id -u; id -G')
    expect(textOf(await history(booted, session_id))).toBe('1000\n1000\n')
  })

  test('a set-group-id program of the image gives no group', async () => {
    expect(await beside(['id-disk'], '1000:1000')).toContain('egid=6')
    const { stdout } = await booted.exec(grouped_id, ['id-disk'])
    expect(stdout).toContain('gid=1000')
    expect(stdout).not.toContain('egid')
  })
})

describe('a server without root', { timeout: 180_000 }, () => {
  let user: SystemUser
  let booted: Booted
  let outside: Outside

  beforeAll(async () => {
    user = await makeUser(['docker'])
    outside = await openOutside()
    booted = await boot({ embedded: true, run_as: user })
  })
  afterAll(async () => {
    await booted?.stop()
    await outside?.stop()
    await user?.remove()
  })

  test('has no capability, and gives containers its own user and group and no other', async () => {
    const status = await readFile(`/proc/${booted.server.pid()}/status`, 'utf8')
    expect(status).toMatch(new RegExp(`^Uid:(\\s+${user.uid}){4}$`, 'm'))
    expect(status).toMatch(/^CapEff:\s+0+$/m)
    const project_id = await booted.project()
    await booted.ok('container', { action: 'start', project_id })
    const { stdout } = await booted.exec(project_id, 'id -u; id -G')
    // Not the group whose number happens to be that of the user.
    expect(user.uid).not.toBe(user.gid)
    expect(stdout).toBe(`${user.uid}\n${user.gid}\n`)
    await booted.fault('container', { action: 'exec', project_id, command: 'id', user: '1000' })
  })

  test('does all that one with root does, through a kill, and leaves nothing behind', async () => {
    const project_id = await booted.project()
    await booted.ok('container', { action: 'start', project_id })
    const file = { project_id, path: 'deep/er/note.txt' }
    await booted.ok('workspace', {
      action: 'write_file',
      ...file,
      content: 'from outside',
      create_parents: true,
    })
    expect(
      (await booted.exec(project_id, 'cat deep/er/note.txt; echo inside > deep/er/note.txt')).stdout,
    ).toBe('from outside')
    expect((await booted.ok('workspace', { action: 'read_file', ...file })).content).toBe('inside\n')
    const workspace_id = 'second'
    const { session_id } = await spawn(
      booted,
      project_id,
      'mkdir -p a/b; echo x > a/b/c; echo said by $(id -u)',
      {
        workspace_id,
        create_workspace: true,
      },
    )
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(textOf(await history(booted, session_id))).toBe(`said by ${user.uid}\n`)
    expect((await booted.exec(project_id, 'cat deep/er/note.txt')).stdout).toBe('inside\n')
    await end(booted, session_id)
    await untilStatus(booted, session_id, 'completed')
    await booted.ok('workspace', { action: 'delete', project_id, workspace_id })
    await booted.ok('container', { action: 'start', project_id, recreate: true })
    await booted.ok('project', { action: 'delete', project_id })
    expect((await inEngine(booted.server)).containers).not.toContain(project_id)
    expect((await onDisk(booted.server)).projects).not.toContain(project_id)
  })

  test('closes networks as one with root does', async () => {
    const connects = async (project_id: string, host: string) =>
      (await booted.exec(project_id, `timeout 3 bash -c '</dev/tcp/${host}/${outside.port}'`)).exit_code === 0
    for (const network of ['open', 'internal', 'none']) {
      const project_id = await booted.project({ network, init_git: false })
      await booted.ok('container', { action: 'start', project_id })
      expect(await connects(project_id, outside.public_address), network).toBe(network === 'open')
      for (const [kind, address] of Object.entries(privateAddresses))
        expect(await connects(project_id, address), `${network}: ${kind}`).toBe(false)
    }
  })

  test('does not start with another user for its containers', async () => {
    const started = bootServer({ embedded: true, run_as: user, config: { container_uid: 1000 } })
    // One that starts against all expectation is not left running.
    started.then(
      (server) => server.stop(),
      () => undefined,
    )
    await expect(started).rejects.toThrow(/container_uid 1000 requires a server that runs as root/)
  })
})

describe('up as root', { timeout: 180_000 }, () => {
  let user: SystemUser
  let stranger: SystemUser
  let place: string
  let made = 0

  beforeAll(async () => {
    user = await makeUser(['docker'])
    stranger = await makeUser([])
    place = await mkdtemp(join(tmpdir(), 'oub-up-'))
    await chmod(place, 0o755)
  })
  afterAll(async () => {
    await rm(place, { recursive: true, force: true })
    await user?.remove()
    await stranger?.remove()
  })

  const newHome = () => join(place, `home${++made}`)

  async function withUp(
    home: string,
    args: string[],
    check: (said: string, pid: number) => Promise<void>,
  ): Promise<void> {
    const env = { OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: `127.0.0.1:${await freePort()}` }
    try {
      const { code, stdout, stderr } = await runCli(['up', '--detach', ...args], env, 110_000)
      expect({ code, stderr }).toMatchObject({ code: 0 })
      const { pid } = JSON.parse(await readFile(join(home, 'daemon.json'), 'utf8')) as { pid: number }
      await check(stdout, pid)
    } finally {
      expect((await runCli(['down', '--all'], env, 60_000)).stdout).toContain('Server stopped.')
    }
  }

  test('prints how to run without root, and does not prompt without a terminal', async () => {
    await withUp(newHome(), [], async (said, pid) => {
      expect(said).toContain('./oubliette up --user NAME')
      expect(said).not.toContain('User name (empty to run as root)')
      expect(await readFile(`/proc/${pid}/status`, 'utf8')).toMatch(/^Uid:\s+0\s/m)
    })
  })

  test('prompts on a terminal', async () => {
    const home = newHome()
    const program = join(import.meta.dirname, '../../../cmd/oubliette-server/main.ts')
    const child = execute(
      'script',
      ['-qefc', `'${process.execPath}' '${program}' up --detach`, '/dev/null'],
      {
        env: { ...process.env, OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: `127.0.0.1:${await freePort()}` },
      },
    )
    let said = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text
    })
    const ended = once(child, 'exit')
    await until(() => said.includes('User name (empty to run as root)'), {
      what: 'it asks',
      deadline_ms: 30_000,
    })
    child.stdin.write('no-such-user\n')
    expect(await ended).toEqual([1, null])
    expect(said).toContain('user "no-such-user" does not exist')
    await expect(lstat(home)).rejects.toThrow('ENOENT')
  })

  test('runs the server as the configured user, with no privilege of root left', async () => {
    const home = join(newHome(), 'below')
    await withUp(home, ['--user', user.name], async (said, pid) => {
      expect(said).not.toContain('runs as root')
      const status = await readFile(`/proc/${pid}/status`, 'utf8')
      for (const [name, id] of [
        ['Uid', user.uid],
        ['Gid', user.gid],
      ])
        expect(status).toMatch(new RegExp(`^${name}:(\\s+${id}){4}$`, 'm'))
      expect(status).toMatch(/^Cap(Prm|Eff):\s+0+$/m)
      expect(status).not.toMatch(/^Groups:(.*\s)?0\s/m)
      for (const name of ['.', ...(await readdir(home))])
        expect((await lstat(join(home, name))).uid, name).toBe(user.uid)
    })
  })

  test('does not give a home with data of another user away', async () => {
    const home = newHome()
    await mkdir(home, { mode: 0o755 })
    await writeFile(join(home, 'admin.token'), 'secret', { mode: 0o600 })
    const { code, stderr } = await runCli(['up', '--user', user.name], { OUBLIETTE_HOME: home })
    expect(code).toBe(1)
    expect(stderr).toContain('holds data of another user (uid 0)')
    for (const name of ['.', 'admin.token']) expect((await lstat(join(home, name))).uid).toBe(0)
  })

  test('does not follow a link in place of the home', async () => {
    const victim = join(place, 'victim')
    await mkdir(victim)
    const home = newHome()
    await symlink(victim, home)
    const { code } = await runCli(['up', '--user', user.name], { OUBLIETTE_HOME: home })
    expect(code).toBe(1)
    expect((await lstat(victim)).uid).toBe(0)
    expect(await readdir(victim)).toEqual([])
  })

  test('refuses a user who is root, unknown, or not allowed to use the engine', async () => {
    const refused = async (name: string) => {
      const env = { OUBLIETTE_HOME: newHome(), OUBLIETTE_ADDRESS: `127.0.0.1:${await freePort()}` }
      const { code, stderr } = await runCli(['up', '--detach', '--user', name], env)
      expect(code).toBe(1)
      return stderr
    }
    expect(await refused('root')).toContain('is root')
    expect(await refused('no-such-user')).toContain('does not exist')
    expect(await refused(stranger.name)).toContain(`usermod --append --groups docker ${stranger.name}`)
  })
})
