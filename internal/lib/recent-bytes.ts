// Tracks how many bytes a sender sent recently. A sender of few bytes is light and is served before heavy ones; sending a lot in
// small pieces does not stay light. The output of an agent in a conversation is light.
const halfLifeMs = 1000
const lightBytes = 32 * 1024
/** Largest single batch of a light sender. */
export const lightBatchBytes = 16 * 1024

export type RecentBytes = {
  add(bytes: number): void
  /** Whether the sender is light, including this many bytes to send now. */
  isLightWith(bytes: number): boolean
}

/** Bytes sent one second ago count half. */
export function createRecentBytes(now: () => number = () => performance.now()): RecentBytes {
  let sent = 0
  let at = now()
  const recent = (): number => {
    const time = now()
    sent *= 0.5 ** ((time - at) / halfLifeMs)
    at = time
    return sent
  }
  return {
    add(bytes) {
      sent = recent() + bytes
    },
    isLightWith: (bytes) => bytes <= lightBatchBytes && recent() + bytes <= lightBytes,
  }
}
