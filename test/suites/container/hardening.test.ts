import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot, containerOf } from '../../harness/booted.ts'

const limits = { memory_mb: 192, cpus: 0.5, pids: 64 }
let booted: Booted
let project_id: string
let other_id: string

beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project({ limits })
  other_id = await booted.project()
  for (const id of [project_id, other_id]) await booted.ok('container', { action: 'start', project_id: id })
  await booted.ok('workspace', {
    action: 'write_file',
    project_id: other_id,
    path: 'theirs.txt',
    content: 'private',
  })
})
afterAll(() => booted?.stop())

const inside = async (command: string) => await booted.exec(project_id, command)

test('a process in it is not root, has no capability and can gain none', async () => {
  const { stdout } = await inside('grep -E "^(Uid|Gid|Cap|NoNewPrivs)" /proc/self/status; id -u')
  const status = Object.fromEntries(stdout.split('\n').map((line: string) => line.split(/:\s+/)))
  expect(status.Uid).toBe('1000\t1000\t1000\t1000')
  expect(status.Gid).toBe('1000\t1000\t1000\t1000')
  for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) expect(status[set]).toMatch(/^0+$/)
  expect(status.NoNewPrivs).toBe('1')
})

test('so is its main process, which is under an init', async () => {
  const { stdout } = await inside('grep -E "^(Uid|CapBnd)" /proc/1/status; cat /proc/1/comm')
  expect(stdout).toMatch(/Uid:\s+1000\s/)
  expect(stdout).toMatch(/CapBnd:\s+0+\n/)
  expect(stdout).toMatch(/init/)
})

test('the engine was asked for exactly what a project may have', async () => {
  const { HostConfig, Mounts, Config } = await (await containerOf(booted.server, project_id)).inspect()
  expect(HostConfig).toMatchObject({
    Privileged: false,
    CapDrop: ['ALL'],
    SecurityOpt: ['no-new-privileges'],
    ReadonlyRootfs: true,
    Init: true,
    NetworkMode: 'none',
    IpcMode: 'private',
    PublishAllPorts: false,
    Memory: limits.memory_mb * 1024 * 1024,
    MemorySwap: limits.memory_mb * 1024 * 1024,
    NanoCpus: limits.cpus * 1e9,
    PidsLimit: limits.pids,
    RestartPolicy: { Name: 'no' },
  })
  for (const mode of [HostConfig.PidMode, HostConfig.UTSMode, HostConfig.UsernsMode])
    expect(mode).not.toBe('host')
  expect(HostConfig.CapAdd ?? []).toEqual([])
  expect(HostConfig.Devices ?? []).toEqual([])
  expect(HostConfig.Binds ?? []).toEqual([])
  expect(Config.User).toBe('1000:1000')

  const { home } = booted.server
  const mounts = new Map(Mounts.map((mount) => [mount.Destination, mount]))
  const own = `${home}/projects/${project_id}`
  // The same directories, through mounts with more flags where the server may make such.
  const source = (target: string) =>
    mounts.get(target)?.Source.replace(/^\/run\/oubliette-[0-9a-f]{12}(?=\/)/, home)
  expect(source('/workspaces')).toBe(`${own}/workspaces`)
  expect(source('/home/droid')).toBe(`${own}/home`)
  expect(source('/run/oubliette')).toMatch(`${home}/sockets/`)
  expect(source('/opt/oubliette')).toMatch(`${home}/client/`)
  expect(mounts.size).toBe(4)
  // The program that runs in it comes from outside, and cannot be changed from inside.
  const { stdout } = await inside('cat /proc/self/mountinfo')
  const lines = stdout.split('\n').map((line: string) => line.split(' '))
  for (const target of ['/run/oubliette', '/opt/oubliette']) {
    const mount = lines.findLast(([, , , , path]: string[]) => path === target)
    expect(mount?.[5].split(','), target).toContain('ro')
  }
})

test('its limits are those of its cgroup', async () => {
  const v1 = [
    'memory/memory.limit_in_bytes',
    'pids/pids.max',
    'cpu/cpu.cfs_quota_us',
    'cpu/cpu.cfs_period_us',
  ]
  const v2 = ['memory.max', 'pids.max', 'cpu.max']
  const { stdout } = await inside(
    `cd /sys/fs/cgroup; if [ -e cgroup.controllers ]; then cat ${v2.join(' ')}; else cat ${v1.join(' ')}; fi`,
  )
  const [memory, pids, quota, period] = stdout.split(/\s+/).map(Number)
  expect(memory).toBe(limits.memory_mb * 1024 * 1024)
  expect(pids).toBe(limits.pids)
  expect(quota / period).toBe(limits.cpus)
})

test('a fork bomb ends at the limit, and the container still works', async () => {
  const bomb = 'for i in $(seq 200); do sleep 30 & done; wait'
  const { stderr, exit_code } = await booted.exec(project_id, bomb, { timeout_seconds: 8 })
  expect(exit_code).not.toBe(0)
  expect(stderr).toMatch(/fork|Resource temporarily unavailable/)
  expect((await inside('echo alive')).stdout).toBe('alive\n')
})

test('its root is read-only, and only its own places can be written', async () => {
  const written = await inside(
    'for d in / /etc /usr/bin /opt /var /root /run/oubliette /tmp /home/droid /workspaces /workspaces/default; do ' +
      '(echo x > $d/.probe) 2>/dev/null && echo $d; done',
  )
  expect(written.stdout.trim().split('\n').sort()).toEqual(
    ['/tmp', '/home/droid', '/workspaces', '/workspaces/default'].sort(),
  )
})

test('it has no way to the engine, to devices or to the kernel', async () => {
  const { stdout } = await inside(
    'find / -xdev -type s 2>/dev/null; ls /var/run/docker.sock /run/docker.sock /run/containerd 2>/dev/null; true',
  )
  expect(stdout).not.toMatch(/docker|containerd/)
  for (const command of [
    'mount -t tmpfs none /tmp',
    'mknod /tmp/disk b 8 0',
    'echo 1 > /proc/sys/kernel/panic',
    'echo c > /proc/sysrq-trigger',
    'dmesg -C',
    'chroot / true',
    'su -c true',
  ])
    expect((await inside(command)).exit_code, command).not.toBe(0)
})

test('files of another project do not exist in it', async () => {
  const { stdout } = await inside(
    'ls -a /workspaces; find / -name theirs.txt -not -path "/proc/*" 2>/dev/null',
  )
  expect(stdout.split('\n').filter((line: string) => line && !line.startsWith('.'))).toEqual(['default'])
  expect(JSON.stringify(await inside('cat /proc/mounts'))).not.toContain(other_id)
})

test('neither do the processes, the control data and the tokens of the host', async () => {
  const { stdout } = await inside('cat /proc/[0-9]*/cmdline | tr "\\0" " "; ls -a /run/oubliette; env')
  expect(stdout).not.toContain('oubliette-server')
  expect(stdout).not.toContain('admin.token')
  expect(stdout).not.toContain(booted.server.admin_token)
  expect(stdout).not.toMatch(/DATABASE_URL|postgres/)
})
