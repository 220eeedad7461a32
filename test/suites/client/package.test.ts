// The client package as its users get it: packed, installed into an empty folder, type-checked and run. And from its sources,
// while the server is killed.
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createClient, OublietteError, type Progress, tool } from '../../../packages/client/src/index.ts'
import { untilStatus } from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { freePort } from '../../harness/free-port.ts'
import { until } from '../../harness/wait.ts'

const checkout = resolve(import.meta.dirname, '../../..')
const execute = promisify(execFile)
let booted: Booted
let project_id: string
let folder: string
beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project()
  folder = await mkdtemp(join(tmpdir(), 'oubliette-client-'))
})
afterAll(async () => {
  await booted?.stop()
  await rm(folder, { recursive: true, force: true })
})
const newClient = (more = {}) =>
  createClient({ url: booted.server.url, token: booted.server.admin_token, ...more })

describe('the installed package', () => {
  const run = (program: string, args: string[], cwd: string) =>
    execute(program, args, {
      cwd,
      env: {
        ...process.env,
        OUBLIETTE_URL: booted.server.url,
        OUBLIETTE_TOKEN: booted.server.admin_token,
        PROJECT: project_id,
      },
    })

  it('installs without a registry, type-checks and runs', { timeout: 180_000 }, async () => {
    const packed = join(folder, 'packed')
    const app = join(folder, 'app')
    await cp(join(checkout, 'test/fixtures/client-consumer.ts'), join(app, 'app.ts'))
    await writeFile(join(app, 'package.json'), '{"name":"app","private":true,"type":"module"}')
    await mkdir(packed)
    await run('npm', ['run', 'pack:client', '--', '--pack-destination', packed], checkout)
    // The one dependency comes from this checkout, so that no registry is needed.
    const parser = join(checkout, 'node_modules/eventsource-parser')
    await run('npm', ['pack', parser, '--ignore-scripts', '--pack-destination', packed], folder)
    const tarballs = (await readdir(packed)).filter((name) => name.endsWith('.tgz')).sort()
    expect(tarballs).toEqual([
      expect.stringMatching(/^eventsource-parser-/),
      expect.stringMatching(/^oubliette-client-/),
    ])
    const install = ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund']
    await run('npm', [...install, ...tarballs.map((name) => join(packed, name))], app)

    const installed = join(app, 'node_modules/@oubliette/client')
    const sources = (await readdir(installed, { recursive: true })).filter((name) => name.endsWith('.ts'))
    expect(sources.filter((name) => !name.endsWith('.d.ts'))).toEqual([])

    const types = ['--types', 'node', '--typeRoots', join(checkout, 'node_modules/@types')]
    const flags = ['--strict', '--module', 'nodenext', '--target', 'es2023', '--lib', 'es2023', '--noEmit']
    await run('tsc', [...flags, ...types, 'app.ts'], app)

    const { stdout } = await run(process.execPath, ['app.ts'], app)
    const steps = Object.fromEntries(
      stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
        .map(({ step, value }) => [step, value]),
    )
    expect(steps).toEqual({
      answer: {
        text: expect.stringContaining('"sum":5'),
        stop_reason: 'end_turn',
        exit_code: 0,
        usage: { input_tokens: 0, output_tokens: 0, cost_usd: 0 },
      },
      second: 3,
      attended: 'completed',
      gap_free: true,
      statuses: 'completed',
      refused: { kind: 'not_found', id: 'err_' },
    })
  })

  it('has the version of the server', async () => {
    const version = async (path: string) =>
      JSON.parse(await readFile(join(checkout, path, 'package.json'), 'utf8')).version
    expect(await version('packages/client')).toBe(await version('.'))
  })
})

describe('the client', () => {
  it('cancels a call on the server', async () => {
    const stop = new AbortController()
    const command = 'sleep 97532'
    const running = newClient().call(
      'container',
      { action: 'exec', project_id, command, timeout_seconds: 900 },
      { signal: stop.signal },
    )
    running.catch(() => undefined)
    // The pattern does not match the command that searches.
    const search = "grep -la 'sleep.9753[2]' /proc/[0-9]*/cmdline 2>/dev/null || true"
    const found = async () => (await booted.exec(project_id, search)).stdout !== ''
    await until(found, { what: 'the command runs' })
    stop.abort()
    await expect(running).rejects.toMatchObject({ name: 'AbortError' })
    await until(async () => !(await found()), { what: 'the command is stopped' })
  })

  it('reports progress of a call, and stops waiting when it is aborted', async () => {
    const client = newClient()
    const seen: Progress[] = []
    const stop = new AbortController()
    const prompt = 'for i in 1 2 3; do echo line $i; sleep 0.5; done; sleep 97531'
    const waiting = client.call(
      'session',
      { action: 'spawn', project_id, prompt, new_session: true, wait_seconds: 60 },
      { signal: stop.signal, onProgress: (progress) => seen.push(progress) },
    )
    waiting.catch(() => undefined)
    await until(() => seen.some(({ message }) => message?.includes('line 3')), { what: 'progress arrives' })
    stop.abort()
    await expect(waiting).rejects.toMatchObject({ name: 'AbortError' })
  })

  it('asks, attends and follows through kills of the server, each call answered once', {
    timeout: 180_000,
  }, async () => {
    const retries: string[] = []
    const client = newClient({ onRetry: ({ error }: { error: OublietteError }) => retries.push(error.kind) })
    const ran: number[] = []
    const gate = Promise.withResolvers<void>()
    const work = tool<{ n: number }>({
      timeout_seconds: 600,
      run: async ({ n }) => {
        ran.push(n)
        if (n === 2) await gate.promise
        return { n }
      },
    })
    const session = client.session({ project_id, new_session: true, caller_id: 'app', tools: { work } })
    const prompt = 'for n in 1 2 3; do oubliette-client call app_work "{\\"n\\":$n}"; done'
    const asking = session.ask(prompt)
    await until(() => ran.includes(2), { what: 'the second call is running' })
    const id = session.session_id ?? ''
    const indexes: number[] = []
    const following = (async () => {
      for await (const { index } of client.events(id)) indexes.push(index)
    })()
    const attending = session.attend()
    await until(() => indexes.length > 0, { what: 'events arrive' })
    await booted.server.restart('SIGKILL')
    gate.resolve()
    const answer = await asking
    expect(answer.final_text.match(/"n":\d/g)).toEqual(['"n":1', '"n":2', '"n":3'])
    expect(ran).toEqual([1, 2, 3])
    expect(retries.length).toBeGreaterThan(0)
    await session.end()
    expect((await attending).status).toBe('completed')
    await following
    expect(indexes).toEqual(indexes.map((_, at) => at))
    await booted.reconnect()
  })

  it('answers what was open when the application was stopped', async () => {
    const declared = { caller_id: 'app', tools: { work: tool({ run: () => 'first' }) } }
    const session = newClient().session({ project_id, new_session: true, ...declared })
    await session.spawn('oubliette-client call app_work "{}"')
    const session_id = session.session_id ?? ''
    await untilStatus(booted, session_id, 'waiting', 60_000)

    const stop = new AbortController()
    const interrupted = tool({
      run: (_args, { signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason))
          stop.abort()
        }),
    })
    const stopped = newClient().session({ session_id, caller_id: 'app', tools: { work: interrupted } })
    await expect(stopped.attend({ signal: stop.signal })).rejects.toMatchObject({ name: 'AbortError' })

    const next = newClient().session({ session_id })
    const types: string[] = []
    const attending = next.attend({
      caller_id: 'app',
      tools: { work: tool({ run: () => 'second' }) },
      onEvent: ({ type }) => void types.push(type),
    })
    await untilStatus(booted, session_id, 'idle', 60_000)
    await next.end()
    expect((await attending).final_text).toContain('second')
    expect(types.filter((type) => type.startsWith('caller_tool'))).toEqual([
      'caller_tool_request',
      'caller_tool_result',
    ])
  })

  it('names the address and what to do if no server responds', async () => {
    const url = `http://127.0.0.1:${await freePort()}`
    const failed = await newClient({ url })
      .session({ project_id })
      .ask('true')
      .catch((error: unknown) => error)
    expect(failed).toBeInstanceOf(OublietteError)
    expect(failed).toMatchObject({
      kind: 'unreachable',
      message: expect.stringContaining(`cannot reach the server at ${url}`),
      hint: expect.stringContaining('./oubliette up'),
    })
    const refused = newClient({ token: `oub_${'0'.repeat(64)}` }).call('project', { action: 'list' })
    await expect(refused).rejects.toMatchObject({ kind: 'unauthenticated', id: expect.any(String) })
  })
})
