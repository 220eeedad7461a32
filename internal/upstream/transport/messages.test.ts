import { describe, expect, it } from 'vitest'
import { createMessageBudget } from './message-budget.ts'
import { idOf, parseMessages } from './messages.ts'

const both = (text: string) => idOf(text.slice(0, 256), text.slice(-256))

it.each([
  ['first', '{"jsonrpc":"2.0","id":5,"result":{}}', 5],
  ['last', '{"result":{},"jsonrpc":"2.0","id":"a\\"b"}', 'a"b'],
  ['last but the version', '{"method":"x","params":{},"id":9,"jsonrpc":"2.0"}', 9],
  ['with spaces', ' { "jsonrpc" : "2.0" , "id" : 12 , "result" : 1 } ', 12],
  ['inside of the result only', '{"jsonrpc":"2.0","result":{"a":1,"id":5}}', undefined],
  ['missing', '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}', undefined],
])('an id that is %s', (_, text, id) => expect(both(text)).toBe(id))

describe('what is read', () => {
  it.each([
    'npm warn',
    '',
    '"text"',
    '42',
    '{"half":',
    '[]',
    '{"jsonrpc":"1.0"}',
    '[{"jsonrpc":"2.0"}, 1]',
    'null',
  ])('is garbage: %j', (text) => expect(parseMessages(text)).toEqual({ kind: 'garbage' }))

  it('is a message, or several', () => {
    const one = { jsonrpc: '2.0', id: 1, result: { a: null } }
    expect(parseMessages(JSON.stringify(one))).toEqual({ kind: 'messages', messages: [one] })
    expect(parseMessages(JSON.stringify([one, one]))).toEqual({ kind: 'messages', messages: [one, one] })
  })

  it('is refused before it is parsed if that is expensive, with the request it answers', () => {
    const many = `{"jsonrpc":"2.0","id":3,"result":[${'[],'.repeat(100_000)}[]]}`
    expect(parseMessages(many)).toEqual({
      kind: 'refused',
      id: 3,
      reason: 'the result has more than 40000 values',
    })
  })
})

describe('the budget of messages that were not asked for', () => {
  it('allows a burst, then a rate, and recovers', () => {
    let now = 0
    const budget = createMessageBudget(() => now)
    const waits = Array.from({ length: 4_000 }, () => budget.spend(0))
    expect(waits.slice(0, 2_000).every((ms) => ms === 0)).toBe(true)
    expect(waits.at(-1)).toBeGreaterThan(3_000)
    now += 60_000
    expect(budget.spend(0)).toBe(0)
  })

  it('counts long messages for more', () => {
    const budget = createMessageBudget(() => 0)
    const megabyte = 1024 * 1024
    const within = Array.from({ length: 30 }, () => budget.spend(megabyte)).filter((ms) => ms === 0)
    expect(within.length).toBeLessThan(20)
  })
})
