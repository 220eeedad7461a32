// Deadlines of requests to the engine. Every request of the client library goes through `dial`, so they are enforced there, by
// kind of request, up to the answer or to the start of a stream. Uploads (builds, imports) are limited by their progress instead.
// A heartbeat detects an engine that does not answer; requests then fail at once.
import type Docker from 'dockerode'
import { Fault } from '../../fault.ts'
import { createDeadlines } from '../../lib/deadlines.ts'
import { createHeartbeat, type Heartbeat } from '../../lib/heartbeat.ts'
import type { Log } from '../../log.ts'
import { statusOf } from './errors.ts'

const readMs = 30_000
/** The engine walks through all files of a container to measure it. */
const measureMs = 300_000
/** Starting and removing many at once takes its time. */
const writeMs = 120_000
const stopMarginMs = 60_000
const hungMs = 10_000

type Request = {
  path: string
  method: string
  file?: unknown
  options?: { t?: number; size?: boolean }
  abortSignal?: AbortSignal
}
type Callback = (error: unknown, result?: unknown) => void
type Dial = (request: Request, callback: Callback) => void

/** Undefined where no deadline is kept here. */
export function limitOf({ path, method, file, options }: Request): number | undefined {
  if (file !== undefined || path.startsWith('/build')) return undefined
  // Answered when a process ends.
  if (/^\/containers\/[^/]+\/wait\b/.test(path)) return undefined
  if (method === 'GET') return options?.size ? measureMs : readMs
  if (/^\/containers\/[^/]+\/(stop|restart)/.test(path)) return (options?.t ?? 10) * 1000 + stopMarginMs
  return writeMs
}

export function keepDeadlines(docker: Docker, address: string, log: Log): Heartbeat {
  const modem = docker.modem as unknown as { dial: Dial }
  const dial: Dial = modem.dial.bind(docker.modem)
  const deadlines = createDeadlines()
  let asking = new AbortController()

  const noAnswer = (why?: string): Fault =>
    new Fault('unavailable', `the container engine at ${address} does not answer${why ? ` (${why})` : ''}`, {
      hint: 'check whether Docker is stopped or overloaded; the server recovers when it answers',
      retry_after_seconds: 5,
    })

  const send = (request: Request, signal: AbortSignal): Promise<unknown> => {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const { abortSignal } = request
    dial(
      { ...request, abortSignal: abortSignal ? AbortSignal.any([abortSignal, signal]) : signal },
      (error, result) => (error ? reject(error) : resolve(result)),
    )
    return promise
  }

  const heartbeat = createHeartbeat({
    what: 'the container engine',
    ask: async () => {
      asking = new AbortController()
      const ping = { path: '/_ping', method: 'GET', statusCodes: { 200: true, 500: 'server error' } }
      await send(ping, asking.signal)
    },
    discard: () => asking.abort(),
    noAnswer: () => noAnswer(),
    timeout_ms: hungMs,
    deadlines,
    log,
  })

  async function limited(request: Request): Promise<unknown> {
    const refused = heartbeat.hung()
    if (refused) throw refused
    // Aborted only before the answer begins: a stream that was had goes on.
    const cancelled = new AbortController()
    const answer = send(request, cancelled.signal)
    answer.then(heartbeat.answered, (error) => {
      // A refusal is an answer too.
      if (statusOf(error) !== undefined) heartbeat.answered()
    })
    const limit = limitOf(request)
    if (limit === undefined) return await answer
    const cancel = (fault: Fault) => {
      cancelled.abort(fault)
      return fault
    }
    const hangs = Promise.withResolvers<never>()
    const alarm = heartbeat.alarm()
    const onAlarm = () => hangs.reject(cancel(alarm.reason as Fault))
    alarm.addEventListener('abort', onAlarm, { once: true })
    try {
      const what = `no answer to ${request.method} ${request.path.split('?')[0]} within ${limit / 1000} s`
      return await Promise.race([
        deadlines.within(answer, limit, () => cancel(noAnswer(what))),
        hangs.promise,
      ])
    } finally {
      alarm.removeEventListener('abort', onAlarm)
    }
  }

  modem.dial = (request, callback) => {
    limited(request).then((result) => callback(null, result), callback)
  }
  return heartbeat
}
