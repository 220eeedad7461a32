// The rules for requests, one provider after the other: what stays, what is taken out, what is refused and what is counted.
import { describe, expect, test } from 'vitest'
import { hostedTools } from '../../config/models.ts'
import { Fault } from '../../fault.ts'
import { type Endpoint, inspect } from './inspect.ts'
import { createInspections } from './inspections.ts'

const look = (endpoint: Endpoint, body: unknown, allowed: readonly (typeof hostedTools)[number][] = []) => {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
  const inspection = inspect(bytes, { endpoint, allowed, hash: false })
  return { ...inspection, sent: JSON.parse(inspection.body.toString()) }
}
const kindOf = (work: () => unknown): string => {
  try {
    work()
    return 'passed'
  } catch (error) {
    if (error instanceof Fault) return error.kind
    throw error
  }
}

describe('usage of a stream', () => {
  test.each([
    '{"model":"m","stream":true}',
    '{"model":"m","str\\u0065am":true}',
    '{"model":"m","stream"\n:\n true}',
    '{"model":"m","stream":false,"stream":true}',
    '{"model":"m","stream":true,"stream_options":{"include_usage":false}}',
    '{"model":"m","stream":true,"stream_options":{"include_usage":true},"stream_options":{}}',
    '{"model":"m","stream":true,"stream_options":null}',
    '{"model":"m","stream":true,"stream_options":"no"}',
  ])('is asked for in %s', (body) => {
    expect(look('chat', body).sent).toEqual({
      model: 'm',
      stream: true,
      stream_options: { include_usage: true },
    })
  })

  test.each([
    '{"model":"m","stream":"true"}',
    '{"model":"m","stream":1}',
    '[]',
    'x',
    '',
    '{"model":"m"}{}',
    '{}',
  ])('%s is refused', (body) => {
    expect(kindOf(() => look('chat', body))).toBe('invalid')
  })
})

describe('what cannot be counted is refused', () => {
  test.each<[Endpoint, object]>([
    ['responses', { background: true }],
    ['responses', { previous_response_id: 'r' }],
    ['responses', { conversation: 'c' }],
    ['responses', { prompt: { id: 'p' } }],
    ['responses', { input: [{ type: 'item_reference', id: 'i' }] }],
    ['responses', { input: [{ id: 'i' }] }],
    ['responses', { service_tier: 'priority' }],
    ['chat', { service_tier: 'priority' }],
    ['chat', { models: ['a', 'b'] }],
    ['chat', { model: 'x@preset/y' }],
    ['chat', { prediction: { type: 'content', content: 'x' } }],
    ['messages', { speed: 'fast' }],
    ['messages', { service_tier: 'priority' }],
    ['generate', { cachedContent: 'cachedContents/x' }],
    ['generate', { cached_content: 'cachedContents/x' }],
    ['converse', { performanceConfig: { latency: 'optimized' } }],
    ['converse', { serviceTier: { type: 'priority' } }],
  ])('%s %o', (endpoint, more) => {
    expect(kindOf(() => look(endpoint, { model: 'm', ...more }))).toBe('forbidden')
    expect(kindOf(() => look(endpoint, { model: 'm' }))).toBe('passed')
  })

  test.each<[Endpoint, object, number | undefined, number]>([
    ['chat', { max_tokens: 5, max_completion_tokens: 7, n: 3 }, 7, 3],
    ['chat', {}, undefined, 1],
    ['completions', { prompt: ['a', 'b'], n: 2, best_of: 4, max_tokens: 9 }, 9, 8],
    ['completions', { prompt: [1, 2, 3], max_tokens: 9 }, 9, 1],
    ['responses', { max_output_tokens: 11 }, 11, 1],
    ['messages', { max_tokens: 10, context_management: { edits: [{ type: 'compact_20260112' }] } }, 10, 2],
    ['messages', { max_tokens: 10, thinking: { type: 'enabled', budget_tokens: 100 } }, 110, 1],
    ['generate', { generationConfig: { maxOutputTokens: 4, candidateCount: 2 } }, 4, 2],
    ['generate', { generation_config: { max_output_tokens: 4, candidate_count: 2 } }, 4, 2],
    ['converse', { inferenceConfig: { maxTokens: 6 } }, 6, 1],
    ['invoke', { textGenerationConfig: { maxTokenCount: 8 } }, 8, 1],
    ['embeddings', { input: 'x' }, 0, 1],
  ])('%s %o asks for %s tokens, %d times', (endpoint, more, output, answers) => {
    expect(look(endpoint, { model: 'm', ...more })).toMatchObject({ output, answers })
  })

  test('a model whose name is no name is refused', () => {
    for (const model of ['', 'x'.repeat(301), 'a\u0000', 'a\nb', 7, {}])
      expect(kindOf(() => look('messages', { model }))).toBe('invalid')
    expect(look('messages', { model: 'anthropic/claude-x:beta' }).model).toBe('anthropic/claude-x:beta')
  })

  test('numbers in odd shapes are refused', () => {
    for (const max_tokens of ['100', -1, {}, [], 1e300])
      expect(kindOf(() => look('chat', { model: 'm', max_tokens }))).toBe('invalid')
    expect(
      kindOf(() => look('generate', { generationConfig: { maxOutputTokens: 1 }, generation_config: {} })),
    ).toBe('invalid')
  })
})

const client = { type: 'function', name: 'f', parameters: {} }

describe('tools of the provider', () => {
  test.each<[Endpoint, unknown[], unknown[], (typeof hostedTools)[number]]>([
    [
      'messages',
      [
        { name: 'f', input_schema: {} },
        { type: 'web_search_20250305', name: 'web_search' },
      ],
      [{ name: 'f', input_schema: {} }],
      'web_search',
    ],
    [
      'messages',
      [
        { type: 'bash_20250124', name: 'bash' },
        { type: 'code_execution_20250825', name: 'c' },
      ],
      [{ type: 'bash_20250124', name: 'bash' }],
      'code_execution',
    ],
    ['responses', [client, { type: 'web_search', external_web_access: true }], [client], 'web_search'],
    ['responses', [client, { type: 'mcp', server_url: 'http://x' }], [client], 'mcp'],
    [
      'responses',
      [client, { type: 'shell', environment: { type: 'container_auto' } }],
      [client],
      'code_execution',
    ],
    ['responses', [client, { type: 'file_search' }], [client], 'file_search'],
    [
      'generate',
      [{ functionDeclarations: [] }, { googleSearch: {} }],
      [{ functionDeclarations: [] }],
      'web_search',
    ],
    [
      'generate',
      [{ function_declarations: [], google_search: {} }],
      [{ function_declarations: [] }],
      'web_search',
    ],
    [
      'generate',
      [{ functionDeclarations: [] }, { urlContext: {} }],
      [{ functionDeclarations: [] }],
      'web_fetch',
    ],
  ])('%s %o are taken out, unless they are allowed', (endpoint, tools, left, kind) => {
    const body = { model: 'm', tools }
    expect(look(endpoint, body)).toMatchObject({ sent: { tools: left } })
    expect(look(endpoint, body).removed).toHaveLength(1)
    expect(look(endpoint, body, [kind])).toMatchObject({ sent: { tools }, hosted: 1, removed: [] })
  })

  test('a namespace is looked into, and a choice of what is gone goes too', () => {
    const tools = [{ type: 'namespace', name: 'n', tools: [client, { type: 'mcp' }] }]
    expect(look('responses', { model: 'm', tools }).sent.tools).toEqual([{ ...tools[0], tools: [client] }])
    const only = {
      model: 'm',
      tools: [{ type: 'web_search' }],
      tool_choice: 'required',
      parallel_tool_calls: true,
    }
    expect(look('responses', only).sent).toEqual({ model: 'm' })
    const chosen = {
      tools: [{ name: 'f' }, { type: 'web_search_20250305', name: 'w' }],
      tool_choice: { type: 'tool', name: 'w' },
    }
    expect(look('messages', chosen).sent).toEqual({ tools: [{ name: 'f' }] })
  })

  test.each<[Endpoint, object]>([
    ['messages', { tools: [{ type: 'new_thing_20300101' }] }],
    ['responses', { model: 'm', tools: [{ type: 'new_thing' }] }],
    ['chat', { model: 'm', tools: [{ type: 'new_thing' }] }],
    ['chat', { model: 'm', tools: [{ function: {} }] }],
    ['generate', { tools: [{ newThing: {} }] }],
    ['generate', { tools: { newThing: {} } }],
    ['converse', { toolConfig: { tools: [{ newThing: {} }] } }],
  ])('%s %o is not known, and refused', (endpoint, body) => {
    expect(kindOf(() => look(endpoint, body, hostedTools))).toBe('forbidden')
  })
})

describe('what the provider would fetch', () => {
  const data = `data:image/png;base64,${'A'.repeat(400)}`
  test.each<[Endpoint, object, (typeof hostedTools)[number]]>([
    ['messages', { mcp_servers: [{ url: 'http://x' }] }, 'mcp'],
    ['messages', { container: 'c' }, 'code_execution'],
    [
      'messages',
      {
        messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url: 'http://x' } }] }],
      },
      'urls',
    ],
    [
      'messages',
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'tool_result', content: [{ type: 'image', source: { type: 'url', url: 'http://x' } }] },
            ],
          },
        ],
      },
      'urls',
    ],
    [
      'messages',
      {
        messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'file', file_id: 'f' } }] }],
      },
      'files',
    ],
    [
      'messages',
      { messages: [{ role: 'user', content: [{ type: 'container_upload', file_id: 'f' }] }] },
      'files',
    ],
    [
      'chat',
      {
        model: 'm',
        messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'HTTP://x' } }] }],
      },
      'urls',
    ],
    [
      'chat',
      { model: 'm', messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'f' } }] }] },
      'files',
    ],
    [
      'chat',
      {
        model: 'm',
        messages: [{ role: 'user', content: [{ type: 'file', file: { file_data: 'https://x' } }] }],
      },
      'urls',
    ],
    ['chat', { model: 'm', web_search_options: {} }, 'web_search'],
    ['chat', { model: 'm:online' }, 'web_search'],
    ['chat', { model: 'm', plugins: [{ id: 'web' }] }, 'web_search'],
    ['chat', { model: 'm', plugins: { id: 'web' } }, 'web_search'],
    [
      'responses',
      { model: 'm', input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'https://x' }] }] },
      'urls',
    ],
    [
      'responses',
      { model: 'm', input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'https://x' }] }] },
      'urls',
    ],
    [
      'responses',
      {
        model: 'm',
        input: [{ type: 'function_call_output', output: [{ type: 'input_image', file_id: 'f' }] }],
      },
      'files',
    ],
    [
      'responses',
      { model: 'm', input: [{ type: 'computer_call_output', output: { image_url: 'https://x' } }] },
      'urls',
    ],
    ['generate', { contents: [{ parts: [{ fileData: { fileUri: 'https://x' } }] }] }, 'urls'],
    ['generate', { contents: { parts: { file_data: { file_uri: 'https://x' } } } }, 'urls'],
    [
      'converse',
      { messages: [{ content: [{ document: { source: { s3Location: { uri: 's3://x' } } } }] }] },
      'files',
    ],
    [
      'invoke',
      { messages: [{ content: [{ image: { source: { s3Location: { uri: 's3://x' } } } }] }] },
      'files',
    ],
  ])('%s %o', (endpoint, body, kind) => {
    expect(kindOf(() => look(endpoint, body))).toBe('forbidden')
    expect(kindOf(() => look(endpoint, body, [kind]))).toBe('passed')
  })

  test('what is in the request itself is counted as what it is', () => {
    const content = [{ type: 'input_image', image_url: data }]
    const found = look('responses', { model: 'm', input: [{ role: 'user', content }] })
    expect(found).toMatchObject({ images: 1, files: 0 })
    expect(found.text_bytes).toBeLessThan(200)
    const pdf = { type: 'document', source: { type: 'base64', data: 'A'.repeat(4000) } }
    expect(look('messages', { messages: [{ content: [pdf] }] })).toMatchObject({ files: 1 })
  })

  test('the arguments of a call are data, whatever they look like', () => {
    const input = {
      source: { type: 'url', url: 'http://x' },
      content: [{ type: 'image', source: { type: 'url' } }],
    }
    expect(kindOf(() => look('messages', { messages: [{ content: [{ type: 'tool_use', input }] }] }))).toBe(
      'passed',
    )
    const args = { fileData: { fileUri: 'x' } }
    expect(kindOf(() => look('generate', { contents: [{ parts: [{ functionCall: { args } }] }] }))).toBe(
      'passed',
    )
  })
})

test('what is deep or of many values is refused before it is parsed', () => {
  expect(() => look('chat', '['.repeat(100_000))).toThrow('levels deep')
  expect(() => look('chat', `{"a":[${'1,'.repeat(2_100_000)}1]}`)).toThrow('values')
  expect(look('chat', { model: 'm', text: '[[[[{{{{,,,"\\"[['.repeat(500) }).sent.model).toBe('m')
})

test('long bodies are inspected in a thread, with the same result', async () => {
  const inspections = createInspections()
  try {
    const body = {
      model: 'm',
      stream: true,
      messages: [{ role: 'user', content: 'hello "there" \u2028 '.repeat(20_000) }],
    }
    const bytes = Buffer.from(JSON.stringify(body))
    const how = { endpoint: 'chat', allowed: [], hash: true } as const
    const here = inspect(bytes, how)
    const there = await inspections.inspect('p', [bytes.subarray(0, 100), bytes.subarray(100)], how)
    expect(there).toEqual(here)
    const bad = Buffer.from(`{"model":"m","background":true,"x":"${'y'.repeat(20_000)}"}`)
    await expect(inspections.inspect('p', [bad], { ...how, endpoint: 'responses' })).rejects.toMatchObject({
      kind: 'forbidden',
    })
    const usage = { usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } }
    expect(await inspections.usage('p', [Buffer.from(JSON.stringify(usage))])).toMatchObject([
      { input: 1, output: 2 },
    ])
  } finally {
    inspections.close()
  }
})
