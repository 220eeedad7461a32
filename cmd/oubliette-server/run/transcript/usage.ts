// The tokens and the cost of one turn. The model proxy reports each request; an agent that uses its own key reports the
// tokens of the turn and its total cost.
type Fields = Record<string, unknown>

const object = (value: unknown): Fields =>
  typeof value === 'object' && value !== null ? (value as Fields) : {}
const count = (...values: unknown[]): number => {
  const value = values.find((one) => typeof one === 'number' && Number.isFinite(one) && one >= 0)
  return typeof value === 'number' ? value : 0
}

export type Usage = { input_tokens: number; output_tokens: number; cost_usd: number }

const read = (given: unknown): Usage => {
  const usage = object(given)
  return {
    input_tokens: count(usage.input_tokens, usage.inputTokens),
    output_tokens: count(usage.output_tokens, usage.outputTokens),
    cost_usd: count(usage.cost_usd, object(usage.cost).amount),
  }
}

export function createTally() {
  let proxied: Usage | undefined
  let told: Usage = { input_tokens: 0, output_tokens: 0, cost_usd: 0 }
  /** The total cost that the agent reported before this turn. */
  let cost_before = 0
  let cost_so_far = 0
  return {
    begin() {
      proxied = undefined
      told = { input_tokens: 0, output_tokens: 0, cost_usd: 0 }
      cost_before = cost_so_far
    },
    /** An event of type `usage`, or the `usage` of a completion. */
    add(usage: Fields) {
      const one = read(usage)
      if (usage.source === 'gateway') {
        proxied ??= { input_tokens: 0, output_tokens: 0, cost_usd: 0 }
        proxied.input_tokens += one.input_tokens
        proxied.output_tokens += one.output_tokens
        proxied.cost_usd += one.cost_usd
        return
      }
      cost_so_far = Math.max(cost_so_far, one.cost_usd)
      told = {
        input_tokens: Math.max(told.input_tokens, one.input_tokens),
        output_tokens: Math.max(told.output_tokens, one.output_tokens),
        cost_usd: Math.max(0, cost_so_far - cost_before),
      }
    },
    total: (): Usage => proxied ?? told,
  }
}

const tokens = (many: number): string => {
  if (many < 1000) return String(many)
  return many < 999_500 ? `${(many / 1000).toFixed(many < 9_950 ? 1 : 0)}k` : `${(many / 1e6).toFixed(1)}M`
}

/** Such as `12k tokens in, 340 out · $0.0423`; empty if nothing was reported. */
export function usageText({ input_tokens, output_tokens, cost_usd }: Usage): string {
  const parts = [
    ...(input_tokens + output_tokens > 0
      ? [`${tokens(input_tokens)} tokens in, ${tokens(output_tokens)} out`]
      : []),
    ...(cost_usd > 0 ? [`$${cost_usd.toFixed(cost_usd < 1 ? 4 : 2)}`] : []),
  ]
  return parts.join(' · ')
}
