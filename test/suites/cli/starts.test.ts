// Starts that say what is true: whose server answers at an address, and why one cannot start.
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runCli } from '../../harness/cli.ts'
import { removeInstance } from '../../harness/docker.ts'
import { freePort } from '../../harness/free-port.ts'

const homes: string[] = []
async function newHome(): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'oub-start-'))
  homes.push(home)
  return home
}
async function remove(home: string): Promise<void> {
  const file = join(home, 'instance-id')
  if (existsSync(file)) await removeInstance((await readFile(file, 'utf8')).trim())
  await rm(home, { recursive: true, force: true })
}

describe('two homes on one address', () => {
  let port: number
  let winner: string
  let loser: string
  const at = (home: string, more: Record<string, string> = {}) => ({
    OUBLIETTE_HOME: home,
    OUBLIETTE_ADDRESS: `127.0.0.1:${port}`,
    ...more,
  })
  const timed = async (words: string[], env: Record<string, string>) => {
    const started_ms = performance.now()
    const finished = await runCli(words, env)
    expect(performance.now() - started_ms).toBeLessThan(10_000)
    return finished
  }

  beforeAll(async () => {
    port = await freePort()
  })
  afterAll(async () => {
    for (const home of homes) await runCli(['down', '--all'], at(home))
    await Promise.all(homes.map(remove))
  })

  test('of two that start at the same time, one is ready and the other says that it is not', async () => {
    const started = [await newHome(), await newHome()]
    const ends = await Promise.all(started.map((home) => runCli(['up', '--detach'], at(home), 100_000)))
    const ready = ends.map(({ code, stdout }) => code === 0 && stdout.includes('Oubliette is ready'))
    expect(ready.filter(Boolean)).toHaveLength(1)
    winner = started[ready.indexOf(true)]!
    loser = started[ready.indexOf(false)]!
    const lost = ends[ready.indexOf(false)]!
    expect(lost.code).toBe(1)
    expect(lost.stdout).not.toContain('is ready')
    expect(lost.stderr).toMatch(/in use by another program|is not the server of/)
  }, 120_000)

  test('status tells them apart', async () => {
    expect(await timed(['status'], at(winner))).toMatchObject({ code: 0, stderr: '' })
    const foreign = await timed(['status'], at(loser))
    expect(foreign.code).toBe(1)
    expect(foreign.stdout).toMatch(/^status +stopped$/m)
    expect(foreign.stderr).toMatch(
      new RegExp(
        `^oubliette: the server that answers at 127.0.0.1:${port} is not the server of ${loser}\n  set [^\n]+\n$`,
      ),
    )
  })

  test.each([
    ['up', '--detach'],
    ['run', 'true'],
  ])('%s does not use the server of the other home', async (...words) => {
    const { code, stdout, stderr } = await timed(words, at(loser))
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr).toContain(`is not the server of ${loser}`)
  })

  test('a client of a remote server sees its status', async () => {
    const OUBLIETTE_TOKEN = (await readFile(join(winner, 'admin.token'), 'utf8')).trim()
    const { code, stdout } = await timed(['status'], at(loser, { OUBLIETTE_TOKEN }))
    expect(code).toBe(0)
    expect(stdout).toMatch(/^status +ready$/m)
  })

  test.each([['status'], ['up', '--detach'], ['run', 'true']])(
    '%s on another address says at once where the server listens',
    async (...words) => {
      const other = `127.0.0.1:${await freePort()}`
      const { code, stderr } = await timed(words, at(winner, { OUBLIETTE_ADDRESS: other }))
      expect(code).toBe(1)
      expect(stderr).toContain(`listens on 127.0.0.1:${port}, not on ${other}`)
      expect(stderr.trimEnd().split('\n')).toHaveLength(2)
    },
  )

  test('up of a running server reports it', async () => {
    const { code, stdout } = await timed(['up', '--detach'], at(winner))
    expect(code).toBe(0)
    expect(stdout).toContain('already running')
  })
})

describe('a home in an impossible place', () => {
  let file: string
  beforeAll(async () => {
    file = join(await newHome(), 'file')
    await writeFile(file, '')
  })
  afterAll(() => rm(join(file, '..'), { recursive: true, force: true }))

  const places: [string, () => string][] = [
    ['a file', () => file],
    ['below a file', () => join(file, 'home')],
    ['below /proc', () => '/proc/oubliette/home'],
    ['below /sys', () => '/sys/oubliette'],
    ['a device', () => '/dev/null'],
  ]
  test.each(places)('%s is one line and a hint', async (_name, place) => {
    const OUBLIETTE_ADDRESS = `127.0.0.1:${await freePort()}`
    for (const words of [['up', '--detach'], ['serve'], ['run', 'true']]) {
      const { code, stdout, stderr } = await runCli(
        words,
        { OUBLIETTE_HOME: place(), OUBLIETTE_ADDRESS },
        15_000,
      )
      expect([words[0], code, stdout]).toEqual([words[0], 1, ''])
      expect(stderr).toMatch(
        /^oubliette: (cannot use )?OUBLIETTE_HOME \S+( is not a directory|: [^\n]+)\n {2}set OUBLIETTE_HOME [^\n]+\n$/,
      )
    }
  })
})
