import { describe, expect, it } from 'vitest'
import { callMetaKey, filterEvents } from './event-stream.ts'

type Event = { id?: string; event?: string; data: unknown }

async function read(
  chunks: string[],
  options: Partial<Parameters<typeof filterEvents>[1]> = {},
  fails = false,
): Promise<Event[]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(Buffer.from(chunk))
      if (fails) controller.error(new Error('socket hang up'))
      else controller.close()
    },
  })
  const filtered = filterEvents(body, { max_result_bytes: 1_000, request_id: 4, ...options })
  const text = await new Response(filtered).text()
  return text
    .split('\n\n')
    .filter(Boolean)
    .map((block) => {
      const fields = block.split('\n').map((line) => line.split(/: (.*)/s) as [string, string])
      const data = fields.filter(([name]) => name === 'data').map(([, value]) => value)
      const other = Object.fromEntries(
        fields.filter(([name]) => name !== 'data').map(([name, value]) => [name, value]),
      )
      return { ...other, data: data.join('') ? JSON.parse(data.join('\n')) : '' }
    })
}
const answer = { jsonrpc: '2.0', id: 4, result: { content: [] } }
const data = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`

describe('events', () => {
  it('pass, in pieces or together', async () => {
    const text = `event: message\nid: a1\n${data({ jsonrpc: '2.0', method: 'notifications/message' })}${data(answer)}`
    const expected = [
      { id: 'a1', event: 'message', data: { jsonrpc: '2.0', method: 'notifications/message' } },
      { data: answer },
    ]
    expect(await read([text])).toEqual(expected)
    expect(await read(text.split(''))).toEqual(expected)
  })

  it('that ask are marked with the call on whose stream they are', async () => {
    const question = {
      jsonrpc: '2.0',
      id: 'q',
      method: 'elicitation/create',
      params: { message: 'x', _meta: { a: 1 } },
    }
    const [first] = await read([data(question), data(answer)])
    expect(first?.data).toEqual({ ...question, params: { message: 'x', _meta: { a: 1, [callMetaKey]: 4 } } })
  })

  it('that are too long, or expensive to parse, become an error for the call', async () => {
    const long = { ...answer, result: { text: 'x'.repeat(200_000) } }
    expect(await read([data(long)])).toMatchObject([
      { data: { id: 4, error: { message: expect.stringContaining('the limit is 1000') } } },
    ])
    const endless = await read(Array(300).fill(`data: ${'x'.repeat(1000)}\n`))
    expect(endless).toMatchObject([{ data: { id: 4, error: { code: -32099 } } }])
    const many = `data: {"jsonrpc":"2.0","id":4,"result":[${'[],'.repeat(50_000)}[]]}\n\n`
    expect(await read([many], { max_result_bytes: 1_000_000 })).toMatchObject([
      { data: { id: 4, error: { code: -32099 } } },
    ])
  })

  it('that never come become an error for the call, unless the stream can be resumed or has answered', async () => {
    expect(await read([': hello\n\n'])).toMatchObject([{ data: { id: 4, error: { code: -32098 } } }])
    expect(await read([': hello\n\n'], {}, true)).toMatchObject([
      { data: { id: 4, error: { message: 'socket hang up' } } },
    ])
    expect(await read([data(answer)])).toEqual([{ data: answer }])
    expect(await read(['id: 7\ndata:\n\n'])).toEqual([{ id: '7', data: '' }])
    expect(await read([': hello\n\n'], { request_id: undefined })).toEqual([])
  })

  it('that ask to come back at once are slowed down', async () => {
    const body = new Response('retry: 0\ndata: {}\n\n').body as ReadableStream<Uint8Array>
    expect(await new Response(filterEvents(body, { max_result_bytes: 100 })).text()).toContain('retry: 1000')
  })
})
