// Events of this instance's containers. The engine's stream ends when the engine restarts or hangs, and is reopened after the last
// event that was seen. The reconciler handles events that the engine no longer has.
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import type Docker from 'dockerode'
import { messageOf } from '../../../fault.ts'
import type { Log } from '../../../log.ts'
import type { ContainerEvent, Runtime } from '../../runtime.ts'
import { labels, type Names } from '../names.ts'

type EngineEvent = {
  Action?: string
  Actor?: { ID?: string; Attributes?: Record<string, string> }
  timeNano?: number
}

const actions = ['start', 'die', 'oom', 'pause', 'unpause', 'destroy'] as const
const maxRetryMs = 5_000

export function toEvent(event: EngineEvent): ContainerEvent | undefined {
  const action = actions.find((known) => known === event.Action)
  const attributes = event.Actor?.Attributes ?? {}
  const project_id = attributes[labels.project]
  if (!action || !project_id || attributes[labels.upstream] !== undefined || !event.Actor?.ID)
    return undefined
  const exit_code = attributes.exitCode === undefined ? undefined : Number(attributes.exitCode)
  return {
    project_id,
    container_id: event.Actor.ID,
    action,
    ...(exit_code === undefined ? {} : { exit_code }),
  }
}

/** The number is beyond what a double holds exactly, so it is taken from the text. */
export const nanosecondsOf = (line: string): bigint => BigInt(/"timeNano":(\d+)/.exec(line)?.[1] ?? 0)

const asSeconds = (nanoseconds: bigint): string =>
  `${nanoseconds / 1_000_000_000n}.${String(nanoseconds % 1_000_000_000n).padStart(9, '0')}`

export function createEvents(
  docker: Docker,
  names: Names,
  alarm: () => AbortSignal,
  log: Log,
): Runtime['events'] {
  return async function* (signal) {
    let last = BigInt(Date.now()) * 1_000_000n
    let wait_ms = 100
    while (!signal.aborted) {
      try {
        const until = AbortSignal.any([signal, alarm()])
        const options = {
          filters: { type: ['container'], event: [...actions], ...names.filter },
          since: asSeconds(last + 1n),
          abortSignal: until,
        }
        const stream = (await docker.getEvents(options as unknown as Docker.GetEventsOptions)) as Readable
        const stop = () => void stream.destroy()
        until.addEventListener('abort', stop, { once: true })
        try {
          let rest = ''
          for await (const chunk of stream) {
            wait_ms = 100
            const lines = (rest + String(chunk)).split('\n')
            rest = lines.pop() ?? ''
            for (const line of lines.filter((text) => text.trim())) {
              const at = nanosecondsOf(line)
              if (at > last) last = at
              const event = toEvent(JSON.parse(line) as EngineEvent)
              if (event) yield event
            }
          }
        } finally {
          until.removeEventListener('abort', stop)
          stop()
        }
      } catch (error) {
        if (signal.aborted) return
        log.debug('event stream ended, reopening it', { reason: messageOf(error) })
      }
      await sleep(wait_ms, undefined, { signal }).catch(() => undefined)
      wait_ms = Math.min(wait_ms * 2, maxRetryMs)
    }
  }
}

/** SIGINT, SIGQUIT, SIGKILL, SIGTERM: sent to end it. */
const ending = new Set(['2', '3', '9', '15'])
const answerMs = 5_000

/** From the container's events in order; a start resets the result. */
export function endedFromOutside(events: EngineEvent[]): boolean {
  let outside = false
  for (const { Action, Actor } of events) {
    if (Action === 'start') outside = false
    if (Action === 'destroy') outside = true
    if (Action === 'kill' && ending.has(Actor?.Attributes?.signal ?? '')) outside = true
  }
  return outside
}

/**
 * Whether a container was ended from outside: the engine reports signals that were sent through it and removals, which nothing
 * inside a container can cause. The engine keeps a few hundred events; a dropped event counts as none.
 */
export function createEnding(docker: Docker): Runtime['endedFromOutside'] {
  return async (container_id) => {
    const options = {
      filters: { type: ['container'], container: [container_id], event: ['kill', 'start', 'destroy'] },
      since: '0',
      until: (Date.now() / 1000).toFixed(3),
      abortSignal: AbortSignal.timeout(answerMs),
    }
    const stream = (await docker.getEvents(options as unknown as Docker.GetEventsOptions)) as Readable
    const lines = (await text(stream)).split('\n').filter((line) => line.trim())
    return endedFromOutside(lines.map((line) => JSON.parse(line) as EngineEvent))
  }
}
