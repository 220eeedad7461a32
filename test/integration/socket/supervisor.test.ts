import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Fault } from '../../../internal/fault.ts'
import { belonging } from '../../../internal/lib/process/processes.ts'
import { type Rig, startRig, until } from '../../fixtures/supervisor-rig.ts'
import { seeded } from '../../harness/random.ts'

const shell = { kind: 'shell' as const }
let count = 0
const id = (what: string) => `${what}-${process.pid}-${count++}`

async function startShell(rig: Rig, script: string, more: Record<string, unknown> = {}) {
  const { session_id, api_key } = rig.newSession()
  const turn = { turn_id: id('turn'), text: script }
  const command = {
    command_id: id('cmd'),
    session_id,
    droid: shell,
    workspace_dir: rig.root,
    api_key,
    turn,
    ...more,
  }
  // As a server does: a command that its connection did not survive is repeated on the next one, under the same id.
  for (;;) {
    const link = await rig.link()
    const answer = await link.send('start_session', command).catch((error: Fault) => error)
    if (!(answer instanceof Fault)) break
    if (link.peer.open || answer.kind !== 'unavailable') throw answer
  }
  return { session_id, turn_id: turn.turn_id, command }
}

const numbered = (n: number) => Array.from({ length: n }, (_, i) => `line ${i + 1}\n`).join('')

const journalBytes = (rig: Rig, session_id: string) => {
  const directory = join(rig.root, 'state/journal', session_id)
  return readdirSync(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0)
}

describe('a supervisor and a server that comes and goes', () => {
  test('every line arrives once and in order while the connection breaks again and again', {
    timeout: 120_000,
  }, async () => {
    const random = seeded('broken connections')
    let breaks = 0
    let chance = 0.08
    let rig: Rig | undefined
    await using made = await startRig({
      on_events: () => {
        if (breaks >= 60 || random.fraction() > chance) return
        breaks++
        const link = rig?.relay().supervisor('00000000-0000-4000-8000-000000000001')
        link?.peer.close()
      },
    })
    rig = made
    const lines = 100_000
    const began = performance.now()
    const { session_id, turn_id } = await startShell(
      rig,
      `for i in $(seq 1 100); do seq -f 'line %.0f' $((i * 1000 - 999)) $((i * 1000)); sleep 0.02; done; echo done >&2`,
    )
    // The whole server goes away too, for moments and longer.
    for (let i = 0; i < 8; i++) {
      await until(() => rig!.events(session_id).length > i * 6, 'some events')
      await rig.closeServer()
      await rig.openServer()
    }
    const end = await rig.completion(session_id, turn_id, 90_000)
    const seconds = (performance.now() - began) / 1000
    chance = 0
    expect(rig.text(session_id)).toBe(numbered(lines))
    expect(rig.text(session_id, 'stderr')).toBe('done\n')
    expect(end).toMatchObject({ stop_reason: 'end_turn', exit_code: 0 })
    expect(rig.problems).toEqual([])
    expect(new Set(rig.boots).size).toBe(1)
    const rss = readFileSync(`/proc/${rig.supervisorPid()}/status`, 'utf8').match(/VmRSS:\s+(\d+)/)?.[1]
    console.log(
      `${lines} lines in ${seconds.toFixed(1)} s, ${rig.events(session_id).length} events, ${breaks} broken connections and 8 restarts, supervisor ${(Number(rss) / 1024) | 0} MiB`,
    )
    expect(breaks).toBeGreaterThan(0)
  })

  test('a million lines with the server away: bounded memory, the script waits, nothing is lost', {
    timeout: 120_000,
  }, async () => {
    await using rig = await startRig({ env: { OUBLIETTE_JOURNAL_BYTES: String(2 * 1024 * 1024) } })
    const { session_id, turn_id } = await startShell(rig, `seq -f 'line %.0f' 1 1000000; touch finished`)
    await until(() => rig.events(session_id).length > 2, 'the first events')
    await rig.closeServer()
    const limit = 2 * 1024 * 1024
    await until(() => journalBytes(rig, session_id) >= limit, 'the journal to be full')
    // 13 MiB do not fit into it: the script waits.
    expect(existsSync(join(rig.root, 'finished'))).toBe(false)
    expect(journalBytes(rig, session_id)).toBeLessThan(2 * limit)
    const began = performance.now()
    await rig.openServer()
    await rig.completion(session_id, turn_id, 60_000)
    const rss = readFileSync(`/proc/${rig.supervisorPid()}/status`, 'utf8').match(/VmHWM:\s+(\d+)/)?.[1]
    console.log(
      `1000000 lines in ${rig.events(session_id).length} events, ${((performance.now() - began) / 1000).toFixed(1)} s, peak ${(Number(rss) / 1024) | 0} MiB`,
    )
    expect(rig.text(session_id) === numbered(1_000_000)).toBe(true)
    expect(Number(rss)).toBeLessThan(250 * 1024)
  })

  test('a command that is repeated is executed once and answers the same', async () => {
    await using rig = await startRig()
    const { session_id, turn_id, command } = await startShell(rig, 'echo once >> ran')
    await rig.completion(session_id, turn_id)
    const prompt = { command_id: id('cmd'), session_id, turn_id: id('turn'), text: 'echo twice >> ran' }
    const link = await rig.link()
    const answers = await Promise.all([link.send('prompt', prompt), link.send('prompt', prompt)])
    await rig.completion(session_id, prompt.turn_id)
    await rig.closeServer()
    await rig.openServer()
    const again = await rig.link()
    expect(await again.send('prompt', prompt)).toEqual(answers[0])
    expect(await again.send('start_session', command)).toEqual({ accepted: true })
    await again.send('end', { command_id: id('cmd'), session_id })
    await rig.status(session_id, 'completed')
    // Also after the session is over and the supervisor has been restarted.
    await rig.killSupervisor()
    rig.startSupervisor()
    const anew = await rig.link()
    expect(await anew.send('start_session', command)).toEqual({ accepted: true })
    expect(readFileSync(join(rig.root, 'ran'), 'utf8')).toBe('once\ntwice\n')
    expect(rig.events(session_id).filter((it) => it.type === 'completion')).toHaveLength(2)
  })

  test('a supervisor that was killed reports once what became of its sessions, and they can continue', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await startShell(rig, 'echo begun; sleep 1000')
    await until(() => rig.text(session_id) === 'begun\n', 'the first line')
    await rig.killSupervisor()
    rig.startSupervisor()
    expect(await rig.status(session_id, 'failed')).toMatchObject({ reason: 'container restarted' })
    expect(await rig.completion(session_id, turn_id)).toMatchObject({ stop_reason: 'error' })
    const next = { turn_id: id('turn'), text: 'echo again' }
    await (await rig.link()).send('start_session', {
      command_id: id('cmd'),
      session_id,
      next_seq: rig.events(session_id).length,
      droid: shell,
      workspace_dir: rig.root,
      turn: next,
    })
    await rig.completion(session_id, next.turn_id)
    expect(rig.text(session_id)).toBe('begun\nagain\n')
    expect(rig.problems).toEqual([])
    expect(rig.events(session_id).filter((it) => it.status === 'failed')).toHaveLength(1)
    for (const pid of belonging(`OUBLIETTE_SESSION_ID=${session_id}`)) process.kill(pid, 'SIGKILL')
  })

  test('a session that the server does not know is killed and dropped', async () => {
    await using rig = await startRig()
    const { session_id } = await startShell(rig, 'echo hello; sleep 1000')
    await until(() => rig.text(session_id) === 'hello\n', 'the first line')
    const mark = `OUBLIETTE_SESSION_ID=${session_id}`
    expect(belonging(mark).length).toBeGreaterThan(0)
    await rig.closeServer()
    rig.store.delete(session_id)
    await rig.openServer()
    await until(() => belonging(mark).length === 0, 'its processes to be gone')
    await until(() => !existsSync(join(rig.root, 'state/journal', session_id)), 'its journal to be gone')
  })
})

describe('shell sessions', () => {
  test('a failing script ends its turn with its exit code and the next one runs in the same workspace', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await startShell(rig, 'echo kept > file; echo bad > /dev/stderr; exit 7')
    expect(await rig.completion(session_id, turn_id)).toMatchObject({ stop_reason: 'error', exit_code: 7 })
    const turns = ['cat file', 'echo second', 'cat /dev/stdin; echo third']
    const link = await rig.link()
    const ids = turns.map(() => id('turn'))
    await Promise.all(
      turns.map((text, i) =>
        link.send('prompt', { command_id: id('cmd'), session_id, turn_id: ids[i]!, text }),
      ),
    )
    expect(await rig.completion(session_id, ids[2]!)).toMatchObject({ final_text: 'third\n' })
    expect(rig.text(session_id)).toBe('kept\nsecond\nthird\n')
    expect(rig.text(session_id, 'stderr')).toBe('bad\n')
    await rig.status(session_id, 'idle')
  })

  test('cancel and end stop everything that a script started, also what called setsid', async () => {
    await using rig = await startRig()
    const script = `trap '' TERM; setsid bash -c "trap '' TERM; sleep 1000" & (sleep 1000 &) ; echo up; sleep 1000`
    const { session_id, turn_id } = await startShell(rig, script)
    await until(() => rig.text(session_id) === 'up\n', 'the script')
    const link = await rig.link()
    await link.send('cancel', { command_id: id('cmd'), session_id, grace_seconds: 0.2 })
    expect(await rig.completion(session_id, turn_id)).toMatchObject({ stop_reason: 'cancelled' })
    const mark = `OUBLIETTE_SESSION_ID=${session_id}`
    expect(belonging(mark)).toEqual([])

    // What stays in the background does not hold the turn, and goes with the session.
    const turn = id('turn')
    await link.send('prompt', {
      command_id: id('cmd'),
      session_id,
      turn_id: turn,
      text: 'sleep 1000 & echo left',
    })
    expect(await rig.completion(session_id, turn)).toMatchObject({ stop_reason: 'end_turn' })
    expect(belonging(mark).length).toBe(1)
    await link.send('end', { command_id: id('cmd'), session_id, status: 'cancelled', reason: 'enough' })
    expect(await rig.status(session_id, 'cancelled')).toMatchObject({ reason: 'enough' })
    expect(belonging(mark)).toEqual([])
  })

  test('end stops a server that left its group, its parent and its environment', async () => {
    await using rig = await startRig()
    const script =
      '(env -i setsid bash -c "echo \\$\\$ > daemon.pid; exec sleep 1000" &) ; until [ -s daemon.pid ]; do sleep 0.01; done'
    const { session_id, turn_id } = await startShell(rig, script)
    await rig.completion(session_id, turn_id)
    const pid = readFileSync(join(rig.root, 'daemon.pid'), 'utf8').trim()
    expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).not.toContain('OUBLIETTE')
    await (await rig.link()).send('end', { command_id: id('cmd'), session_id })
    await rig.status(session_id, 'completed')
    // The process that adopted it may not have reaped it yet.
    const state = existsSync(`/proc/${pid}`) && readFileSync(`/proc/${pid}/status`, 'utf8')
    expect(state === false || /^State:\s+Z/m.test(state)).toBe(true)
  })

  test('a script that deletes the journal does not end the session', async () => {
    await using rig = await startRig()
    const { session_id, turn_id } = await startShell(rig, 'echo before; rm -rf state; seq 100000; echo after')
    expect(await rig.completion(session_id, turn_id)).toMatchObject({ stop_reason: 'end_turn' })
    expect(rig.text(session_id).endsWith('100000\nafter\n')).toBe(true)
    const turn = id('turn')
    const link = await rig.link()
    await link.send('prompt', { command_id: id('cmd'), session_id, turn_id: turn, text: 'echo next' })
    expect(await rig.completion(session_id, turn)).toMatchObject({ final_text: 'next\n' })
    await link.send('end', { command_id: id('cmd'), session_id })
    await rig.status(session_id, 'completed')
    expect(rig.problems).toEqual([])
  })

  test('exec returns output, exit code, and the truth about limits', async () => {
    await using rig = await startRig()
    const link = await rig.link()
    const limits = { timeout_seconds: 10, output_bytes: 1000 }
    expect(
      await link.send('exec', {
        command: ['bash', '-c', 'cat /dev/stdin; echo e >/dev/stderr; exit 3'],
        stdin: 'in',
        ...limits,
      }),
    ).toMatchObject({ exit_code: 3, stdout: 'in', stderr: 'e\n', truncated: false, timed_out: false })
    const long = await link.send('exec', { command: ['seq', '100000'], ...limits })
    expect(long).toMatchObject({ exit_code: 0, truncated: true })
    expect(long.stdout).toHaveLength(1000)
    expect(
      await link.send('exec', {
        command: ['bash', '-c', 'sleep 100 & sleep 100'],
        timeout_seconds: 0.2,
        output_bytes: 10,
      }),
    ).toMatchObject({ timed_out: true })
    expect(await link.send('exec', { command: ['no-such-program'], ...limits })).toMatchObject({
      exit_code: 127,
    })
    await expect(
      link.send('exec', { command: ['true'], working_dir: '/nowhere', ...limits }),
    ).rejects.toMatchObject({
      kind: 'invalid',
    })
    const began = performance.now()
    for (let i = 0; i < 50; i++) await link.send('exec', { command: ['true'], ...limits })
    console.log(`exec of true: ${((performance.now() - began) / 50).toFixed(2)} ms`)
  })
})
