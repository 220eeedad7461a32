import { expect, test } from 'vitest'
import { normalizedUsage } from './usage.ts'

test('usage of agents has the fields of the model proxy', () => {
  expect(
    normalizedUsage({
      inputTokens: 3,
      outputTokens: 4,
      totalTokens: 7,
      cachedReadTokens: 1,
      cachedWriteTokens: 2,
      thoughtTokens: null,
    }),
  ).toEqual({
    input_tokens: 3,
    output_tokens: 4,
    total_tokens: 7,
    cache_read_tokens: 1,
    cache_write_tokens: 2,
  })
})

test('a cost is in US dollars, or keeps its currency', () => {
  expect(normalizedUsage({ used: 1, size: 2, cost: { amount: 0.5, currency: 'USD' } })).toEqual({
    used: 1,
    size: 2,
    cost_usd: 0.5,
  })
  const euros = { amount: 0.5, currency: 'EUR' }
  expect(normalizedUsage({ cost: euros })).toEqual({ cost: euros })
})

test('what is in that spelling stays, and unknown fields are kept', () => {
  expect(normalizedUsage({ input_tokens: 3, cost_usd: 1, someFutureField: 'x' })).toEqual({
    input_tokens: 3,
    cost_usd: 1,
    some_future_field: 'x',
  })
})
