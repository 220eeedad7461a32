// The messages that were typed in `chat`, for the arrow keys, in a file that only its owner can read.
import { appendFileSync, chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export const history_lines = 500

const fileOf = (home: string): string => join(home, 'chat-history')

/** Newest first, as the line editor wants them. */
export function readHistory(home: string): string[] {
  let text: string
  try {
    text = readFileSync(fileOf(home), 'utf8')
  } catch {
    // There is none yet, or it cannot be read: chat works without it.
    return []
  }
  const lines = text.split('\n').filter((line) => line !== '')
  // The file is shortened only here, so that two chats that append do not lose lines of each other.
  if (lines.length > 2 * history_lines) rewrite(home, lines.slice(-history_lines))
  return lines.slice(-history_lines).reverse()
}

function rewrite(home: string, lines: string[]): void {
  try {
    writeFileSync(fileOf(home), `${lines.join('\n')}\n`, { mode: 0o600 })
  } catch {
    // As above.
  }
}

export function appendHistory(home: string, message: string): void {
  const line = message.replaceAll('\n', ' ').trim()
  if (line === '') return
  try {
    appendFileSync(fileOf(home), `${line}\n`, { mode: 0o600 })
    // The mode of an existing file is not changed by appending.
    chmodSync(fileOf(home), 0o600)
  } catch {
    // A home of another user.
  }
}
