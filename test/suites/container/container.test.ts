import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot, containerOf, docker, inEngine, instanceOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
beforeAll(async () => {
  booted = await boot()
})
afterAll(() => booted?.stop())

const start = (project_id: string, more = {}) =>
  booted.ok('container', { action: 'start', project_id, ...more })
const stop = (project_id: string) => booted.ok('container', { action: 'stop', project_id, grace_seconds: 1 })
const get = async (project_id: string) =>
  (await booted.ok('project', { action: 'get', project_id })).container

/** What the engine did with the project's containers since then. */
async function engineEvents(project_id: string, since: number): Promise<string[]> {
  const stream = await docker.getEvents({
    since: Math.floor(since / 1000),
    until: Math.ceil(Date.now() / 1000) + 1,
    filters: {
      type: ['container'],
      event: ['create', 'start', 'die', 'destroy'],
      label: [`oubliette.instance=${await instanceOf(booted.server)}`, `oubliette.project=${project_id}`],
    },
  })
  let text = ''
  for await (const chunk of stream) text += String(chunk)
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  return lines.map((line) => (JSON.parse(line) as { Action: string }).Action)
}

describe('start', () => {
  test('makes the container, and a second one leaves it alone', async () => {
    const project_id = await booted.project()
    const first = await start(project_id)
    expect(first).toMatchObject({ project_id, status: 'running', image: expect.stringContaining('base') })
    expect(await start(project_id)).toEqual(first)
    expect(await get(project_id)).toMatchObject({
      wanted: 'running',
      status: 'running',
      container_id: first.container_id,
    })
  })

  test('asked for by eight at once makes one container, once', async () => {
    const project_id = await booted.project({ network: 'internal' })
    const since = Date.now()
    const answers = await Promise.all(Array.from({ length: 8 }, () => start(project_id)))
    expect(new Set(answers.map(({ container_id }) => container_id)).size).toBe(1)
    const engine = await inEngine(booted.server)
    expect(engine.containers.filter((id) => id === project_id)).toHaveLength(1)
    expect(engine.networks.filter((id) => id === project_id)).toHaveLength(1)
    expect(await engineEvents(project_id, since)).toEqual(['create', 'start'])
  })

  test('with recreate makes another one, and the workspace stays', async () => {
    const project_id = await booted.project()
    const { container_id } = await start(project_id)
    await booted.exec(project_id, 'echo kept > file; echo gone > /tmp/file; echo home > ~/file')
    const again = await start(project_id, { recreate: true })
    expect(again.container_id).not.toBe(container_id)
    const { stdout } = await booted.exec(project_id, 'cat file ~/file; ls /tmp')
    expect(stdout).toMatch(/^kept\nhome\n(?!.*file)/)
    expect((await inEngine(booted.server)).containers.filter((id) => id === project_id)).toHaveLength(1)
  })

  test('of starts, recreates and stops at once ends in one state that the row knows', async () => {
    const project_id = await booted.project()
    await Promise.all([
      start(project_id),
      start(project_id, { recreate: true }),
      stop(project_id),
      start(project_id),
      start(project_id, { recreate: true }),
      stop(project_id),
    ])
    const { container_id } = await start(project_id)
    expect((await containerOf(booted.server, project_id)).id).toBe(container_id)
    expect((await booted.exec(project_id, 'echo ok')).stdout).toBe('ok\n')
  })

  test('of an image that the engine does not have fails with the reason, and another image fixes it', async () => {
    const project_id = await booted.project({ image: 'no/such:image' })
    const fault = await booted.fault('container', { action: 'start', project_id })
    expect(fault).toMatchObject({ kind: 'not_found', message: expect.stringContaining('no/such:image') })
    expect(await get(project_id)).toMatchObject({
      status: 'failed',
      reason: expect.stringContaining('no/such:image'),
    })
    await booted.ok('project', { action: 'update', project_id, image: null })
    expect((await start(project_id)).status).toBe('running')
    expect(await get(project_id)).toMatchObject({ status: 'running', reason: null })
  })
})

describe('stop', () => {
  test('ends it, can be repeated, and a start restarts the same one', async () => {
    const project_id = await booted.project()
    const { container_id } = await start(project_id)
    await booted.exec(project_id, 'echo kept > file')
    expect(await stop(project_id)).toEqual({ project_id, status: 'stopped' })
    expect(await stop(project_id)).toEqual({ project_id, status: 'stopped' })
    const { State } = await (await containerOf(booted.server, project_id)).inspect()
    expect(State.Running).toBe(false)
    expect(await get(project_id)).toMatchObject({ wanted: 'stopped', status: 'stopped' })
    expect((await start(project_id)).container_id).toBe(container_id)
    expect((await booted.exec(project_id, 'cat file')).stdout).toBe('kept\n')
  })

  test('of a container that never existed is no error', async () => {
    const project_id = await booted.project()
    expect(await stop(project_id)).toEqual({ project_id, status: 'stopped' })
    expect(await get(project_id)).toMatchObject({ status: 'absent' })
  })
})

describe('limits', () => {
  test('that are changed hold after a recreate, and after a stop and a start', async () => {
    const project_id = await booted.project({ limits: { memory_mb: 128, pids: 100 } })
    const memory = async () =>
      (await (await containerOf(booted.server, project_id)).inspect()).HostConfig.Memory! / 1024 / 1024
    await start(project_id)
    expect(await memory()).toBe(128)
    await booted.ok('project', { action: 'update', project_id, limits: { memory_mb: 160 } })
    await start(project_id)
    expect(await memory()).toBe(128)
    await start(project_id, { recreate: true })
    expect(await memory()).toBe(160)
    await booted.ok('project', { action: 'update', project_id, limits: { memory_mb: 192 } })
    await stop(project_id)
    await start(project_id)
    expect(await memory()).toBe(192)
  })

  test('of memory kill a process that asks for more, and the exit code shows it', async () => {
    const project_id = await booted.project({ limits: { memory_mb: 128 } })
    await start(project_id)
    const { exit_code, stdout } = await booted.exec(
      project_id,
      'echo before; x=$(head -c 400M /dev/zero | tr "\\0" x)',
    )
    expect({ exit_code, stdout }).toEqual({ exit_code: 137, stdout: 'before\n' })
    await until(async () => (await booted.exec(project_id, 'echo alive')).stdout === 'alive\n', {
      what: 'the container runs, or runs again',
    })
  })
})

describe('logs', () => {
  const logs = (project_id: string, more = {}) =>
    booted.ok('container', { action: 'logs', project_id, ...more })
  const texts = (answer: { lines?: { text: string }[] }) => (answer.lines ?? []).map(({ text }) => text)
  /** What the main process writes is what anybody writes into its streams. */
  const say = (project_id: string, command: string) =>
    booted.exec(project_id, `${command} > /proc/1/fd/1; echo err-of-main > /proc/1/fd/2`)

  test('are the lines of the main process, of both streams, with their times', async () => {
    const project_id = await booted.project()
    await start(project_id)
    await say(project_id, 'printf "one\\ntwo\\n"')
    const { lines } = await until(
      async () => {
        const answer = await logs(project_id)
        return texts(answer).includes('two') && texts(answer).includes('err-of-main') && answer
      },
      { what: 'the lines are there' },
    )
    const one = lines.find(({ text }: { text: string }) => text === 'one')
    expect(one).toMatchObject({ stream: 'stdout' })
    expect(Date.now() - Date.parse(one.at)).toBeLessThan(60_000)
    expect(lines).toContainEqual(expect.objectContaining({ stream: 'stderr', text: 'err-of-main' }))
  })

  test('are cut by tail and since', async () => {
    const project_id = await booted.project()
    await start(project_id)
    await booted.exec(project_id, 'for i in $(seq 50); do echo line-$i; done > /proc/1/fd/1')
    // The supervisor logs that it is connected, before or after the lines; then the log is complete.
    const all = await until(
      async () => {
        const lines = texts(await logs(project_id, { tail: 1000 }))
        const said = (part: string) => lines.some((text) => text.includes(part))
        return said('line-50') && said('connected to the server') && lines
      },
      { what: 'all are there' },
    )
    expect(all.filter((text) => text.startsWith('line-'))).toHaveLength(50)
    expect(texts(await logs(project_id, { tail: 3 }))).toEqual(all.slice(-3))
    expect(texts(await logs(project_id, { tail: 0 }))).toEqual([])
    expect(texts(await logs(project_id, { since: '1h' }))).toContain('line-1')
    const later = new Date(Date.now() + 5000).toISOString()
    expect(texts(await logs(project_id, { since: later }))).toEqual([])
    expect(await booted.fault('container', { action: 'logs', project_id, since: 'now' })).toMatchObject({
      kind: 'invalid',
    })
  })

  test('are followed as progress, until the time is over', async () => {
    const project_id = await booted.project()
    await start(project_id)
    const heard: string[] = []
    const following = booted.client().client.callTool(
      {
        name: 'container',
        arguments: { action: 'logs', project_id, follow: true, follow_seconds: 3, tail: 0 },
      },
      { onprogress: ({ message }) => heard.push(message ?? '') },
    )
    // Written repeatedly, since nothing shows when the following has begun.
    await until(
      async () => {
        await booted.exec(project_id, 'echo heard-live > /proc/1/fd/1')
        return heard.includes('heard-live')
      },
      { what: 'a line comes as progress', deadline_ms: 3000, every_ms: 100 },
    )
    const { structuredContent } = await following
    expect(texts(structuredContent as { lines: { text: string }[] })).toContain('heard-live')
  })

  test('of a container that never existed are not found', async () => {
    const project_id = await booted.project()
    expect(await booted.fault('container', { action: 'logs', project_id })).toMatchObject({
      kind: 'not_found',
      hint: expect.stringContaining('container start'),
    })
  })
})
