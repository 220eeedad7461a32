// Reads token counts from the answers of providers. Each provider has its own fields, and streams repeat growing counts; the
// largest of each is kept. Pure.

export type Tokens = {
  /** Neither read from a cache nor written to one. */
  input: number
  cache_read: number
  cache_write: number
  /** Of those, what is kept for an hour. */
  cache_write_1h?: number
  output: number
  /** Reported by the provider, in US dollars; few do. */
  cost_usd?: number
}
export type UsageReading = Tokens & {
  model?: string
  /** Reported before the answer was complete: its output is not final. */
  partial?: boolean
}

type Json = Record<string, unknown>
const object = (value: unknown): Json | undefined =>
  typeof value === 'object' && value !== null ? (value as Json) : undefined
const count = (value: unknown): number =>
  typeof value === 'number' && value > 0 && Number.isFinite(value) ? value : 0

/** Anthropic and Bedrock's `converse` count cached input apart from the rest. */
function apart(usage: Json): Tokens {
  const { iterations } = usage
  if (Array.isArray(iterations)) {
    // A request with a compaction reports each step; the counts at the top level are those of the last.
    const steps = iterations.map((it) => once(object(it) ?? {}))
    const all = (of: (step: Tokens) => number) => steps.reduce((sum, step) => sum + of(step), 0)
    return larger(once(usage), {
      input: all((step) => step.input),
      cache_read: all((step) => step.cache_read),
      cache_write: all((step) => step.cache_write),
      cache_write_1h: all((step) => step.cache_write_1h ?? 0),
      output: all((step) => step.output),
    })
  }
  return once(usage)
}

function once(usage: Json): Tokens {
  const long = count(object(usage.cache_creation)?.ephemeral_1h_input_tokens)
  return {
    input: count(usage.input_tokens ?? usage.inputTokens),
    cache_read: count(usage.cache_read_input_tokens ?? usage.cacheReadInputTokens),
    cache_write: count(usage.cache_creation_input_tokens ?? usage.cacheWriteInputTokens),
    output: count(usage.output_tokens ?? usage.outputTokens),
    ...(long > 0 ? { cache_write_1h: long } : {}),
  }
}

/** OpenAI counts cached input as part of the whole: chat in its older words, responses in its newer. */
function within(usage: Json): Tokens {
  const details = object(usage.prompt_tokens_details ?? usage.input_tokens_details)
  const cache_read = count(details?.cached_tokens)
  const cost_usd = count(usage.cost)
  return {
    input: Math.max(0, count(usage.prompt_tokens ?? usage.input_tokens) - cache_read),
    cache_read,
    cache_write: 0,
    output: count(usage.completion_tokens ?? usage.output_tokens),
    ...(cost_usd > 0 ? { cost_usd } : {}),
  }
}

function gemini(usage: Json): Tokens {
  const cache_read = count(usage.cachedContentTokenCount)
  return {
    input: Math.max(0, count(usage.promptTokenCount) + count(usage.toolUsePromptTokenCount) - cache_read),
    cache_read,
    cache_write: 0,
    output: count(usage.candidatesTokenCount) + count(usage.thoughtsTokenCount),
  }
}

/** `amazon-bedrock-invocationMetrics`, at the end of a stream of any model. */
const bedrock = (metrics: Json): Tokens => ({
  input: count(metrics.inputTokenCount),
  cache_read: count(metrics.cacheReadInputTokenCount),
  cache_write: count(metrics.cacheWriteInputTokenCount),
  output: count(metrics.outputTokenCount),
})

function tokensIn(answer: Json): Tokens | undefined {
  const metadata = object(answer.usageMetadata)
  if (metadata) return gemini(metadata)
  const metrics = object(answer['amazon-bedrock-invocationMetrics'])
  if (metrics) return bedrock(metrics)
  const usage = object(answer.usage)
  if (!usage) return undefined
  const split =
    'cache_read_input_tokens' in usage || 'cacheReadInputTokens' in usage || 'inputTokens' in usage
  const older = 'prompt_tokens' in usage || 'input_tokens_details' in usage || 'total_tokens' in usage
  return older && !split ? within(usage) : apart(usage)
}

/** One answer, or one event of a stream. */
export function readUsage(value: unknown): UsageReading | undefined {
  const answer = object(value)
  if (!answer) return undefined
  // A stream's events wrap what an answer has at its top.
  const places = [answer, object(answer.message), object(answer.response)]
  const tokens = places.map((place) => place && tokensIn(place)).find((found) => found !== undefined)
  if (!tokens) return undefined
  const model = places
    .map((place) => place?.model ?? place?.modelVersion)
    .find((it) => typeof it === 'string')
  return {
    ...tokens,
    ...(typeof model === 'string' ? { model } : {}),
    ...(answer.type === 'message_start' ? { partial: true } : {}),
  }
}

/** Bedrock's `invoke` reports usage in headers, for models whose answers do not include it. */
export function readUsageHeaders(
  headers: Record<string, string | string[] | undefined>,
): UsageReading | undefined {
  const input = headers['x-amzn-bedrock-input-token-count']
  const output = headers['x-amzn-bedrock-output-token-count']
  if (input === undefined || output === undefined) return undefined
  return {
    input: count(Number(input)),
    cache_read: count(Number(headers['x-amzn-bedrock-cache-read-input-token-count'] ?? 0)),
    cache_write: count(Number(headers['x-amzn-bedrock-cache-write-input-token-count'] ?? 0)),
    output: count(Number(output)),
  }
}

export function larger(a: UsageReading | undefined, b: UsageReading): UsageReading {
  if (!a) return b
  const model = a.model ?? b.model
  const cost_usd = Math.max(a.cost_usd ?? 0, b.cost_usd ?? 0)
  const cache_write_1h = Math.max(a.cache_write_1h ?? 0, b.cache_write_1h ?? 0)
  return {
    input: Math.max(a.input, b.input),
    cache_read: Math.max(a.cache_read, b.cache_read),
    cache_write: Math.max(a.cache_write, b.cache_write),
    output: Math.max(a.output, b.output),
    ...(model === undefined ? {} : { model }),
    ...(cost_usd > 0 ? { cost_usd } : {}),
    ...(cache_write_1h > 0 ? { cache_write_1h } : {}),
    ...(a.partial && b.partial ? { partial: true } : {}),
  }
}
