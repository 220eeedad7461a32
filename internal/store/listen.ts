// LISTEN on a separate connection that reconnects. Notifications are hints to read rows: those sent while the connection is
// down are lost, so subscribers are informed of every gap.
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'

type Subscriber = { onPayload: (payload: string) => void; onGap: () => void }
type Stop = () => Promise<void>

const probeMilliseconds = 20_000
const longestPause = 5_000

const quote = (channel: string) => `"${channel.replaceAll('"', '""')}"`

export function createListener({ config, log }: { config: pg.ClientConfig; log: Log }) {
  const channels = new Map<string, Set<Subscriber>>()
  const closing = new AbortController()
  let link: Promise<pg.Client> | undefined
  let repair: Promise<void> | undefined

  const call = (subscriber: Subscriber, callback: (to: Subscriber) => void) => {
    try {
      callback(subscriber)
    } catch (error) {
      log.error('a subscriber to database notifications failed', { error })
    }
  }

  async function dial(): Promise<pg.Client> {
    const client = new pg.Client({ ...config, application_name: 'oubliette-listen', query_timeout: 10_000 })
    client.on('notification', ({ channel, payload }) => {
      for (const one of channels.get(channel) ?? []) call(one, (to) => to.onPayload(payload ?? ''))
    })
    // A lost peer sends nothing: only a query detects it.
    const probe = setInterval(() => client.query('select 1').catch(() => client.end()), probeMilliseconds)
    probe.unref()
    client.on('error', (error) =>
      log.warn('lost the connection for notifications', { reason: messageOf(error) }),
    )
    client.on('end', () => {
      clearInterval(probe)
      if (link === undefined || closing.signal.aborted) return
      link = undefined
      repair ??= comeBack().finally(() => {
        repair = undefined
      })
    })
    try {
      await client.connect()
      for (const channel of channels.keys()) await client.query(`listen ${quote(channel)}`)
    } catch (error) {
      clearInterval(probe)
      await client.end().catch(() => undefined)
      throw error
    }
    return client
  }

  async function comeBack(): Promise<void> {
    for (
      let wait = 50;
      !closing.signal.aborted && channels.size > 0;
      wait = Math.min(wait * 2, longestPause)
    ) {
      try {
        link = dial()
        await link
      } catch (error) {
        link = undefined
        log.warn('failed to restore the connection for notifications, retrying', { reason: messageOf(error) })
        await pause(wait, undefined, { signal: closing.signal, ref: false }).catch(() => undefined)
      }
      // It may have ended again already; then the `end` handler has cleared `link`.
      if (link === undefined) continue
      for (const set of channels.values()) for (const one of set) call(one, (to) => to.onGap())
      return
    }
  }

  async function listen(
    channel: string,
    onPayload: (payload: string) => void,
    onGap: () => void = () => undefined,
  ): Promise<Stop> {
    if (closing.signal.aborted) throw new Fault('unavailable', 'the store is closed')
    const subscriber = { onPayload, onGap }
    const set = channels.get(channel) ?? new Set()
    channels.set(channel, set.add(subscriber))
    await attend(channel)
    return async () => {
      set.delete(subscriber)
      if (set.size > 0 || channels.get(channel) !== set) return
      channels.delete(channel)
      // A connection that is down has no channels.
      await (await link)?.query(`unlisten ${quote(channel)}`).catch(() => undefined)
    }
  }

  /** Subscribes the connection to the channel, now or when it is restored. */
  async function attend(channel: string): Promise<void> {
    await repair
    if (closing.signal.aborted) throw new Fault('unavailable', 'the store is closed')
    try {
      link ??= dial()
      await (await link).query(`listen ${quote(channel)}`)
    } catch (error) {
      link = undefined
      log.warn('failed to subscribe to notifications, reconnecting', { reason: messageOf(error) })
      repair ??= comeBack().finally(() => {
        repair = undefined
      })
      await repair
    }
  }

  async function close(): Promise<void> {
    closing.abort()
    channels.clear()
    await repair
    const client = await link?.catch(() => undefined)
    link = undefined
    await client?.end()
  }

  return { listen, close }
}
