// A mark that is inherited and cannot be cleaned away with the environment. Servers such as nginx, redis and postgres detach
// from everything and write their title over their environment; what they keep is their limits. The limit on file locks
// means nothing to Linux any more, and can carry a number: which session, and which of its turns.
import { createHash } from 'node:crypto'

const bits = 31n

const numberOf = (mark: string): bigint =>
  BigInt(`0x${createHash('sha256').update(mark).digest('hex').slice(0, 8)}`) >> 1n

export const lockLimit = (session_mark: string, turn_mark?: string): bigint =>
  (numberOf(session_mark) << bits) | (turn_mark === undefined ? 0n : numberOf(turn_mark))

/** Does a process with these limits (the text of /proc/PID/limits) carry the mark of this session or turn? */
export function limitsCarry(limits: string, mark: string): boolean {
  const value = /^Max file locks\s+(\d+)\s/m.exec(limits)?.[1]
  if (value === undefined) return false
  const limit = BigInt(value)
  const wanted = numberOf(mark)
  return limit >> bits === wanted || (limit & ((1n << bits) - 1n)) === wanted
}

/** The same command, with the limit set before it begins. Without a bash it goes unmarked. */
export const withLockLimit = (limit: bigint, command: string[]): string[] => [
  'bash',
  '-p',
  '-c',
  'ulimit -x "$1" 2>/dev/null; shift; exec "$@"',
  'oubliette',
  String(limit),
  ...command,
]

/** For bash scripts, by BASH_ENV: costs no second program. What BASH_ENV was before stays in force. */
export const lockLimitLines = (limit: bigint, bash_env: string | undefined): string =>
  `ulimit -x ${limit} 2>/dev/null\n${
    bash_env === undefined
      ? 'unset BASH_ENV\n'
      : `export BASH_ENV='${bash_env.replaceAll("'", "'\\''")}'\nif [ -f "$BASH_ENV" ]; then . "$BASH_ENV"; fi\n`
  }`
