// Sessions whose image has to be built first: they are `preparing`, show each step, and start, fail or are cancelled with it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ContainerTypes, createContainerTypes, slowStep } from '../../fixtures/container-types.ts'
import {
  type Event,
  end,
  expectGapFree,
  get,
  history,
  say,
  spawn,
  statusesOf,
  textOf,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, docker } from '../../harness/booted.ts'
import { runCli, runOnTerminal } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'

const minute = 60_000
let types: ContainerTypes
let booted: Booted
let agent_type: string
let long: { session_id: string; began: number }

beforeAll(async () => {
  types = await createContainerTypes()
  agent_type = await types.add([slowStep(1)])
  booted = await boot({
    config: {
      images_dir: types.directory,
      // The sweep that once failed sessions without a container runs often during a build.
      reconcile_seconds: 1,
      droids: {
        keyed: { kind: 'acp', command: 'agent', providers: ['bedrock'] },
        placed: { kind: 'acp', command: 'agent', image: agent_type },
        modelled: { kind: 'acp', command: 'agent', agent: 'droid', providers: ['anthropic'] },
        unset: { kind: 'acp', command: 'agent', providers: ['gemini'] },
      },
      credentials: {
        work: { provider: 'anthropic', key: 'not a key' },
        later: { provider: 'gemini', key: '${env:NOT_SET_ANYWHERE}' },
      },
    },
  })
})
afterAll(async () => {
  await booted?.stop()
  await types?.[Symbol.asyncDispose]()
})

const spawnOnly = (project_id: string, prompt = 'echo ready', more: object = {}): Promise<Answer> =>
  spawn(booted, project_id, prompt, { wait_seconds: 0, ...more })

const preparingOf = (events: Event[]) => events.filter(({ status }) => status === 'preparing')

/** Until the session shows that its image is being built. */
const untilBuilding = (session_id: string, type: string, deadline_ms = 20_000) =>
  until(
    async () => {
      const session = await get(booted, session_id)
      return String(session.step).startsWith(`building image ${type}: step`) && session
    },
    { deadline_ms, what: `image ${type} is being built for ${session_id}` },
  )

/** Containers of a build that run in the engine. */
async function buildsRunning(marker: string): Promise<number> {
  const all = await docker.listContainers()
  return all.filter(({ Command }) => Command.includes(marker)).length
}

describe('an image that is not built', { timeout: 3 * minute }, () => {
  test('is built on after a SIGKILL of the server', async () => {
    const type = await types.add([slowStep(4), slowStep(6)])
    const project_id = await booted.project({ container_type: type })
    const { session_id } = await spawnOnly(project_id)
    await until(async () => String((await get(booted, session_id)).step).includes('step 5 of 8'), {
      deadline_ms: 20_000,
      what: 'the second step is built',
    })
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(await get(booted, session_id)).toMatchObject({ status: 'preparing' })
    await untilStatus(booted, session_id, 'idle', minute)
    const events = await history(booted, session_id)
    expectGapFree(events, session_id)
    expect(textOf(events)).toBe('ready\n')
    expect(events.filter(({ type: of }) => of === 'completion')).toHaveLength(1)
  })

  test('does not delay a stop of the server, and is cancelled with its session afterwards', async () => {
    const step = slowStep(60)
    const marker = step.slice('RUN '.length, -10)
    const project_id = await booted.project({ container_type: await types.add([step]) })
    const { session_id } = await spawnOnly(project_id)
    const building = (count: number) =>
      until(async () => (await buildsRunning(marker)) === count, {
        deadline_ms: 20_000,
        what: `${count} builds are running`,
      })
    await building(1)
    const began = performance.now()
    await booted.server.restart('SIGTERM')
    expect(performance.now() - began).toBeLessThan(20_000)
    await booted.reconnect()
    await building(1)
    expect(await get(booted, session_id)).toMatchObject({ status: 'preparing' })
    await booted.ok('session', { action: 'cancel', session_id })
    await building(0)
    const { container } = await booted.ok('project', { action: 'get', project_id })
    expect(container).toMatchObject({ wanted: 'stopped', status: 'absent' })
  })

  test('takes as long as it takes', async () => {
    const project_id = await booted.project({ container_type: await types.add([slowStep(80)]) })
    const { session_id } = await spawnOnly(project_id, 'echo at last')
    long = { session_id, began: performance.now() }
  })

  test('is built for all sessions that wait, with steps and percent as events', async () => {
    const lower = await types.add([slowStep(2), slowStep(2)])
    const type = await types.add([slowStep(2), slowStep(2), slowStep(1)], lower)
    const project_id = await booted.project({ container_type: type })
    const first = await spawnOnly(project_id)
    expect(first).toMatchObject({ status: 'preparing', step: expect.any(String) })
    await untilBuilding(first.session_id, lower)
    const second = await spawnOnly(project_id, 'echo second')
    await untilBuilding(first.session_id, type)
    expect(await get(booted, second.session_id)).toMatchObject({ status: 'preparing' })
    const { sessions } = await booted.ok('session', { action: 'list', project_id, status: 'preparing' })
    expect(sessions).toHaveLength(2)
    for (const { session_id } of [first, second]) await untilStatus(booted, session_id, 'idle', minute)

    const events = await history(booted, first.session_id)
    expectGapFree(events, first.session_id)
    const preparing = preparingOf(events)
    const steps = preparing.map(({ step }) => String(step))
    expect(steps[0]).toBe('starting container')
    expect(steps).toContain(`building image ${lower}: step 4 of 8`)
    expect(steps).toContain(`building image ${type}: step 5 of 9`)
    expect(steps.at(-1)).toBe('starting container')
    const percents = preparing.flatMap(({ percent }) => (percent === undefined ? [] : [Number(percent)]))
    expect(percents).toEqual([...percents].sort((a, b) => a - b))
    expect(percents[0]).toBeLessThan(30)
    // The steps of both images count: 12 of 17 have ended.
    expect(preparing.find(({ step }) => step === `building image ${type}: step 5 of 9`)?.percent).toBe(70)
    expect(percents.at(-1)).toBeGreaterThan(60)
    expect(percents.at(-1)).toBeLessThan(100)
    expect(preparing.length).toBeLessThan(20)
    const times = preparing.filter(({ percent }) => percent).map(({ at }) => Date.parse(at))
    for (const [at, time] of times.slice(1).entries()) expect(time - times[at]!).toBeGreaterThan(900)
    expect(statusesOf(events)).toEqual(['starting', 'running', 'idle'])
    expect(textOf(events)).toBe('ready\n')

    const others = await history(booted, second.session_id)
    expect(preparingOf(others).map(({ step }) => step)).toContain(`building image ${type}: step 5 of 9`)
    expect(textOf(others)).toBe('second\n')
    expect(await get(booted, first.session_id)).toMatchObject({ step: null, percent: null })
    // The next session finds a running container.
    const third = await spawn(booted, project_id, 'true')
    expect(preparingOf(await history(booted, third.session_id))).toEqual([])
  })

  test('shows its steps as progress to a call that waits', async () => {
    const type = await types.add([slowStep(8), slowStep(1)])
    const project_id = await booted.project({ container_type: type })
    const told: { progress: number; message: string | undefined; at: number }[] = []
    const began = performance.now()
    const result = await booted.client().client.callTool(
      {
        name: 'session',
        arguments: { action: 'spawn', project_id, prompt: 'echo done', wait_seconds: 60 },
      },
      {
        timeout: minute,
        onprogress: ({ progress, message }) =>
          void told.push({ progress, message, at: performance.now() - began }),
      },
    )
    expect(result.structuredContent).toMatchObject({
      finished: true,
      final_text: expect.stringMatching('done'),
    })
    expect(told.map(({ message }) => message)).toContainEqual(
      expect.stringMatching(new RegExp(`^building image ${type}: step 4 of 8 \\(\\d+%\\)$`)),
    )
    const numbers = told.map(({ progress }) => progress)
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b))
    // Never silent for long, also during a step of eight seconds.
    const gaps = told.map(({ at }, index) => at - (told[index - 1]?.at ?? 0))
    expect(Math.max(...gaps)).toBeLessThan(5_500)
  })

  test('fails the session with the last lines of its output, and container start and project get show them', async () => {
    const type = await types.add(['RUN echo first line; echo it is broken here >&2; exit 7'])
    const project_id = await booted.project({ container_type: type })
    const { session_id } = await spawnOnly(project_id)
    const failed = await untilStatus(booted, session_id, 'failed', 30_000)
    expect(failed.reason).toContain(`build of images/${type} failed`)
    expect(failed.reason).toContain('returned a non-zero code: 7')
    const [, output] = failed.reason.split('its last output:\n')
    const [step, ...lines] = output.split('\n')
    expect(step).toMatch(/^Step 4\/7 : RUN echo first line/)
    expect(lines.sort()).toEqual(['first line', 'it is broken here'])
    const fault = await booted.fault('container', { action: 'start', project_id })
    const sorted = (text: string) => text.split('\n').sort()
    expect(fault.kind).toBe('unavailable')
    // The order of the two streams differs from build to build.
    expect(sorted(fault.message)).toEqual(sorted(failed.reason))
    const { container } = await booted.ok('project', { action: 'get', project_id })
    expect(container).toMatchObject({
      status: 'failed',
      reason: expect.stringContaining('it is broken here'),
    })
  })

  test('is not built any more when its only session is cancelled, and the session goes on with a message', async () => {
    const step = slowStep(25)
    const type = await types.add([step])
    const project_id = await booted.project({ container_type: type })
    const marker = step.slice('RUN '.length, -10)
    const { session_id, turn_id } = await spawnOnly(project_id)
    await until(async () => (await buildsRunning(marker)) === 1, {
      deadline_ms: 20_000,
      what: 'the engine builds',
    })
    const cancelled = await booted.ok('session', { action: 'cancel', session_id })
    expect(cancelled).toMatchObject({ status: 'idle', step: null })
    const completion = (await history(booted, session_id)).find(({ type: of }) => of === 'completion')
    expect(completion).toMatchObject({ turn_id, stop_reason: 'cancelled' })
    await until(async () => (await buildsRunning(marker)) === 0, {
      deadline_ms: 10_000,
      what: 'the build is cancelled',
    })
    expect(await types.isBuilt(type)).toBe(false)
    await until(
      async () => {
        const { container } = await booted.ok('project', { action: 'get', project_id })
        return container.wanted === 'stopped' && container.status === 'absent'
      },
      { what: 'the container is not wanted any more' },
    )
    await booted.ok('project', { action: 'update', project_id, container_type: 'base' })
    await say(booted, session_id, 'echo still here')
    expect(textOf(await history(booted, session_id))).toBe('still here\n')
  })

  test('is built on for other sessions when one is ended or its container is stopped', async () => {
    const step = slowStep(40)
    const type = await types.add([step])
    const project_id = await booted.project({ container_type: type })
    const marker = step.slice('RUN '.length, -10)
    const [one, other] = [await spawnOnly(project_id), await spawnOnly(project_id, 'echo other')]
    const elsewhere = await spawnOnly(await booted.project({ container_type: type }))
    await until(async () => (await buildsRunning(marker)) === 1, {
      deadline_ms: 20_000,
      what: 'the engine builds',
    })
    const began = performance.now()
    expect(await end(booted, one.session_id)).toMatchObject({ status: 'completed', ended: [one.session_id] })
    expect(performance.now() - began).toBeLessThan(5_000)
    await untilBuilding(other.session_id, type)
    // A message meanwhile waits for its turn.
    await say(booted, other.session_id, 'echo later', { wait_seconds: 0 })
    expect(await buildsRunning(marker)).toBe(1)
    await booted.ok('container', { action: 'stop', project_id })
    expect(performance.now() - began).toBeLessThan(20_000)
    expect(await get(booted, other.session_id)).toMatchObject({
      status: 'failed',
      reason: expect.stringMatching(/container (is being|was) stopped/),
    })
    expect(await untilBuilding(elsewhere.session_id, type)).toMatchObject({ status: 'preparing' })
    expect(await buildsRunning(marker)).toBe(1)
    await end(booted, elsewhere.session_id)
    await until(async () => (await buildsRunning(marker)) === 0, { what: 'the build is cancelled' })
  })

  test('is not built for a session whose key, model or container type is missing', async () => {
    const type = await types.add([slowStep(1)])
    const project_id = await booted.project({ container_type: type })
    const ask = (droid: string, more: object = {}) =>
      booted.fault('session', { action: 'spawn', project_id, prompt: 'hello', droid, ...more })
    expect(await ask('keyed')).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('needs a key for bedrock'),
    })
    expect(await ask('unset')).toMatchObject({
      kind: 'unavailable',
      message: 'credential "later" is not available: the environment variable NOT_SET_ANYWHERE is not set',
    })
    expect(await ask('modelled')).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('needs the name of a model of anthropic'),
    })
    expect(await ask('modelled', { model: 'm', tools_allowed: ['Read'] })).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('does not support tool lists'),
    })
    expect(await types.isBuilt(type)).toBe(false)
    const { sessions } = await booted.ok('session', { action: 'list', project_id })
    expect(sessions).toEqual([])

    const basic = await booted.project({ container_type: 'base' })
    const misplaced = { action: 'spawn', project_id: basic, prompt: 'hello', droid: 'placed' }
    expect(await booted.fault('session', misplaced)).toMatchObject({
      kind: 'invalid',
      message: expect.stringMatching(
        /^container type "base" of project ".*" does not contain droid "placed"$/,
      ),
      hint: expect.stringContaining(`container_type "${agent_type}"`),
    })
    // A type that is based on the one with the droid contains it too.
    const derived = await booted.project({ container_type: await types.add([slowStep(1)], agent_type) })
    const { session_id, status } = await spawnOnly(derived, 'hello', { droid: 'placed' })
    expect(status).toBe('preparing')
    await end(booted, session_id)
    expect(booted.server.log()).toMatch(/credential .*later.* is not available.*NOT_SET_ANYWHERE/)
  })

  test('shows its steps on the terminal of a command, and nothing elsewhere', async () => {
    const env = {
      OUBLIETTE_HOME: booted.server.home,
      OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
      OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
    }
    const start = async (steps: string[]) => {
      const type = await types.add(steps)
      const project_id = await booted.project({ container_type: type })
      return { type, args: ['container', 'start', project_id] }
    }
    const shown = await start([slowStep(3)])
    const terminal = await runOnTerminal(shown.args, env)
    expect(terminal.code).toBe(0)
    expect(terminal.output).toMatch(
      new RegExp(`building image ${shown.type}: step 4 of 7 \\(\\d+%\\) · [1-9] s`),
    )
    const quiet = await start([slowStep(3)])
    const json = await runCli([...quiet.args, '-o', 'json'], env)
    expect(json).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(json.stdout)).toMatchObject({ status: 'running' })
    const silent = await runOnTerminal([...(await start([slowStep(3)])).args, '-o', 'json'], env)
    expect(silent.output).not.toContain('building image')
  })

  test('does not fail its session after a minute', async () => {
    const { session_id, began } = long
    await untilStatus(booted, session_id, 'idle', 2 * minute)
    expect(performance.now() - began).toBeGreaterThan(75_000)
    expect(textOf(await history(booted, session_id))).toBe('at last\n')
  })
})

test('image_rebuild says whether it built, and builds again without the cache', {
  timeout: 2 * minute,
}, async () => {
  const container_type = await types.add([slowStep(0)])
  const first = await booted.ok('image_rebuild', { container_type })
  expect(first).toMatchObject({ container_type, rebuilt: true })
  const second = await booted.ok('image_rebuild', { container_type })
  expect(second).toMatchObject({ reference: first.reference, created_at: first.created_at, rebuilt: false })
  const third = await booted.ok('image_rebuild', { container_type, no_cache: true })
  expect(third).toMatchObject({ reference: first.reference, rebuilt: true })
  expect(third.created_at).not.toBe(first.created_at)
})
