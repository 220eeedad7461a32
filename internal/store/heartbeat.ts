// Checks on a separate connection whether the database answers.
import pg from 'pg'
import { Fault } from '../fault.ts'
import type { Deadlines } from '../lib/deadlines.ts'
import { createHeartbeat } from '../lib/heartbeat.ts'
import type { Log } from '../log.ts'
import { translate } from './errors.ts'

const patience_ms = 5_000

export const noAnswer = (cause?: unknown): Fault =>
  new Fault('unavailable', 'the database does not answer', {
    hint: 'check whether PostgreSQL is stopped or overloaded; the server continues when the database answers',
    cause,
    retry_after_seconds: 5,
  })

export function createDatabaseHeartbeat(options: {
  config: pg.ClientConfig
  deadlines: Deadlines
  log: Log
}) {
  const closing = new AbortController()
  let client: pg.Client | undefined

  async function dial(): Promise<pg.Client> {
    const dialled = new pg.Client({
      ...options.config,
      application_name: 'oubliette-heartbeat',
      // Covered by the deadline of the heartbeat.
      connectionTimeoutMillis: 0,
    })
    // The next heartbeat detects a broken connection.
    dialled.on('error', () => undefined)
    dialled.on('end', () => {
      if (client === dialled) client = undefined
    })
    client = dialled
    await dialled.connect()
    return dialled
  }

  function discard(): void {
    const old = client
    client = undefined
    // A graceful close would wait for the database.
    old?.connection.stream.destroy()
  }

  const heartbeat = createHeartbeat({
    what: 'the database',
    ask: async () => {
      try {
        await (client ?? (await dial())).query('select 1')
      } catch (error) {
        throw translate(error)
      }
    },
    discard,
    noAnswer: () => noAnswer(),
    timeout_ms: patience_ms,
    deadlines: options.deadlines,
    log: options.log,
  })
  void heartbeat.run(closing.signal)

  return {
    heard: heartbeat.answered,
    check: heartbeat.check,
    hung: heartbeat.hung,
    close() {
      closing.abort()
      discard()
    },
  }
}
