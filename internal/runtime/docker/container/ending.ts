// Whether a container was ended from outside. The engine reports a signal that somebody sent through it, and a removal;
// what happens inside a container cannot produce such an event.
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type Docker from 'dockerode'
import type { Runtime } from '../../runtime.ts'

type EngineEvent = { Action?: string; Actor?: { Attributes?: Record<string, string> } }

/** SIGINT, SIGQUIT, SIGKILL, SIGTERM: sent to end it. */
const ending = new Set(['2', '3', '9', '15'])
const answerMs = 5_000

/** By its events in order; a start begins another life. */
export function endedFromOutside(events: EngineEvent[]): boolean {
  let outside = false
  for (const { Action, Actor } of events) {
    if (Action === 'start') outside = false
    if (Action === 'destroy') outside = true
    if (Action === 'kill' && ending.has(Actor?.Attributes?.signal ?? '')) outside = true
  }
  return outside
}

/** The engine remembers a few hundred events: one that it has forgotten counts as none. */
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
