// From inside a container: ways to the host, to private networks and around the rules that close them.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer, type Server } from 'node:net'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type Outside,
  openOutside,
  privateAddresses,
  resolverAddress,
} from '../../fixtures/network/external-host.ts'
import { connectsFrom } from '../../fixtures/network/probe.ts'
import { type Booted, boot, containerOf, docker, each, instanceOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const run = promisify(execFile)
const kinds = Object.entries(privateAddresses)
const allowed = privateAddresses['a private address (172.16/12)']
const carrier = privateAddresses['a shared address of a carrier (100.64/10)']
const closed = kinds.filter(([, address]) => address !== allowed && address !== carrier)

let outside: Outside
/** With the defaults, and with exceptions: two servers on one engine. */
let plain: Booted
let lenient: Booted
let open_id: string
let internal_id: string
let lenient_id: string

async function started(booted: Booted, network: string): Promise<string> {
  const project_id = await booted.project({ network, init_git: false })
  await booted.ok('container', { action: 'start', project_id })
  return project_id
}

beforeAll(async () => {
  outside = await openOutside()
  plain = await boot()
  lenient = await boot({
    config: { allowed_networks: [`${allowed}/32`, '100.64.0.0/10'], dns_servers: [resolverAddress] },
  })
  open_id = await started(plain, 'open')
  internal_id = await started(plain, 'internal')
  lenient_id = await started(lenient, 'open')
})

afterAll(async () => {
  if (lenient_id) await forgetExceptions(lenient, lenient_id)
  await lenient?.stop()
  await plain?.stop()
  await outside?.stop()
})

/** A server keeps its exceptions for its next start; servers of tests have none. */
async function forgetExceptions(booted: Booted, project_id: string): Promise<void> {
  const bridges = (await bridgeOf(booted, project_id)).slice(0, 8)
  const chain = `OUBLIETTE-${bridges.slice(4)}`
  for (const table of ['filter', 'security'])
    for (const rule of [
      ['-D', 'OUBLIETTE', '-i', `${bridges}+`, '-g', chain],
      ['-F', chain],
      ['-X', chain],
    ])
      await run('iptables', ['-w', '5', '-t', table, ...rule])
}

/** From this machine, which no rule holds back: the control of a probe that has to fail. */
const hostConnects = async (host: string, port: number): Promise<boolean> => {
  const socket = connect({ host, port, timeout: 2000 })
  try {
    await Promise.race([once(socket, 'connect'), once(socket, 'timeout').then(() => Promise.reject())])
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

const connects = async (booted: Booted, project_id: string, host: string, port = outside.port) =>
  (await booted.exec(project_id, `timeout 3 bash -c '</dev/tcp/${host}/${port}'`)).exit_code === 0

async function networkOf(booted: Booted, project_id: string) {
  const label = [`oubliette.instance=${await instanceOf(booted.server)}`, `oubliette.project=${project_id}`]
  const [network] = await docker.listNetworks({ filters: { label } })
  return network!
}

const bridgeOf = async (booted: Booted, project_id: string): Promise<string> =>
  (await networkOf(booted, project_id)).Options!['com.docker.network.bridge.name']!

/** The host's own address on the project's bridge. */
const gatewayOf = async (booted: Booted, project_id: string): Promise<string> =>
  (await networkOf(booted, project_id)).IPAM!.Config![0]!.Subnet!.replace(/(\d+)\/28$/, (_, last) =>
    String(Number(last) + 1),
  )

async function listening(host: string): Promise<{ server: Server; port: number; reached: () => number }> {
  let reached = 0
  const server = createServer((socket) => {
    reached++
    socket.on('error', () => undefined).end('hello')
  }).listen(0, host)
  await once(server, 'listening')
  return { server, port: (server.address() as { port: number }).port, reached: () => reached }
}

describe('an open network', () => {
  test('reaches a public address', async () => {
    expect(await connects(plain, open_id, outside.public_address)).toBe(true)
    expect(await connects(lenient, lenient_id, outside.public_address)).toBe(true)
  })

  test.each(kinds)('does not reach %s', async (_, address) => {
    expect(await outside.answers(address), 'it answers this machine').toBe(true)
    const before = outside.heard().length
    expect(await connects(plain, open_id, address)).toBe(false)
    expect(outside.heard().length).toBe(before)
  })

  test('does not reach a private address by another spelling', async () => {
    const address = privateAddresses['a private address (192.168/16)']
    const spellings = (of: string) => {
      const number = of.split('.').reduce((sum, part) => sum * 256 + Number(part), 0)
      return [String(number), `0x${number.toString(16)}`, `[::ffff:${of}]`]
    }
    const fetchFrom = async (host: string) => {
      const url = `http://${host}:${outside.port}/`
      return (await plain.exec(open_id, ['curl', '--silent', '--http0.9', '--max-time', '3', url])).exit_code
    }
    expect(await outside.answers(address)).toBe(true)
    const before = outside.heard().length
    for (const host of spellings(address)) expect(await fetchFrom(host), host).not.toBe(0)
    expect(outside.heard().length).toBe(before)
    // The control: a public address is reached by each of the spellings.
    for (const host of spellings(outside.public_address)) expect(await fetchFrom(host), host).toBe(0)
    await until(() => outside.heard().length === before + 3, {
      what: 'the host outside was reached three times',
    })
  })

  test('does not reach what only another server on the same engine is allowed to', async () => {
    expect(await connects(lenient, lenient_id, allowed)).toBe(true)
    expect(await connects(plain, open_id, allowed)).toBe(false)
    // Each sets its own rules again before a start.
    await started(plain, 'open')
    expect(await connects(lenient, lenient_id, allowed)).toBe(true)
    await started(lenient, 'open')
    expect(await connects(plain, open_id, allowed)).toBe(false)
  })

  test('reaches no port of a DNS server but 53', async () => {
    const before = outside.heard().filter((line) => line === 'dns').length
    const { stdout } = await lenient.exec(lenient_id, ['getent', 'ahostsv4', 'anything.example'])
    expect(stdout).toContain(outside.public_address)
    expect(outside.heard().filter((line) => line === 'dns').length).toBeGreaterThan(before)
    expect(await outside.answers(resolverAddress), 'the other port answers this machine').toBe(true)
    expect(await connects(lenient, lenient_id, resolverAddress)).toBe(false)
    expect(await connects(plain, open_id, resolverAddress)).toBe(false)
  })

  test('has no IPv6', async () => {
    const { stdout } = await plain.exec(open_id, 'grep -v " lo$" /proc/net/if_inet6; ls /sys/class/net')
    expect(stdout.trim().split('\n')).toEqual(['eth0', 'lo'])
  })
})

describe('the ranges that the config allows', () => {
  test('are reached', async () => {
    expect(await connects(lenient, lenient_id, allowed)).toBe(true)
    expect(await connects(lenient, lenient_id, carrier)).toBe(true)
  })

  test('open nothing else', async () => {
    expect(await connects(lenient, lenient_id, allowed), 'the control').toBe(true)
    for (const [kind, address] of closed) {
      expect(await outside.answers(address), `${kind} answers this machine`).toBe(true)
      expect(await connects(lenient, lenient_id, address), kind).toBe(false)
    }
  })

  test('are not for an internal network', async () => {
    const project_id = await started(lenient, 'internal')
    for (const address of [allowed, carrier, outside.public_address]) {
      expect(await connects(lenient, lenient_id, address), `${address} from an open network`).toBe(true)
      expect(await connects(lenient, project_id, address), address).toBe(false)
    }
  })

  test('do not open the host, also when they name every address', async () => {
    const { server, port } = await listening('0.0.0.0')
    const everything = await boot({ config: { allowed_networks: ['0.0.0.0/0'] } })
    let project_id: string | undefined
    try {
      project_id = await started(everything, 'open')
      // Also the control of every probe of these addresses that fails elsewhere: from a container it can succeed.
      for (const [kind, address] of kinds)
        expect(await connects(everything, project_id, address), kind).toBe(true)
      const near = outside.public_address.replace(/\d+$/, (last) => String(Number(last) - 1))
      for (const address of [await gatewayOf(everything, project_id), near]) {
        expect(await hostConnects(address, port), `${address} answers this machine`).toBe(true)
        expect(await connects(everything, project_id, address, port), address).toBe(false)
      }
    } finally {
      server.close()
      if (project_id) await forgetExceptions(everything, project_id)
      await everything.stop()
    }
  })
})

describe('an internal network', () => {
  test('reaches no address at all', async () => {
    expect(await connects(plain, open_id, outside.public_address), 'from an open network').toBe(true)
    for (const address of [outside.public_address, ...Object.values(privateAddresses)]) {
      expect(await outside.answers(address), `${address} answers this machine`).toBe(true)
      expect(await connects(plain, internal_id, address), address).toBe(false)
    }
  })

  test('resolves no name, and no query leaves it', async () => {
    const project_id = await started(lenient, 'internal')
    const asked = () => outside.heard().filter((line) => line === 'dns').length
    await lenient.exec(lenient_id, ['getent', 'ahostsv4', 'control.example'])
    const before = asked()
    expect(before).toBeGreaterThan(0)
    const { exit_code } = await lenient.exec(project_id, ['getent', 'ahostsv4', 'secret.example'])
    expect(exit_code).not.toBe(0)
    expect(asked()).toBe(before)
    // An unassigned address, so that the engine does not ask from the host, where there would be an answer.
    const { HostConfig } = await (await containerOf(lenient.server, project_id)).inspect()
    expect(HostConfig.Dns).toEqual(['192.0.0.8'])
  })
})

describe('the rules', () => {
  test('have no gap while they and networks are made', async () => {
    const address = privateAddresses['a private address (192.168/16)']
    const neighbour_id = await started(plain, 'open')
    await plain.exec(
      neighbour_id,
      'setsid git daemon --reuseaddr --port=9418 --base-path=/tmp </dev/null >/dev/null 2>&1 &',
    )
    await until(() => connects(plain, neighbour_id, '127.0.0.1', 9418), { what: 'the other project listens' })
    const container = await containerOf(plain.server, neighbour_id)
    const { NetworkSettings } = await container.inspect()
    const neighbour = Object.values(NetworkSettings.Networks)[0]!.IPAddress
    const own = (await networkOf(plain, neighbour_id)).Name
    expect(await connectsFrom(container, own, neighbour, 9418), 'from its own network').toBe(true)
    expect(await outside.answers(address), 'the private address answers this machine').toBe(true)
    const knock = (host: string, port: number) =>
      `(end=$((SECONDS+5)); n=0; while [ $SECONDS -lt $end ]; do (</dev/tcp/${host}/${port}) 2>/dev/null && echo "${host}: through"; n=$((n+1)); done; echo "${host}: $n tries") &`
    const doors = [
      knock(address, outside.port),
      knock(neighbour, 9418),
      knock(outside.public_address, outside.port),
    ]
    const knocking = plain.exec(open_id, `${doors.join('\n')}\nwait`)
    await each([1, 2, 3], 1, () => started(lenient, 'open'))
    await each([1, 2, 3], 1, () => started(plain, 'open'))
    const { stdout } = await knocking
    expect(stdout).toContain(`${outside.public_address}: through`)
    for (const closed_host of [address, neighbour]) {
      expect(stdout).not.toContain(`${closed_host}: through`)
      expect(Number(new RegExp(`${closed_host}: (\\d+) tries`).exec(stdout)?.[1])).toBeGreaterThan(20)
    }
  })

  test("hold for IPv6 on the host's end of a bridge", async () => {
    const { server, port, reached } = await listening('::')
    const bridge = await bridgeOf(plain, open_id)
    // A neighbour that may have IPv6, as no container may; first beside the bridge, then on it.
    const [namespace, near, far] = [`oubsix${process.pid}`, `o6${process.pid}a`, `o6${process.pid}b`]
    const linkLocal = async (device: string) =>
      await until(
        async () => {
          const { stdout } = await run('ip', ['-6', '-o', 'addr', 'show', 'dev', device, 'scope', 'link'])
          return !stdout.includes('tentative') && /inet6 (fe80[^/]*)/.exec(stdout)?.[1]
        },
        { what: `${device} has a link-local address` },
      )
    const answers = async (device: string) => {
      const host = `${await linkLocal(device)}%${far}`
      const probe = `require('net').connect({host:'${host}',port:${port},timeout:2000}).on('connect',()=>process.exit(0)).on('timeout',()=>process.exit(1)).on('error',()=>process.exit(1))`
      return await run('ip', ['netns', 'exec', namespace, process.execPath, '-e', probe]).then(
        () => true,
        () => false,
      )
    }
    await run('ip', ['netns', 'add', namespace])
    try {
      await run('ip', ['link', 'add', near, 'type', 'veth', 'peer', 'name', far, 'netns', namespace])
      await run('ip', ['link', 'set', near, 'up'])
      await run('ip', ['-n', namespace, 'link', 'set', far, 'up'])
      await until(() => answers(near), { what: 'the host answers beside the bridge' })
      await run('ip', ['link', 'set', near, 'master', bridge])
      const before = reached()
      expect(await answers(bridge)).toBe(false)
      expect(reached()).toBe(before)
    } finally {
      server.close()
      await run('ip', ['netns', 'del', namespace])
    }
  })
})
