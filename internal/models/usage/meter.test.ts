import { expect, test } from 'vitest'
import { createMeter } from './meter.ts'
import { readUsage } from './usage.ts'

const elsewhere = async (parts: Buffer[]) =>
  [readUsage(JSON.parse(Buffer.concat(parts).toString()))].filter((it) => it !== undefined)

/** In pieces of every size, since a network cuts where it likes. */
async function read(type: string, bytes: Buffer) {
  const readings: unknown[] = []
  for (const size of [1, 7, 64, bytes.length]) {
    const meter = createMeter(type, elsewhere)!
    for (let at = 0; at < bytes.length; at += size) meter.take(bytes.subarray(at, at + size))
    readings.push(await meter.end())
  }
  for (const reading of readings) expect(reading).toEqual(readings[0])
  return readings[0]
}
const events = (...data: object[]) =>
  Buffer.from(data.map((one) => `event: x\ndata: ${JSON.stringify(one)}\n\n`).join(''))
const sse = 'text/event-stream; charset=utf-8'

test("Anthropic's stream: input at the beginning, output at the end", async () => {
  const usage = {
    input_tokens: 10,
    cache_read_input_tokens: 5,
    cache_creation_input_tokens: 2,
    output_tokens: 1,
  }
  const stream = events(
    { type: 'message_start', message: { model: 'claude-x', usage } },
    { type: 'content_block_delta', delta: { text: 'my usage is none of your business' } },
    { type: 'message_delta', usage: { output_tokens: 42 } },
  )
  expect(await read(sse, stream)).toEqual({
    model: 'claude-x',
    input: 10,
    cache_read: 5,
    cache_write: 2,
    output: 42,
  })
})

test("OpenAI's chat and responses: cached input is part of the whole", async () => {
  const chat = events(
    { model: 'gpt-x', choices: [], usage: null },
    {
      model: 'gpt-x',
      usage: {
        prompt_tokens: 10,
        completion_tokens: 3,
        total_tokens: 13,
        prompt_tokens_details: { cached_tokens: 4 },
      },
    },
  )
  expect(await read(sse, chat)).toEqual({
    model: 'gpt-x',
    input: 6,
    cache_read: 4,
    cache_write: 0,
    output: 3,
  })
  const responses = events({
    type: 'response.completed',
    response: {
      model: 'gpt-x',
      usage: {
        input_tokens: 10,
        input_tokens_details: { cached_tokens: 4 },
        output_tokens: 3,
        total_tokens: 13,
      },
    },
  })
  expect(await read(sse, responses)).toEqual({
    model: 'gpt-x',
    input: 6,
    cache_read: 4,
    cache_write: 0,
    output: 3,
  })
})

test('OpenRouter says itself what it cost', async () => {
  const body = Buffer.from('{"model":"m","usage":{"prompt_tokens":1,"completion_tokens":2,"cost":0.25}}')
  expect(await read('application/json', body)).toMatchObject({ cost_usd: 0.25 })
})

test("Gemini's stream, its list, and thoughts as output", async () => {
  const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 3, thoughtsTokenCount: 2 }
  const wanted = { model: 'gemini-x', input: 10, cache_read: 0, cache_write: 0, output: 5 }
  const answer = { modelVersion: 'gemini-x', usageMetadata }
  expect(await read(sse, events(answer))).toEqual(wanted)
  expect(
    await read('application/json', Buffer.from(JSON.stringify([{ modelVersion: 'gemini-x' }, answer]))),
  ).toEqual(wanted)
})

function message(payload: string): Buffer {
  const body = Buffer.from(payload)
  const headers = Buffer.from('ignored')
  const total = 12 + headers.length + body.length + 4
  const prelude = Buffer.alloc(12)
  prelude.writeUInt32BE(total, 0)
  prelude.writeUInt32BE(headers.length, 4)
  return Buffer.concat([prelude, headers, body, Buffer.alloc(4)])
}

test("Bedrock's binary stream", async () => {
  const inner = {
    type: 'message_stop',
    'amazon-bedrock-invocationMetrics': { inputTokenCount: 7, outputTokenCount: 8 },
  }
  const stream = Buffer.concat([
    message('{"bytes":"e30="}'),
    message(JSON.stringify({ bytes: Buffer.from(JSON.stringify(inner)).toString('base64') })),
  ])
  expect(await read('application/vnd.amazon.eventstream', stream)).toMatchObject({ input: 7, output: 8 })
  const converse = message(JSON.stringify({ usage: { inputTokens: 3, outputTokens: 4 } }))
  expect(await read('application/vnd.amazon.eventstream', converse)).toMatchObject({ input: 3, output: 4 })
})

test('what is not understood has no usage and does no harm', async () => {
  expect(
    await read(sse, Buffer.from('data: {"usage":\n\nnonsense usage\n\ndata: [DONE] usage\n\n')),
  ).toBeUndefined()
  expect(await read('application/json', Buffer.from('{"usage": 3}'))).toBeUndefined()
  expect(
    await read('application/vnd.amazon.eventstream', Buffer.from('this is not binary at all')),
  ).toBeUndefined()
  expect(createMeter('text/html', elsewhere)).toBeUndefined()
})

test('a long answer is read elsewhere, and what came before an answer was written is not all', async () => {
  const usage = { input_tokens: 5, output_tokens: 7, total_tokens: 12 }
  const whole = { model: 'm', output: 'x'.repeat(100_000), usage }
  const wanted = { model: 'm', input: 5, output: 7 }
  expect(await read('application/json', Buffer.from(JSON.stringify(whole)))).toMatchObject(wanted)
  expect(await read(sse, events({ type: 'response.completed', response: whole }))).toMatchObject(wanted)
  const start = {
    type: 'message_start',
    message: { model: 'm', usage: { input_tokens: 3, output_tokens: 1 } },
  }
  expect(await read(sse, events(start))).toMatchObject({ input: 3, partial: true })
})

test('all steps of a request that was summarised on the way are counted', async () => {
  const step = (input_tokens: number, output_tokens: number) => ({ input_tokens, output_tokens })
  const usage = { ...step(20, 5), iterations: [step(1000, 300), step(20, 5)] }
  expect(await read('application/json', Buffer.from(JSON.stringify({ model: 'm', usage })))).toMatchObject({
    input: 1020,
    output: 305,
  })
})
