// The usage that agents report, in one spelling: the fields of the `usage` events of the model proxy, and every other field in
// snake case. Pure.

/** Agents name cached tokens in several ways. */
const names: Record<string, string> = {
  cached_read_tokens: 'cache_read_tokens',
  cached_write_tokens: 'cache_write_tokens',
  cached_input_tokens: 'cache_read_tokens',
  cache_read_input_tokens: 'cache_read_tokens',
  cache_creation_input_tokens: 'cache_write_tokens',
  reasoning_tokens: 'thought_tokens',
  reasoning_output_tokens: 'thought_tokens',
}

const snakeCase = (name: string): string =>
  name.replace(/([a-z0-9])([A-Z])/g, (_, before: string, after: string) => `${before}_${after.toLowerCase()}`)

type Cost = { amount?: unknown; currency?: unknown }
const isUsd = (cost: unknown): cost is Cost & { amount: number } =>
  typeof cost === 'object' &&
  cost !== null &&
  typeof (cost as Cost).amount === 'number' &&
  ((cost as Cost).currency === undefined || (cost as Cost).currency === 'USD')

/** A cost in another currency stays `cost`, with its `amount` and `currency`. */
export function normalizedUsage(given: object): Record<string, unknown> {
  const usage = new Map<string, unknown>()
  const set = (name: string, value: unknown) => usage.has(name) || usage.set(name, value)
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined) continue
    const spelled = snakeCase(name)
    if (spelled === 'cost' && isUsd(value)) set('cost_usd', value.amount)
    else set(Object.hasOwn(names, spelled) ? names[spelled]! : spelled, value)
  }
  return Object.fromEntries(usage)
}
