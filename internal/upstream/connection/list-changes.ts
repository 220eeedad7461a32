// News that the lists of an upstream have changed: notifications of the older era, a subscription of the newer one.
import { setTimeout as pause } from 'node:timers/promises'
import type { Client } from '@modelcontextprotocol/client'

const methods = [
  'notifications/tools/list_changed',
  'notifications/prompts/list_changed',
  'notifications/resources/list_changed',
] as const
/** An upstream that announces changes all the time is told about once in this time. */
const intervalMs = 1_000
const ackMs = 10_000
const maxRetryMs = 60_000

export function followLists(client: Client, onChanged: () => void, signal: AbortSignal): void {
  let told_at = Number.NEGATIVE_INFINITY
  let timer: NodeJS.Timeout | undefined
  const tell = () => {
    timer = undefined
    told_at = performance.now()
    if (!signal.aborted) onChanged()
  }
  const changed = () => {
    if (timer) return
    const wait = told_at + intervalMs - performance.now()
    if (wait <= 0) tell()
    else timer = setTimeout(tell, wait).unref()
  }
  for (const method of methods) client.setNotificationHandler(method, changed)
  if (client.getProtocolEra() === 'modern') void listen(client, changed, signal)
}

async function listen(client: Client, changed: () => void, signal: AbortSignal): Promise<void> {
  const { tools, prompts, resources } = client.getServerCapabilities() ?? {}
  const filter = {
    ...(tools?.listChanged ? { toolsListChanged: true } : {}),
    ...(prompts?.listChanged ? { promptsListChanged: true } : {}),
    ...(resources?.listChanged ? { resourcesListChanged: true } : {}),
  }
  if (Object.keys(filter).length === 0) return
  let retry_ms = 1_000
  for (let first = true; !signal.aborted; first = false) {
    try {
      const subscription = await client.listen(filter, { timeout: ackMs, signal })
      // Changes while there was no subscription.
      if (!first) changed()
      const began = performance.now()
      await subscription.closed
      if (performance.now() - began > maxRetryMs) retry_ms = 1_000
    } catch {
      // The upstream does not offer it now.
    }
    await pause(retry_ms, undefined, { signal, ref: false }).catch(() => undefined)
    retry_ms = Math.min(retry_ms * 2, maxRetryMs)
  }
}
