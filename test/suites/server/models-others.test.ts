// Providers that cannot be taken for granted: OpenAI-compatible endpoints at an address of one's own, and Bedrock,
// whose requests are signed; and droids that have a key for neither.
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { history, spawn } from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'
import { usage } from '../../models/protocol.ts'
import { prompt } from '../../models/script.ts'
import { type ScriptedModel, startScriptedModel } from '../../models/scripted-model.ts'

const secret = 'a-secret-access-key'
let model: ScriptedModel
let amazon: Server
let booted: Booted
let project_id: string
const signed: { request: IncomingMessage; body: string }[] = []

beforeAll(async () => {
  model = await startScriptedModel('local-key')
  amazon = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request.setEncoding('utf8')) body += chunk
    signed.push({ request, body })
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ content: [], usage: { input_tokens: 7, output_tokens: 3 } }))
  }).listen(0, '127.0.0.1')
  await once(amazon, 'listening')
  const { port } = amazon.address() as AddressInfo
  booted = await boot({
    config: {
      credentials: {
        local: { provider: 'openai-compatible', key: 'local-key', base_url: `${model.url}/v1` },
        aws: {
          provider: 'bedrock',
          access_key_id: 'AKIDEXAMPLE',
          key: secret,
          region: 'eu-west-1',
          base_url: `http://127.0.0.1:${port}`,
        },
      },
    },
    env: { ANTHROPIC_API_KEY: '', OPENAI_API_KEY: '', GEMINI_API_KEY: '', OPENROUTER_API_KEY: '' },
  })
  project_id = await booted.project()
})
afterAll(async () => {
  await booted?.stop()
  amazon?.close()
  await model?.[Symbol.asyncDispose]()
})

/** A request of a shell session, what came back, and the tokens that were counted for it. */
async function ask(path: string, body: object) {
  const session = await spawn(
    booted,
    project_id,
    `curl -sS --max-time 20 "$OUBLIETTE_MODELS_URL${path}" -H "authorization: Bearer $OUBLIETTE_API_KEY" \\
      -H 'content-type: application/json' -d @- <<'BODY'\n${JSON.stringify(body)}\nBODY`,
  )
  const counted = await until(
    async () => (await history(booted, session.session_id)).find(({ type }) => type === 'usage'),
    { what: 'the tokens are counted' },
  )
  return { text: String(session.final_text), counted }
}

test('an OpenAI-compatible endpoint is reached at its own address, and costs the default price without one of its own', async () => {
  const { text, counted } = await ask('/openai-compatible/v1/chat/completions', {
    model: 'test-local',
    stream: true,
    tools: [{ type: 'function', function: { name: 'x' } }],
    messages: [{ role: 'user', content: prompt([{ say: 'from nearby' }]) }],
  })
  expect(text).toContain('nearby')
  const cost_usd = (usage.input * 15 + usage.output * 75) / 1e6
  expect(counted).toMatchObject({ provider: 'openai-compatible', input_tokens: usage.input, cost_usd })
})

test('a request to Bedrock is signed, and carries neither the secret nor the key of the session', async () => {
  const { counted } = await ask('/bedrock/model/test.model-v1%3A0/invoke', { max_tokens: 5 })
  expect(counted).toMatchObject({
    provider: 'bedrock',
    model: 'test.model-v1:0',
    input_tokens: 7,
    output_tokens: 3,
  })
  const { request, body } = signed.at(-1)!
  expect(body).toBe('{"max_tokens":5}')
  expect(request.headers.authorization).toMatch(
    /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/eu-west-1\/bedrock\/aws4_request, SignedHeaders=\S+, Signature=[0-9a-f]{64}$/,
  )
  const all = JSON.stringify([request.url, request.headers])
  expect(all).not.toContain(secret)
  expect(all).not.toContain('oubs_')
})

test('options say which droids are ready, and what the others need', async () => {
  const { droids } = await booted.ok('project', { action: 'options' })
  const needs = Object.fromEntries(droids.map((it: { name: string; needs?: object }) => [it.name, it.needs]))
  expect(needs).toMatchObject({
    claude: { ready: true, providers: ['anthropic', 'bedrock'] },
    opencode: { ready: true },
    droid: { ready: true },
    codex: { ready: false, missing: expect.stringContaining('set OPENAI_API_KEY') },
    gemini: { ready: false, missing: expect.stringContaining('set GEMINI_API_KEY') },
  })
  expect(needs.shell).toBeUndefined()
})
