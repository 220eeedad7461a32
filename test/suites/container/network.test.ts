import { once } from 'node:events'
import { connect, createServer, type Server } from 'node:net'
import { networkInterfaces } from 'node:os'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Outside, openOutside, privateAddresses } from '../../fixtures/network/external-host.ts'
import { connectsFrom } from '../../fixtures/network/probe.ts'
import { type Booted, boot, containerOf, docker, each, inEngine, instanceOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const modes = ['none', 'internal', 'open'] as const
const projects = new Map<string, string>()
let booted: Booted
let listener: Server
let port: number
let reached = 0
let outside: Outside

beforeAll(async () => {
  outside = await openOutside()
  booted = await boot()
  listener = createServer((socket) => {
    reached++
    socket.on('error', () => undefined).end('hello')
  }).listen(0, '0.0.0.0')
  await once(listener, 'listening')
  port = (listener.address() as { port: number }).port
  for (const mode of modes) {
    const project_id = await booted.project({ network: mode })
    projects.set(mode, project_id)
    await booted.ok('container', { action: 'start', project_id })
    // A listener of what is at hand in the image.
    const listen = 'setsid git daemon --reuseaddr --port=9418 --base-path=/tmp </dev/null >/dev/null 2>&1 &'
    await booted.exec(project_id, listen)
  }
})
afterAll(async () => {
  listener?.close()
  await booted?.stop()
  await outside?.stop()
})

const connects = async (project_id: string, host: string, to: number): Promise<boolean> =>
  (await booted.exec(project_id, `timeout 2 bash -c '</dev/tcp/${host}/${to}'`)).exit_code === 0

async function addressOf(project_id: string): Promise<string> {
  const { NetworkSettings } = await (await containerOf(booted.server, project_id)).inspect()
  return Object.values(NetworkSettings.Networks)[0]!.IPAddress
}

async function networkOf(project_id: string) {
  const label = [`oubliette.instance=${await instanceOf(booted.server)}`, `oubliette.project=${project_id}`]
  const [found] = await docker.listNetworks({ filters: { label } })
  return found
}

describe.each(modes)('with network %s', (mode) => {
  test('loopback works', async () => {
    const project_id = projects.get(mode)!
    await until(() => connects(project_id, '127.0.0.1', 9418), { what: 'it reaches its own listener' })
  })

  test('no port of the host can be reached, by any of its addresses', async () => {
    const project_id = projects.get(mode)!
    const addresses = Object.values(networkInterfaces())
      .flatMap((all) => all ?? [])
      .filter(({ family, internal }) => family === 'IPv4' && !internal)
      .map(({ address }) => address)
    // The gateway is the first address of the subnet, and one of the host's own.
    const subnet = (await networkOf(project_id))?.IPAM?.Config?.[0]?.Subnet
    const gateway = subnet?.replace(/(\d+)\/28$/, (_, last) => String(Number(last) + 1))
    if (mode !== 'none') expect(addresses).toContain(gateway)
    const before = reached
    // The control: each of the addresses answers the host itself.
    for (const address of addresses) expect(await fetchPort(address), address).toBe(true)
    await until(() => reached === before + addresses.length, { what: 'the listener was reached by each' })
    const heard = reached
    const reachable = await each(addresses, 4, async (address) =>
      (await connects(project_id, address, port)) ? address : undefined,
    )
    expect(reachable.filter(Boolean)).toEqual([])
    expect(reached).toBe(heard)
  })

  test('a link-local address cannot be reached, a public one only from an open network', async () => {
    const project_id = projects.get(mode)!
    const address = privateAddresses['a link-local address (169.254/16)']
    const like = await containerOf(booted.server, project_id)
    expect(await connectsFrom(like, 'bridge', address, outside.port), "from Docker's own bridge").toBe(true)
    expect(await connects(project_id, address, outside.port)).toBe(false)
    expect(await connects(project_id, outside.public_address, outside.port)).toBe(mode === 'open')
  })

  test("another project's container cannot be reached", async () => {
    const project_id = projects.get(mode)!
    for (const other of modes.filter((name) => name !== mode && name !== 'none')) {
      const address = await addressOf(projects.get(other)!)
      expect(address).toMatch(/^10\./)
      const like = await containerOf(booted.server, projects.get(other)!)
      const own = (await networkOf(projects.get(other)!))!.Name
      expect(await connectsFrom(like, own, address, 9418), `from the network of ${other}`).toBe(true)
      expect(await connects(project_id, address, 9418), `${mode} → ${other}`).toBe(false)
    }
  })

  test('it has the interfaces and the network that its mode means', async () => {
    const { stdout } = await booted.exec(projects.get(mode)!, ['ls', '/sys/class/net'])
    expect(stdout.trim().split(/\s+/)).toEqual(mode === 'none' ? ['lo'] : ['eth0', 'lo'])
    const network = await networkOf(projects.get(mode)!)
    expect(network?.Internal).toBe(mode === 'none' ? undefined : mode === 'internal')
  })
})

async function fetchPort(address: string): Promise<boolean> {
  const socket = connect(port, address)
  try {
    await once(socket, 'connect')
    return true
  } finally {
    socket.destroy()
  }
}

test('a neighbour on the same network is reached: what is closed is closed by rule, not by accident', async () => {
  for (const mode of ['internal', 'open'] as const) {
    const project_id = projects.get(mode)!
    const container = await containerOf(booted.server, project_id)
    const sidecar = await docker.createContainer({
      Image: (await container.inspect()).Config.Image,
      Entrypoint: ['git', 'daemon', '--port=9999', '--base-path=/tmp'],
      Cmd: [],
      HostConfig: { NetworkMode: (await networkOf(project_id))!.Name },
    })
    try {
      await sidecar.start()
      const { NetworkSettings } = await sidecar.inspect()
      const address = Object.values(NetworkSettings.Networks)[0]!.IPAddress
      await until(() => connects(project_id, address, 9999), { what: `the neighbour answers (${mode})` })
    } finally {
      await sidecar.remove({ force: true })
    }
  }
})

test('another mode takes effect with a recreate', async () => {
  const project_id = await booted.project({ network: 'open' })
  await booted.ok('container', { action: 'start', project_id })
  for (const network of ['internal', 'none', 'open']) {
    await booted.ok('project', { action: 'update', project_id, network })
    await booted.ok('container', { action: 'start', project_id, recreate: true })
    const found = await networkOf(project_id)
    expect(found?.Internal).toBe({ internal: true, none: undefined, open: false }[network])
  }
})

test('forty projects run at the same time with networks of their own, and leave none behind', {
  timeout: 120_000,
}, async () => {
  const from = performance.now()
  const ids = await each(Array.from({ length: 40 }), 8, async () => {
    const project_id = await booted.project({ network: 'internal', init_git: false })
    await booted.ok('container', { action: 'start', project_id })
    return project_id
  })
  const networks = await Promise.all(ids.map(networkOf))
  const subnets = networks.map((network) => network?.IPAM?.Config?.[0]?.Subnet)
  expect(new Set(subnets).size).toBe(40)
  expect(subnets.every((subnet) => /^10\.213\.\d+\.\d+\/28$/.test(subnet ?? ''))).toBe(true)
  process.stdout.write(`40 networks and containers: ${Math.round(performance.now() - from)} ms\n`)
  await each(ids, 8, (project_id) => booted.ok('project', { action: 'delete', project_id }))
  const left = await inEngine(booted.server)
  expect(left.networks.filter((id) => ids.includes(id))).toEqual([])
})
