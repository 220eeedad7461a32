// Notifications that other rooms send to connected clients. `to` selects the recipients by the caller that opened the
// session or the subscription.
import type { LoggingLevel, ServerEvent } from '@modelcontextprotocol/server'
import type { Caller } from '../auth/caller.ts'

export type Audience = (caller: Caller) => boolean
export type LogMessage = { level: LoggingLevel; logger?: string; data: unknown }

export interface Notify {
  /** The list of tools changed; both eras. */
  toolsChanged(): void
  /** To the `subscriptions/listen` streams that requested this kind of event; resource updates also to older subscribers. */
  publish(event: ServerEvent, to?: Audience): void
  /** 2025 era: `notifications/message` on the GET stream of each session, or kept for its next one. */
  message(message: LogMessage, to: Audience): void
}
