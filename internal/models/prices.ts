// What tokens cost, by the prices of the config. Pure.
import type { Price } from '../config-models.ts'
import type { Tokens } from './usage.ts'

const million = 1_000_000

/** The exact name, else the longest pattern that ends in `*` and fits. */
export function priceOf(prices: Record<string, Price>, model: string): Price | undefined {
  if (Object.hasOwn(prices, model)) return prices[model]
  const fitting = Object.keys(prices)
    .filter((pattern) => pattern.endsWith('*') && model.startsWith(pattern.slice(0, -1)))
    .sort((a, b) => b.length - a.length)
  return fitting[0] === undefined ? undefined : prices[fitting[0]]
}

/** Undefined when nobody knows: neither the provider said it nor has the config a price. */
export function costOf(price: Price | undefined, tokens: Tokens): number | undefined {
  if (tokens.cost_usd !== undefined) return tokens.cost_usd
  if (!price) return undefined
  const { input, output, cache_read = input, cache_write = input } = price
  return (
    (tokens.input * input +
      tokens.cache_read * cache_read +
      tokens.cache_write * cache_write +
      tokens.output * output) /
    million
  )
}
