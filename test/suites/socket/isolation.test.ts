// Two containers, two sessions: neither can see, name, answer, guess or disturb what is the other's. And a process that
// misbehaves on its socket loses its connection; the server keeps its health.
import { randomBytes, randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Dialled,
  type Droid,
  dial,
  dialAs,
  droid,
  openRequests,
  socketOf,
} from '../../fixtures/droid-socket.ts'
import { history } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const offer = (caller_id: string) => ({
  caller_id,
  caller_tools: [{ name: 'ring', inputSchema: { type: 'object' }, timeout_seconds: 3600 }],
})
let booted: Booted
let a: Droid
let b: Droid
beforeAll(async () => {
  booted = await boot({ config: { log: { level: 'warn' } } })
  const [first, second] = await Promise.all([booted.project(), booted.project()])
  a = await droid(booted, first, offer('alpha'))
  b = await droid(booted, second, { ...offer('beta'), api_scope: `project:${second}` })
})
afterAll(() => booted?.stop())

const methods: [string, object][] = [
  ['oubliette_tools', {}],
  ['oubliette_call_tool', { tool: 'project_list', arguments: {} }],
  ['caller_tools', {}],
  ['caller_tool', { tool: 'alpha_ring', arguments: {} }],
  ['session_message', { message: 'true' }],
  ['session_events', { session_id: 'gogol_00000000000000000000' }],
]

describe('without a key of this container', () => {
  it.each(methods)('%s gives nothing but an error', async (method, params) => {
    const dialled = await dial(a.socket)
    const made_up = `oubs_${randomBytes(32).toString('hex')}`
    const none = await dialled.ask(method, params)
    expect(none.error).toMatchObject({ code: -32001, data: { kind: 'unauthenticated' } })
    const theirs = await dialled.ask(method, { ...params, api_key: b.api_key })
    const nobodys = await dialled.ask(method, { ...params, api_key: made_up })
    expect(theirs.error).toMatchObject({ code: -32001 })
    expect(theirs.error?.message).toBe(nobodys.error?.message)
    expect([none, theirs, nobodys].map(({ result }) => result)).toEqual([undefined, undefined, undefined])
    dialled.close()
  })

  it('hello, and what only a supervisor may say, are refused too', async () => {
    const dialled = await dial(a.socket)
    const hello = { role: 'droid', api_key: b.api_key }
    expect((await dialled.ask('hello', hello)).error).toMatchObject({ code: -32001 })
    const at = new Date().toISOString()
    const batch = { session_id: b.session_id, events: [{ seq: 0, type: 'error', at, message: 'forged' }] }
    expect((await dialled.ask('events', batch)).error).toMatchObject({ code: -32001 })
    const supervisor = { role: 'supervisor', protocol: 1, client_version: 'x', boot_id: 'x', sessions: [] }
    const wrong = await dialled.ask('hello', { ...supervisor, proof: 'x'.repeat(64) })
    expect(wrong.error).toMatchObject({ code: -32001 })
    const proof = await readFile(join(dirname(a.socket), 'proof'), 'utf8')
    const late = await dialled.ask('hello', { ...supervisor, proof })
    expect(late.error).toMatchObject({ data: { kind: 'conflict' } })
    expect((await dialled.ask('nonsense', {})).error).toMatchObject({ code: -32601 })
    dialled.close()
    expect((await history(booted, b.session_id)).filter(({ type }) => type === 'error')).toEqual([])
  })

  it('a process in the container has no key, and sees no socket but its own', async () => {
    const run = (command: string) => booted.exec(a.project_id, command)
    expect((await run('env')).stdout).not.toMatch(/OUBLIETTE_API_KEY|oubs_/)
    expect((await run('oubliette-client call')).exit_code).not.toBe(0)
    expect((await run('ls /run/oubliette')).stdout.split('\n').filter(Boolean).sort()).toEqual([
      'proof',
      'relay.sock',
    ])
    const everything = (
      await run('cat /proc/mounts; find / -name relay.sock -not -path "/proc/*" 2>/dev/null')
    ).stdout
    const theirs = dirname(socketOf(booted, b.project_id)).split('/').at(-1)!
    expect(everything).not.toContain(theirs)
    expect(everything).not.toContain(b.project_id)
  })

  it('cannot be guessed', { timeout: 60_000 }, async () => {
    const dialled = await dial(a.socket)
    const keys = Array.from({ length: 2000 }, () => `oubs_${randomBytes(32).toString('hex')}`)
    const answers = await Promise.all(keys.map((api_key) => dialled.ask('oubliette_tools', { api_key })))
    expect(new Set(answers.map(({ error }) => error?.code))).toEqual(new Set([-32001]))
    dialled.close()
  })
})

describe('with a key of its own, a session', () => {
  it('does not see, name, answer or read what is the other’s', async () => {
    const [one, two] = await Promise.all([dialAs(a), dialAs(b)])
    const asked = two.ask('caller_tool', { tool: 'beta_ring', arguments: { secret: 1 } })
    const [{ request_id }] = (await openRequests(booted, b.session_id)) as [Answer]
    const named = (await one.ask('caller_tools')).result?.tools as Answer[]
    expect(named.map(({ name }) => name)).toEqual(['alpha_ring'])
    for (const tool of ['beta_ring', 'b_ring'])
      expect((await one.ask('caller_tool', { tool, arguments: {} })).error).toMatchObject({ code: -32000 })
    const unknown = `gogol_${'0'.repeat(20)}`
    for (const [method, more] of [
      ['session_events', {}],
      ['session_message', { message: 'true' }],
    ] as const) {
      const theirs = await one.ask(method, { session_id: b.session_id, ...more })
      const nobodys = await one.ask(method, { session_id: unknown, ...more })
      expect(theirs.error).toMatchObject({ data: { kind: 'not_found' } })
      expect(theirs.error?.message.replace(b.session_id, '')).toBe(
        nobodys.error?.message.replace(unknown, ''),
      )
    }
    // Even with a scope on its own project, the other's requests do not exist for it.
    const other = await droid(booted, a.project_id, { api_scope: `project:${a.project_id}` })
    const scoped = await dialAs(other)
    const answer = { session_id: b.session_id, request_id, result: 'forged' }
    const forged = await scoped.ask('oubliette_call_tool', {
      tool: 'caller_tool_response',
      arguments: answer,
    })
    expect(forged.error).toMatchObject({ data: { kind: 'not_found' } })
    // And in its own project it answers nothing that was asked of another caller.
    void one.ask('caller_tool', { tool: 'alpha_ring', arguments: {} })
    const [mine] = (await openRequests(booted, a.session_id)) as [Answer]
    const stolen = { session_id: a.session_id, request_id: mine.request_id, result: 'stolen' }
    const theft = await scoped.ask('oubliette_call_tool', { tool: 'caller_tool_response', arguments: stolen })
    expect(theft.error).toMatchObject({ code: -32002 })
    // Cancelling by an id that the other uses does nothing to the other.
    one.notify('cancel', { id: 1 })
    await booted.ok('caller_tool_response', { session_id: b.session_id, request_id, result: 'right' })
    expect((await asked).result).toBe('right')
    expect(two.heard).toEqual([])
    for (const dialled of [one, two, scoped]) dialled.close()
  })
})

const megabyte = 1024 * 1024
const memory = async () => {
  const status = await readFile(`/proc/${booted.server.pid()}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024
}
/** How long the calls of another caller take meanwhile. */
async function latencies(during: () => boolean): Promise<number[]> {
  const other = await dialAs(b)
  const times: number[] = []
  do {
    const from = performance.now()
    const { error } = await other.ask('oubliette_call_tool', {
      tool: 'project_get',
      arguments: { project_id: b.project_id },
    })
    if (error) throw new Error(error.message)
    times.push(performance.now() - from)
  } while (during() || times.length < 50)
  other.close()
  return times.sort((x, y) => x - y)
}
const p = (sorted: number[], part: number) => sorted[Math.floor((sorted.length - 1) * part)]!

describe('frames that are wrong', () => {
  const endsWith = async (misuse: (dialled: Dialled) => void, deadline_ms = 20_000) => {
    const dialled = await dial(a.socket)
    misuse(dialled)
    await until(() => dialled.isClosed(), { what: 'the connection is ended', deadline_ms })
  }
  const abuses: [string, (dialled: Dialled) => void][] = [
    ['are not JSON', (dialled) => dialled.send('{"jsonrpc":\n')],
    ['are not JSON-RPC', (dialled) => dialled.send('{"hello":1}\n')],
    ['are not UTF-8', (dialled) => dialled.send(Buffer.from([0x22, 0xff, 0xfe, 0x22, 0x0a]))],
    ['have ids that are none', (dialled) => dialled.send('{"jsonrpc":"2.0","id":{},"method":"x"}\n')],
    ['are too large', (dialled) => dialled.send(Buffer.alloc(9 * megabyte, 0x61))],
    ['are binary noise', (dialled) => dialled.send(Buffer.concat([Buffer.of(0), randomBytes(megabyte)]))],
  ]
  it.each(abuses)('because they %s cost the sender its connection', async (_what, misuse) => {
    await endsWith(misuse)
  })

  it('too many at once cost the sender its connection', { timeout: 120_000 }, async () => {
    const one = await dialAs(a)
    for (let n = 0; n < 5000; n++)
      void one.ask('caller_tool', { tool: 'alpha_ring', arguments: { n }, call_id: randomUUID() })
    await until(() => one.isClosed(), { what: 'the connection is ended', deadline_ms: 60_000 })
  })

  it('too slow ones too: a frame that is not finished, and silence', { timeout: 90_000 }, async () => {
    const [partial, silent] = await Promise.all([dialAs(a), dial(a.socket)])
    const drip = setInterval(() => partial.send('a'), 500)
    const from = performance.now()
    partial.send('{"jsonrpc":"2.0","id":1')
    await until(() => silent.isClosed(), { what: 'the silent one is ended', deadline_ms: 30_000 })
    await until(() => partial.isClosed(), { what: 'the slow one is ended', deadline_ms: 60_000 })
    clearInterval(drip)
    expect(performance.now() - from).toBeLessThan(60_000)
  })

  it('do not cost the server its health: others are served, and memory stays', {
    timeout: 180_000,
  }, async () => {
    const before = await latencies(() => false)
    const quiet = await memory()
    let most = quiet
    let over = false
    const watching = setInterval(() => void memory().then((now) => (most = Math.max(most, now))), 200)
    const meanwhile = latencies(() => !over)
    const flood = async () => {
      for (let round = 0; round < 8; round++) {
        await Promise.all(abuses.map(([, misuse]) => endsWith(misuse)))
        const big = await dial(a.socket)
        for (let n = 0; n < 8; n++) big.send(Buffer.alloc(megabyte, 0x62))
        const idle = await Promise.all(Array.from({ length: 60 }, () => dial(a.socket)))
        for (const one of [...idle, big]) one.close()
      }
    }
    // One that asks and asks and never reads what it gets.
    const deaf = await dialAs(b)
    deaf.deafen()
    for (let n = 0; n < 3000; n++)
      deaf.send(`${JSON.stringify({ jsonrpc: '2.0', id: n, method: 'oubliette_tools', params: {} })}\n`)
    await flood()
    over = true
    const during = await meanwhile
    clearInterval(watching)
    deaf.close()
    const ms = (value: number) => value.toFixed(1)
    process.stdout.write(
      `others: p50 ${ms(p(before, 0.5))} → ${ms(p(during, 0.5))} ms, p99 ${ms(p(before, 0.99))} → ${ms(p(during, 0.99))} ms; ` +
        `server ${quiet.toFixed(0)} MB, at most ${most.toFixed(0)} MB\n`,
    )
    expect(most).toBeLessThan(quiet + 400)
    expect(p(during, 0.99)).toBeLessThan(5_000)
    const answer = await fetch(`${booted.server.url}/readyz`)
    expect(answer.status).toBe(200)
    // The droid of the container that was abused can still be there.
    const again = await dialAs(a)
    expect((await again.ask('caller_tools')).error).toBeUndefined()
    again.close()
  })

  it('nor do right ones, however many: 400 connections with 1,000 calls each', {
    timeout: 120_000,
  }, async () => {
    const params = { api_key: a.api_key }
    const calls = (from: number, to: number) =>
      Array.from(
        { length: to - from },
        (_, n) => `${JSON.stringify({ jsonrpc: '2.0', id: from + n, method: 'caller_tools', params })}\n`,
      ).join('')
    const [first, rest] = [calls(0, 24), calls(25, 1000)]
    const quiet = await memory()
    let most = quiet
    let answered = 0
    let over = false
    const meanwhile = latencies(() => !over)
    const crowd = await Promise.all(Array.from({ length: 400 }, () => dial(a.socket)))
    for (const one of crowd) {
      one.send(first)
      void one.ask('caller_tools', params, 24).then(({ error }) => (answered += error ? 0 : 1))
      one.send(rest)
    }
    // 10,000 calls, at the container's pace.
    await until(
      async () => {
        most = Math.max(most, await memory())
        return answered === crowd.length
      },
      { what: 'each of them had 25 answers', deadline_ms: 60_000 },
    )
    for (const one of crowd) one.close()
    over = true
    const during = await meanwhile
    process.stdout.write(
      `others: p50 ${p(during, 0.5).toFixed(1)} ms, p99 ${p(during, 0.99).toFixed(1)} ms; ` +
        `server ${quiet.toFixed(0)} MB, at most ${most.toFixed(0)} MB\n`,
    )
    expect(most).toBeLessThan(quiet + 800)
    expect(p(during, 0.99)).toBeLessThan(2_000)
    // The container itself is as fast again as its pace lets it be.
    const again = await dialAs(a)
    expect((await again.ask('caller_tools')).error).toBeUndefined()
    again.close()
  })
})
