import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { inFlightFile, openInFlight, readLeft } from './in-flight.ts'

const request = { project_id: 'p', key: 'k', what: 'caller_tool' }
const here = JSON.stringify(import.meta.dirname)

/** A process of its own, which works on a request and then does what the script says. */
async function run(home: string, script: string): Promise<{ signal: string | null; said: string }> {
  const code = `
    const { openInFlight } = await import(${here} + '/in-flight.ts')
    const { startWatchdog } = await import(${here} + '/watchdog.ts')
    const home = ${JSON.stringify(home)}
    const file = openInFlight(home, () => undefined, (error) => { throw error })
    const watchdog = startWatchdog({ home, seconds: 2 })
    await new Promise((done) => setTimeout(done, 300))
    file.begin(${JSON.stringify(request)})
    ${script}`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  child.stderr.on('data', (chunk) => {
    said += chunk
  })
  const [, signal] = (await once(child, 'exit')) as [number | null, string | null]
  return { signal, said }
}

test('a process whose event loop stands still is ended, and leaves behind what it was working on', async () => {
  const home = mkdtempSync(join(tmpdir(), 'oub-watchdog-'))
  try {
    const frozen = await run(home, 'for (;;) {}')
    expect(frozen.signal).toBe('SIGKILL')
    expect(frozen.said).toContain('event loop blocked')
    expect(frozen.said).toContain('caller_tool')
    expect(readLeft(inFlightFile(home))).toEqual({ requests: [request], frozen: true })
    // One that is done with its request, and busy with pauses for longer than that, is left alone.
    const busy = await run(
      home,
      `for (const until = Date.now() + 3000; Date.now() < until; ) {
        for (const from = Date.now(); Date.now() < from + 200; ) {}
        await new Promise((done) => setTimeout(done, 1))
      }
      process.kill(process.pid, 'SIGTERM')`,
    )
    expect(busy.signal).toBe('SIGTERM')
    expect(readLeft(inFlightFile(home))).toEqual({ requests: [], frozen: false })
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}, 30_000)

test('a request is in the file until its turn and the promises that it settles are over', async () => {
  const home = mkdtempSync(join(tmpdir(), 'oub-in-flight-'))
  const done: string[] = []
  const file = openInFlight(
    home,
    ({ key }) => done.push(key),
    () => undefined,
  )
  const left = () => readLeft(inFlightFile(home)).requests.map(({ key }) => key)
  try {
    file.begin(request)
    file.begin({ ...request, key: 'l' })
    expect(left()).toEqual(['k', 'l'])
    for (let hop = 0; hop < 5; hop++) await Promise.resolve()
    expect(left()).toEqual(['k', 'l'])
    await new Promise((turn) => setImmediate(turn))
    expect(left()).toEqual([])
    expect(done).toEqual(['k', 'l'])
    for (let at = 0; at < 100; at++) file.begin({ ...request, key: `${at}` })
    expect(left()).toHaveLength(64)
    expect(left().at(-1)).toBe('99')
  } finally {
    file.close()
    rmSync(home, { recursive: true, force: true })
  }
})
