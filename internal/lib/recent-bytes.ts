// How much somebody sent lately. Who sends little is calm, and is served before those who send a lot: nobody stays calm
// by sending a lot in small pieces. What an agent says in a conversation is little.
const halfLifeMs = 1000
const calmBytes = 32 * 1024
/** At once. */
export const calmBatchBytes = 16 * 1024

export type RecentBytes = {
  add(bytes: number): void
  /** Whether it is calm although it has so much to send now. */
  calmWith(bytes: number): boolean
}

/** What was sent a second ago counts half. */
export function createRecentBytes(now: () => number = () => performance.now()): RecentBytes {
  let sent = 0
  let at = now()
  const lately = (): number => {
    const time = now()
    sent *= 0.5 ** ((time - at) / halfLifeMs)
    at = time
    return sent
  }
  return {
    add(bytes) {
      sent = lately() + bytes
    },
    calmWith: (bytes) => bytes <= calmBatchBytes && lately() + bytes <= calmBytes,
  }
}
