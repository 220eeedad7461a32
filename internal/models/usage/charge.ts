// Computes the charge of a completed request: the usage that the provider reported, or the worst case if it did not. Pure.
import type { Price } from '../../config/models.ts'
import { costOf, type Worst } from '../providers/prices.ts'
import type { ProviderName } from '../providers/providers.ts'
import type { Tokens, UsageReading } from './usage.ts'

export type ModelUsage = {
  provider: ProviderName
  model: string
  input_tokens: number
  output_tokens: number
  cache_read_tokens: number
  cache_write_tokens: number
  cost_usd: number
  /** The provider did not report the usage completely: the cost is the worst case. */
  estimated?: true
}

export type Outcome = {
  /** Something of it can have reached the provider. */
  sent: boolean
  /** Undefined: there was no answer. */
  status: number | undefined
  usage: UsageReading | undefined
  whole: boolean
}

const nothing: Tokens = { input: 0, cache_read: 0, cache_write: 0, output: 0 }

/** Undefined: it costs nothing. Providers do not charge for errors. */
export function chargeOf(
  { sent, status, usage, whole }: Outcome,
  price: Price,
  worst: Worst,
): { tokens: Tokens; cost_usd: number; estimated: boolean } | undefined {
  if (!sent || (status !== undefined && (status < 200 || status >= 300))) return undefined
  if (usage && whole && !usage.partial)
    return { tokens: usage, cost_usd: costOf(price, usage), estimated: false }
  if (!usage) return { tokens: nothing, cost_usd: worst.usd, estimated: true }
  // The input is known; the output at the time of the disconnect is not.
  const output = Math.max(usage.output, worst.output_tokens)
  const { cost_usd: told = 0, ...tokens } = usage
  return { tokens, cost_usd: Math.max(told, costOf(price, { ...tokens, output })), estimated: true }
}

export function usageEvent(
  provider: ProviderName,
  model: string,
  { tokens, cost_usd, estimated }: { tokens: Tokens; cost_usd: number; estimated: boolean },
): ModelUsage {
  return {
    provider,
    model,
    input_tokens: tokens.input + tokens.cache_read + tokens.cache_write,
    output_tokens: tokens.output,
    cache_read_tokens: tokens.cache_read,
    cache_write_tokens: tokens.cache_write,
    cost_usd,
    ...(estimated ? { estimated } : {}),
  }
}
