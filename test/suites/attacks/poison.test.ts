// A request that ended the server is not worked on for ever: containers send again what was not answered, and each server
// that starts would end by it. What a server leaves behind when it ends is written here as it would have written it.
import { randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { encodeLeft, inFlightFile, type Left } from '../../../internal/event-loop/in-flight.ts'
import { requestKey } from '../../../internal/protocol/frame-scan.ts'
import { asked, attackingCaller } from '../../fixtures/attacking-caller.ts'
import { type Droid, dialAs, droid, openRequests } from '../../fixtures/droid-socket.ts'
import { history, untilStatus } from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let attacked: string
let one: Droid
beforeAll(async () => {
  booted = await boot({ config: { log: { level: 'warn' } } })
  attacked = await booted.project()
  one = await droid(booted, attacked)
})
afterAll(() => booted?.stop())

// Servers are started and deadlines awaited in processor time; a machine may be busy with something else.
vi.setConfig({ testTimeout: 180_000 })

describe('a request that ends the server', () => {
  const crash = async (left: Left) => {
    await booted.server.kill('SIGKILL')
    await writeFile(inFlightFile(booted.server.home), encodeLeft(left))
    await booted.server.restart()
    await booted.reconnect()
  }
  const requestOf = (project_id: string, method: string, params: object) => {
    const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
    return { project_id, ...requestKey(text)! }
  }
  const params = (call_id: string) => ({ tool: 'app_t0', arguments: {}, call_id })
  const ask = (call_id: string) => attackingCaller(booted).call({}, one, { call_id })

  test('three times is refused from then on; others, and one that goes through in between, are not', async () => {
    await attackingCaller(booted).declare({}, one)
    const [bad, lucky] = [randomUUID(), randomUUID()]
    const left = (...ids: string[]) => ({
      requests: ids.map((id) => requestOf(attacked, 'caller_tool', params(id))),
      frozen: false,
    })
    await crash(left(bad, lucky))
    await crash(left(bad, lucky))
    expect(await ask(lucky)).toBe(asked)
    await crash(left(bad, lucky))
    expect(await ask(bad)).toContain('the server ended each time it processed this request')
    expect(await ask(lucky)).toBe(asked)
    expect(await ask(randomUUID())).toBe(asked)
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(await ask(bad)).toContain('the server ended each time')
  })

  test('and was alone in its hands when it froze is refused at once', async () => {
    const id = randomUUID()
    await crash({ requests: [requestOf(attacked, 'caller_tool', params(id))], frozen: true })
    expect(await ask(id)).toContain('the server ended each time')
  })

  test('and is an event is replaced by an error event, and the session goes on', async () => {
    const talker = await booted.ok('session', {
      action: 'spawn',
      project_id: attacked,
      new_session: true,
      prompt: 'echo before; until [ -e go ]; do sleep 0.1; done; echo poison; sleep 1; echo after',
    })
    const session_id = String(talker.session_id)
    const texts = async () =>
      (await history(booted, session_id)).filter(({ type }) => type === 'delta').map(({ text }) => text)
    await until(async () => (await texts()).join('').includes('before'), { what: 'it has begun' })
    await booted.server.kill('SIGKILL')
    const [row] = await booted.query<{ committed_seq: string }>(
      'select committed_seq from sessions where id = $1',
      [session_id],
    )
    const key = `${session_id}:${Number(row!.committed_seq) + 1}`
    await booted.server.restart()
    await crash({ requests: [{ project_id: attacked, key, what: 'events' }], frozen: true })
    await booted.exec(attacked, 'touch go')
    await untilStatus(booted, session_id, 'idle')
    const events = await history(booted, session_id)
    expect(events.map(({ index }) => index)).toEqual(events.map((_, at) => at))
    expect(events.find(({ type }) => type === 'error')).toMatchObject({ dropped: true })
    const said = (await texts()).join('')
    expect(said).not.toContain('poison')
    expect(said).toContain('after')
  })

  test('and is a command fails its session with the reason', async () => {
    const victim = await droid(booted, attacked)
    await booted.server.kill('SIGKILL')
    const command_id = `cmd_${randomUUID().replaceAll('-', '').slice(0, 20)}`
    await booted.query(
      `insert into commands (id, session_id, project_id, kind, payload) values ($1, $2, $3, 'prompt', $4)`,
      [command_id, victim.session_id, attacked, JSON.stringify({ turn_id: command_id, text: 'true' })],
    )
    await crash({
      requests: [{ project_id: attacked, key: command_id, what: 'command prompt' }],
      frozen: true,
    })
    await untilStatus(booted, victim.session_id, 'failed')
    const { reason } = await booted.ok('session', { action: 'get', session_id: victim.session_id })
    expect(reason).toContain('the server ended each time')
  })

  test('leaves nothing behind when the server is killed at rest', async () => {
    await attackingCaller(booted).declare({ title: 'open' }, one)
    const waiting = await dialAs(one)
    void waiting.ask('caller_tool', { tool: 'app_t0', arguments: {}, call_id: randomUUID() })
    await openRequests(booted, one.session_id)
    const before = await booted.query('select key from suspects')
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(await booted.query('select key from suspects')).toEqual(before)
  })
})
