// What `/metrics` shows besides requests and calls: events, model use, and the figures that other rooms keep.
import type { OpenStreams } from '../../../internal/auth/open-streams.ts'
import type { Committed } from '../../../internal/manager/events/log-writer.ts'
import type { Managers } from '../../../internal/manager/managers.ts'
import type { Metrics, Reading } from '../../../internal/metrics/metrics.ts'
import { isProvider } from '../../../internal/models/providers/providers.ts'
import { sessionStatuses } from '../../../internal/protocol/session-status.ts'
import type { Store } from '../../../internal/store/open.ts'

const count = (value: unknown): number => (typeof value === 'number' && value > 0 ? value : 0)

/** Only the model proxy of the server writes usage with a source. */
export const countEvents =
  (metrics: Metrics) =>
  ({ events }: Committed): void => {
    metrics.events(events.length)
    for (const { type, data } of events) {
      if (type !== 'usage' || data.source !== 'gateway') continue
      const provider = String(data.provider)
      metrics.model({
        provider: isProvider(provider) ? provider : 'unknown',
        input_tokens: count(data.input_tokens),
        output_tokens: count(data.output_tokens),
        cost_usd: count(data.cost_usd),
      })
    }
  }

const entries = (values: Record<string, number>): Reading => new Map(Object.entries(values))

function known<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('the database does not answer')
  return value
}

export function addGauges(
  { gauge }: Pick<Metrics, 'gauge'>,
  { managers, store, streams }: { managers: Managers; store: Store; streams: OpenStreams },
): void {
  const { figures, relay } = managers.diagnostics
  gauge(
    'oubliette_sessions',
    'Sessions by status.',
    async () => {
      const counted = known(await figures.sessions())
      return new Map(sessionStatuses.map((status) => [status, counted[status] ?? 0]))
    },
    'status',
  )
  gauge(
    'oubliette_schedules',
    'Enabled schedules, those that are due and not claimed, and their active runs.',
    async () => entries(known(await figures.schedules())),
    'state',
  )
  gauge('oubliette_relay', 'Sockets and connections of containers.', () => entries(relay()), 'kind')
  gauge('oubliette_streams_open', 'Open event streams of callers.', () => streams.count())
  gauge(
    'oubliette_queue_depth',
    'What waits: commands for supervisors, events and audit rows to be committed.',
    async () => {
      const commands = await figures.commands()
      return entries({
        events: managers.events.waiting(),
        audit: managers.audit.waiting(),
        ...(commands === undefined ? {} : { commands }),
      })
    },
    'queue',
  )
  gauge(
    'oubliette_database_connections',
    'Connections of the database pool; waiting are statements that wait for one.',
    () => entries(store.pool()),
    'state',
  )
}
