// The model proxy from inside a container without a network, by curl in a shell session: what is passed on, what is
// counted, what is refused and how.
import { randomBytes } from 'node:crypto'
import { createConnection } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { droid } from '../../fixtures/droid-socket.ts'
import { type Event, end, get, history, spawn } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'
import { usage } from '../../models/protocol.ts'
import { prompt, type Step } from '../../models/script.ts'
import { type ScriptedModel, startScriptedModel } from '../../models/scripted-model.ts'

const key = `canary-${randomBytes(16).toString('hex')}`
let model: ScriptedModel
let booted: Booted
let project_id: string

const price = { input: 1000, output: 2000, cache_read: 100 }
const costOfOne =
  ((usage.input - usage.cached) * price.input +
    usage.cached * price.cache_read +
    usage.output * price.output) /
  1e6

beforeAll(async () => {
  model = await startScriptedModel(key)
  const credential = (provider: string, base_url: string) => ({ provider, key, base_url })
  booted = await boot({
    config: {
      log: { level: 'debug' },
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
      prices: { 'test-*': price },
      droids: { keyless: { kind: 'acp', command: 'none', providers: ['bedrock'] } },
      credentials: {
        a: credential('anthropic', model.url),
        o: credential('openai', `${model.url}/v1`),
        g: credential('gemini', model.url),
        r1: credential('openrouter', `${model.url}/v1`),
        r2: credential('openrouter', `${model.url}/other`),
      },
    },
    env: { ANTHROPIC_API_KEY: '', OPENAI_API_KEY: '', GEMINI_API_KEY: '', OPENROUTER_API_KEY: '' },
  })
  project_id = await booted.project({ credential_refs: ['r1'] })
})
afterAll(async () => {
  await booted?.stop()
  await model?.[Symbol.asyncDispose]()
})

type Ask = { path: string; body?: unknown; header?: string; curl?: string }

const script = ({ path, body, header = 'x-api-key: $OUBLIETTE_API_KEY', curl = '' }: Ask) =>
  `curl -sS -N --max-time 20 ${curl} -w '\\nstatus=%{http_code}\\n' -H "${header}" -H 'content-type: application/json' \\
  ${body === undefined ? '' : `-d @- <<'BODY'\n${JSON.stringify(body)}\nBODY\n`}`.replace(
    '-w',
    `"$OUBLIETTE_MODELS_URL${path}" -w`,
  )

/** One request from a new session, and what came of it. */
async function ask(what: Ask, project = project_id) {
  const session = await spawn(booted, project, script(what))
  const text = String(session.final_text)
  return { session_id: String(session.session_id), text, status: Number(/status=(\d+)/.exec(text)?.[1]) }
}

const messages = (steps: Step[], stream = true) => ({
  model: 'test-model',
  stream,
  max_tokens: 100,
  tools: [{ name: 'x', input_schema: { type: 'object' } }],
  messages: [{ role: 'user', content: prompt(steps) }],
})

const usageOf = async (session_id: string): Promise<Event> =>
  await until(async () => (await history(booted, session_id)).find((event) => event.type === 'usage'), {
    what: 'the usage is written',
  })

describe('a request of a droid', () => {
  test.each([
    [
      'anthropic',
      '/anthropic/v1/messages',
      'x-api-key: $OUBLIETTE_API_KEY',
      messages([{ say: 'hello there' }]),
    ],
    [
      'openai chat',
      '/openai/v1/chat/completions',
      'authorization: Bearer $OUBLIETTE_API_KEY',
      {
        model: 'test-model',
        stream: true,
        tools: [{ type: 'function', function: { name: 'x' } }],
        messages: [{ role: 'user', content: prompt([{ say: 'hello there' }]) }],
      },
    ],
    [
      'openai responses',
      '/openai/v1/responses',
      'authorization: Bearer $OUBLIETTE_API_KEY',
      {
        model: 'test-model',
        stream: true,
        tools: [{ type: 'function', name: 'x' }],
        input: [{ role: 'user', content: [{ type: 'input_text', text: prompt([{ say: 'hello there' }]) }] }],
      },
    ],
    [
      'gemini',
      '/gemini/v1beta/models/test-model:streamGenerateContent?alt=sse&key=unused',
      'x-goog-api-key: $OUBLIETTE_API_KEY',
      {
        tools: [{ functionDeclarations: [{ name: 'x' }] }],
        contents: [{ role: 'user', parts: [{ text: prompt([{ say: 'hello there' }]) }] }],
      },
    ],
    [
      'openrouter',
      '/openrouter/v1/chat/completions',
      'authorization: Bearer $OUBLIETTE_API_KEY',
      {
        model: 'test-model',
        tools: [{ type: 'function', function: { name: 'x' } }],
        messages: [{ role: 'user', content: prompt([{ say: 'hello there' }]) }],
      },
    ],
  ])(
    'reaches %s with the real key, and its tokens and cost are counted',
    async (_name, path, header, body) => {
      const { status, text, session_id } = await ask({ path, header, body })
      expect(status).toBe(200)
      expect(text).toContain('hello')
      expect(text).toContain('there')
      const asked = model.asked.at(-1)!
      expect(JSON.stringify(asked.headers)).toContain(key)
      expect(JSON.stringify([asked.headers, asked.path])).not.toContain('oubs_')
      expect(await usageOf(session_id)).toMatchObject({
        source: 'gateway',
        model: 'test-model',
        input_tokens: usage.input,
        output_tokens: usage.output,
        cache_read_tokens: usage.cached,
      })
      const { usage: sums } = await get(booted, session_id)
      expect(sums).toMatchObject({ input_tokens: usage.input, output_tokens: usage.output })
      expect(sums.cost_usd).toBeCloseTo(costOfOne, 10)
    },
  )

  test('gets the stream while it is made, not when it is over', async () => {
    const body = messages([{ say: 'word '.repeat(40), every_ms: 25 }])
    const stamped = `${script({ path: '/anthropic/v1/messages', body }).replace(
      "<<'BODY'",
      '<<\'BODY\' | while read -r line; do echo "$(date +%s%3N) $line"; done',
    )}`
    const { final_text } = await spawn(booted, project_id, stamped)
    const times = [...String(final_text).matchAll(/^(\d{13}) data:/gm)].map((match) => Number(match[1]))
    expect(times.length).toBeGreaterThan(40)
    expect(times.at(-1)! - times[0]!).toBeGreaterThan(500)
    expect(new Set(times).size).toBeGreaterThan(20)
  })

  test('ends at the provider when the droid hangs up', async () => {
    const body = messages([{ say: `gone ${'word '.repeat(2000)}`, every_ms: 20 }])
    await ask({ path: '/anthropic/v1/messages', body, curl: '--max-time 1' })
    const asked = model.asked.find((it) => it.body.includes('gone word'))!
    await until(() => asked.finished === false, { what: 'the provider notices' })
  })

  test('receives a broken stream as an error, and the errors of the provider unchanged', async () => {
    const broken = await ask({
      path: '/anthropic/v1/messages',
      body: messages([{ break_off: 'word '.repeat(50), times: 9 }]),
      curl: '--fail-with-body',
    })
    expect(broken.text).not.toContain('message_stop')
    const session = await get(booted, broken.session_id)
    expect(session.stop_reason).toBe('error')
    const refused = await ask({
      path: '/anthropic/v1/messages',
      body: messages([{ error: 429, message: 'too many' }]),
    })
    expect(refused.status).toBe(429)
    expect(refused.text).toContain('too many')
  })
})

describe('what is refused', () => {
  test.each([
    ['a wrong key', 401, { path: '/anthropic/v1/messages', header: 'x-api-key: oubs_wrong', body: {} }],
    ['no key', 401, { path: '/anthropic/v1/messages', header: 'x-nothing: 1', body: {} }],
    [
      'a path that is not the API',
      404,
      { path: '/anthropic/v1/organizations', header: 'x-api-key: $OUBLIETTE_API_KEY' },
    ],
    ['a way out of the path', 404, { path: '/anthropic/v1/messages/../../admin', curl: '--path-as-is' }],
    ['an unknown provider', 404, { path: '/elsewhere/v1/messages' }],
    ['a provider without a credential', 503, { path: '/bedrock/model/x/invoke', body: {} }],
  ])('%s: %d', async (_name, status, what) => {
    const before = model.asked.length
    expect((await ask(what)).status).toBe(status)
    expect(model.asked.length).toBe(before)
  })

  test('a missing credential is named, in the words of the provider', async () => {
    const { text } = await ask({ path: '/openai-compatible/v1/chat/completions', body: {} })
    const { error } = JSON.parse(text.split('\nstatus=')[0]!) as { error: { message: string; type: string } }
    expect(error.type).toBe('service_unavailable')
    expect(error.message).toContain('no credential for openai-compatible')
    expect(error.message).toContain('credentials.<name> with provider "openai-compatible"')
  })

  test('two credentials of which the project names none', async () => {
    const other = await booted.project()
    const { status, text } = await ask({ path: '/openrouter/v1/chat/completions', body: {} }, other)
    expect(status).toBe(400)
    expect(text).toContain('r1, r2')
  })

  test('the key of another project, and the key of a session that is over', async () => {
    const other = await booted.project()
    const shown = await spawn(booted, other, 'echo "key=$OUBLIETTE_API_KEY"')
    const foreign = /key=(\S+)/.exec(String(shown.final_text))![1]!
    expect(
      (await ask({ path: '/anthropic/v1/messages', header: `x-api-key: ${foreign}`, body: {} })).status,
    ).toBe(401)
    const mine = await spawn(booted, project_id, 'echo "key=$OUBLIETTE_API_KEY"')
    const old = /key=(\S+)/.exec(String(mine.final_text))![1]!
    await end(booted, mine.session_id)
    await until(async () => (await get(booted, mine.session_id)).status === 'completed', {
      what: 'it is over',
    })
    expect(
      (await ask({ path: '/anthropic/v1/messages', header: `x-api-key: ${old}`, body: {} })).status,
    ).toBe(401)
  })
})

describe('money', () => {
  test('is spent up to the limit of the project, and then refused before anything is forwarded', async () => {
    const poor = await booted.project({ limits: { max_cost_usd: costOfOne * 1.5 } })
    const path = '/anthropic/v1/messages'
    const loop = [1, 2, 3].map(() => script({ path, body: messages([{ say: 'hello' }], false) })).join('\n')
    const before = model.asked.length
    const session = await spawn(booted, poor, loop)
    expect(model.asked.length - before).toBe(2)
    expect([...String(session.final_text).matchAll(/status=(\d+)/g)].map((it) => it[1])).toEqual([
      '200',
      '200',
      '402',
    ])
    expect(session.final_text).toContain('"type":"billing_error"')
    expect(session.final_text).toContain('max_cost_usd')
    const limits: Answer = await booted.ok('config_limits', { project_id: poor })
    expect(limits.used.cost_usd).toBeCloseTo(costOfOne * 2, 10)
    expect(
      (
        await booted.fault('session', {
          action: 'spawn',
          project_id: poor,
          prompt: 'true',
          new_session: true,
        })
      ).kind,
    ).toBe('exhausted')
  })
})

test('what the requests of one container hold together is bounded, and it is free again when they are over', {
  timeout: 60_000,
}, async () => {
  const { socket, api_key, session_id } = await droid(booted, project_id)
  const megabyte = Buffer.alloc(1024 * 1024, 0x20)
  /** A request whose body never ends. */
  const upload = () => {
    const connection = createConnection(socket)
    let answer = ''
    connection.setEncoding('utf8').on('data', (chunk: string) => (answer += chunk))
    connection.on('error', () => undefined)
    connection.write(
      `POST /anthropic/v1/messages HTTP/1.1\r\nhost: gateway\r\nx-api-key: ${api_key}\r\ncontent-length: 67108864\r\n\r\n`,
    )
    for (let n = 0; n < 62; n++) connection.write(megabyte)
    return {
      answer: () => answer,
      sent: () => connection.writableLength === 0,
      end: () => connection.destroy(),
    }
  }
  const four = Array.from({ length: 4 }, upload)
  await until(() => four.every((one) => one.sent()), { what: 'four of 62 MiB are held' })
  const fifth = upload()
  await until(() => fifth.answer().includes('in total'), { what: 'the fifth is answered' })
  expect(fifth.answer()).toMatch(/^HTTP\/1.1 503 /)
  expect(fifth.answer()).toContain('x-should-retry: true')
  expect(fifth.answer()).toContain('exceed 256 MiB in total')
  expect(four.map((one) => one.answer())).toEqual(['', '', '', ''])
  for (const one of [...four, fifth]) one.end()
  const body = {
    model: 'test-1',
    max_tokens: 9,
    messages: [{ role: 'user', content: prompt([{ say: 'ok' }]) }],
  }
  await until(async () => (await ask({ path: '/anthropic/v1/messages', body })).status === 200, {
    what: 'others are served again',
  })
  await end(booted, session_id)
})

test('a droid whose key is missing is refused at once, with the key named', async () => {
  const where = { action: 'spawn', project_id, prompt: 'hi', new_session: true }
  const { kind, message, hint } = await booted.fault('session', { ...where, droid: 'keyless' })
  expect(kind).toBe('unavailable')
  expect(message).toBe('droid "keyless" needs a key for bedrock, which is not configured')
  expect(hint).toBe('add credentials.<name> with provider "bedrock" to oubliette.jsonc')
})

test('the real key is nowhere but in the config', async () => {
  const shown = await booted.exec(
    project_id,
    'env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" "\\n"; grep -r canary- /home /workspaces /tmp /run 2>/dev/null; true',
  )
  expect(shown.stdout).not.toContain(key)
  expect(booted.server.log()).not.toContain(key)
  const rows = await booted.query(
    `select count(*)::int as found from (select data::text as text from events union all select payload::text from commands union all select to_jsonb(sessions)::text from sessions union all select to_jsonb(audit)::text from audit) as everything where text like $1`,
    [`%${key}%`],
  )
  expect(rows).toEqual([{ found: 0 }])
})
