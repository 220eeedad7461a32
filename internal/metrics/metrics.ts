// What the server counts about itself, for Prometheus. The only user of prom-client. Rooms report to it through the functions
// that they are given at the start; figures that someone else keeps are read when they are scraped. The values of labels come
// from closed sets (names of tools, kinds of errors, statuses), never from a caller: each new one would be kept for ever.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'

export type CallMeasured = { tool: string; action: string; outcome: string; seconds: number }
export type RequestMeasured = { route: string; method: string; status: number; seconds: number }
export type ModelUse = { provider: string; input_tokens: number; output_tokens: number; cost_usd: number }

/** By label values, or one number. */
export type Reading = number | ReadonlyMap<string, number>

const callSeconds = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
/** Scrapes within this time get the same figures, so that many of them cost the database nothing. */
const freshMs = 1_000

const knownMethods = new Set(['GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'OPTIONS', 'PATCH'])

/** Keeps the child of each combination of labels: finding it again by its labels costs more than counting. */
function createChildren<Child>(make: (...labels: string[]) => Child) {
  const known = new Map<string, Child>()
  return (...labels: string[]): Child => {
    const key = labels.join(' ')
    const child = known.get(key) ?? make(...labels)
    known.set(key, child)
    return child
  }
}

export function createMetrics() {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })

  const requests = new Counter({
    name: 'oubliette_http_requests_total',
    help: 'HTTP requests by route, method and status; a stream counts when it is opened.',
    labelNames: ['route', 'method', 'status'],
    registers,
  })
  const requestDurations = new Histogram({
    name: 'oubliette_http_request_duration_seconds',
    help: 'Time until the response of an HTTP request began.',
    labelNames: ['route'],
    buckets: callSeconds,
    registers,
  })
  const calls = new Counter({
    name: 'oubliette_tool_calls_total',
    help: 'Calls by tool, action and outcome (ok, or the kind of the error).',
    labelNames: ['tool', 'action', 'outcome'],
    registers,
  })
  const callDurations = new Histogram({
    name: 'oubliette_tool_call_duration_seconds',
    help: 'Duration of calls by tool and action.',
    labelNames: ['tool', 'action'],
    buckets: callSeconds,
    registers,
  })
  const events = new Counter({
    name: 'oubliette_events_total',
    help: 'Events that were committed to the event log.',
    registers,
  })
  const tokens = new Counter({
    name: 'oubliette_model_tokens_total',
    help: 'Tokens of requests through the model proxy.',
    labelNames: ['provider', 'direction'],
    registers,
  })
  const cost = new Counter({
    name: 'oubliette_model_cost_usd_total',
    help: 'Cost of requests through the model proxy, in US dollars.',
    labelNames: ['provider'],
    registers,
  })

  const requestOf = createChildren((route, method, status) => requests.labels(route, method, status))
  const requestDurationOf = createChildren((route) => requestDurations.labels(route))
  const callOf = createChildren((tool, action, outcome) => calls.labels(tool, action, outcome))
  const callDurationOf = createChildren((tool, action) => callDurations.labels(tool, action))

  /** Read when it is scraped. A reading that fails leaves the figure out instead of failing the scrape. */
  function gauge(name: string, help: string, read: () => Reading | Promise<Reading>, label?: string): void {
    new Gauge({
      name,
      help,
      labelNames: label ? [label] : [],
      registers,
      async collect() {
        this.reset()
        const reading = await Promise.resolve()
          .then(read)
          .catch(() => undefined)
        if (reading === undefined) {
          if (!label) this.remove()
        } else if (typeof reading === 'number') this.set(reading)
        else for (const [value, number] of reading) this.set({ [label!]: value }, number)
      },
    })
  }

  let rendered: { text: Promise<string>; until: number } | undefined

  return {
    content_type: registry.contentType,
    request({ route, method, status, seconds }: RequestMeasured): void {
      requestOf(route, knownMethods.has(method) ? method : 'other', String(status)).inc()
      requestDurationOf(route).observe(seconds)
    },
    call({ tool, action, outcome, seconds }: CallMeasured): void {
      callOf(tool, action, outcome).inc()
      callDurationOf(tool, action).observe(seconds)
    },
    events: (count: number) => events.inc(count),
    model({ provider, input_tokens, output_tokens, cost_usd }: ModelUse): void {
      tokens.labels(provider, 'input').inc(input_tokens)
      tokens.labels(provider, 'output').inc(output_tokens)
      cost.labels(provider).inc(cost_usd)
    },
    gauge,
    /** The text format of Prometheus. Concurrent scrapes share one reading. */
    render(): Promise<string> {
      if (rendered && rendered.until > performance.now()) return rendered.text
      const text = registry.metrics()
      rendered = { text, until: performance.now() + freshMs }
      text.catch(() => {
        rendered = undefined
      })
      return text
    },
  }
}
export type Metrics = ReturnType<typeof createMetrics>
