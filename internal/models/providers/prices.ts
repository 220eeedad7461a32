// Computes the cost of tokens from the prices of the config. Pure.
import type { Estimates, Price } from '../../config/models.ts'
import type { Inspection } from '../inspect/inspect.ts'
import type { Tokens } from '../usage/usage.ts'

const million = 1_000_000

export type Prices = {
  prices: Record<string, Price>
  unpriced_models: 'default' | 'refuse'
  default_price: Price
  estimates: Estimates
}

/** The exact name, else the longest pattern that ends in `*` and fits. */
export function priceOf(prices: Record<string, Price>, model: string): Price | undefined {
  if (Object.hasOwn(prices, model)) return prices[model]
  const fitting = Object.keys(prices)
    .filter((pattern) => pattern.endsWith('*') && model.startsWith(pattern.slice(0, -1)))
    .sort((a, b) => b.length - a.length)
  return fitting[0] === undefined ? undefined : prices[fitting[0]]
}

const factorOf = ({ long_context }: Price, input_tokens: number): number =>
  long_context && input_tokens > long_context.above_tokens ? long_context.factor : 1

/** A cost that the provider reports takes precedence. */
export function costOf(price: Price, tokens: Tokens): number {
  if (tokens.cost_usd !== undefined) return tokens.cost_usd
  const { input, output, cache_read = input, cache_write = input, cache_write_1h = 2 * input } = price
  const long = Math.min(tokens.cache_write_1h ?? 0, tokens.cache_write)
  const all = tokens.input + tokens.cache_read + tokens.cache_write
  return (
    (factorOf(price, all) *
      (tokens.input * input +
        tokens.cache_read * cache_read +
        (tokens.cache_write - long) * cache_write +
        long * Math.max(cache_write, cache_write_1h) +
        tokens.output * output)) /
    million
  )
}

export type Worst = { input_tokens: number; output_tokens: number; usd: number; output_usd: number }

type Asked = Pick<
  Inspection,
  'text_bytes' | 'images' | 'files' | 'hosted' | 'long_cache' | 'output' | 'answers'
>

/** What the provider adds to the text itself: roles, tool instructions and the like. */
const overheadTokens = 2000

/** An upper bound of the cost: one token per byte of text, at the highest input price. */
export function worstCase(price: Price, estimates: Estimates, asked: Asked): Worst {
  const { input, output, cache_read = input, cache_write = input, cache_write_1h = 2 * input } = price
  const input_tokens =
    overheadTokens +
    asked.text_bytes +
    asked.images * estimates.image_tokens +
    (asked.files + asked.hosted) * estimates.file_tokens
  const each = asked.output ?? price.max_output_tokens ?? estimates.output_tokens
  const output_tokens = each * asked.answers
  const factor = factorOf(price, input_tokens)
  const output_usd = (factor * output_tokens * output) / million
  const dearest = Math.max(input, cache_read, cache_write, asked.long_cache ? cache_write_1h : 0)
  return {
    input_tokens,
    output_tokens,
    output_usd,
    usd: output_usd + (factor * input_tokens * dearest) / million,
  }
}
