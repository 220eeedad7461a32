// Marks processes with a resource limit, which children inherit and which survives a cleared environment. Servers such as nginx,
// redis and postgres daemonize and overwrite their environment with their title, but keep their limits. Linux ignores the limit
// on file locks, so it can carry a number that identifies the session and the turn.
import { createHash } from 'node:crypto'

const bits = 31n

const numberOf = (mark: string): bigint =>
  BigInt(`0x${createHash('sha256').update(mark).digest('hex').slice(0, 8)}`) >> 1n

export const lockLimit = (session_mark: string, turn_mark?: string): bigint =>
  (numberOf(session_mark) << bits) | (turn_mark === undefined ? 0n : numberOf(turn_mark))

/** Whether a process with these limits (the text of /proc/PID/limits) is marked with this session or turn. */
export function limitsCarry(limits: string, mark: string): boolean {
  const value = /^Max file locks\s+(\d+)\s/m.exec(limits)?.[1]
  if (value === undefined) return false
  const limit = BigInt(value)
  const wanted = numberOf(mark)
  return limit >> bits === wanted || (limit & ((1n << bits) - 1n)) === wanted
}

/** The command with the limit set before it starts. Requires bash. */
export const withLockLimit = (limit: bigint, command: string[]): string[] => [
  'bash',
  '-p',
  '-c',
  'ulimit -x "$1" 2>/dev/null; shift; exec "$@"',
  'oubliette',
  String(limit),
  ...command,
]

/** For bash scripts, through BASH_ENV, without a second process. The previous BASH_ENV stays in effect. */
export const lockLimitLines = (limit: bigint, bash_env: string | undefined): string =>
  `ulimit -x ${limit} 2>/dev/null\n${
    bash_env === undefined
      ? 'unset BASH_ENV\n'
      : `export BASH_ENV='${bash_env.replaceAll("'", "'\\''")}'\nif [ -f "$BASH_ENV" ]; then . "$BASH_ENV"; fi\n`
  }`
