// Limits how much an upstream may send without being asked: notifications, requests, garbage. Answers to requests are free, since
// requests are limited. Beyond the budget the connection is read more slowly; nothing is dropped, and no other upstream waits.

const messagesPerSecond = 500
const burst = 2_000
/** A long message costs as much as this many bytes each. */
const bytesPerMessage = 8 * 1024

export type MessageBudget = {
  /** How long to stop reading, in milliseconds; 0 within the budget. */
  spend(bytes: number): number
}

export function createMessageBudget(now: () => number = () => performance.now()): MessageBudget {
  let left = burst
  let at = now()
  return {
    spend(bytes) {
      const time = now()
      left = Math.min(burst, left + ((time - at) / 1000) * messagesPerSecond)
      at = time
      left -= 1 + bytes / bytesPerMessage
      return left >= 0 ? 0 : Math.ceil((-left / messagesPerSecond) * 1000)
    },
  }
}
