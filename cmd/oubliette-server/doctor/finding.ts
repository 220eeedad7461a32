// A check, what it finds, and how checks are run: at the same time, each with a deadline of its own, so that nothing that hangs
// delays the others or the end of the command.
import { Fault, messageOf } from '../../../internal/fault.ts'
import type { Facts } from './facts.ts'

export const statuses = ['ok', 'skipped', 'warning', 'problem'] as const
export type Status = (typeof statuses)[number]

/** A change that loses nothing, and that `--fix` may make. Returns what was done. */
export type Fix = () => Promise<string>

export type Finding = {
  status: Status
  message: string
  /** A command that can be pasted into a shell. */
  command?: string
  /** What to do where no single command does it. */
  hint?: string
  fix?: Fix
}

export type Check = {
  name: string
  deadline_ms: number
  run(facts: Facts, signal: AbortSignal): Promise<Finding[]>
}

export type Checked = { check: string; findings: Finding[]; took_ms: number }

export const ok = (message: string): Finding => ({ status: 'ok', message })
/** It depends on something that another check reports. */
export const skipped = (message: string): Finding => ({
  status: 'skipped',
  message: `not checked: ${message}`,
})
export const warning = (message: string, more: Omit<Finding, 'status' | 'message'> = {}): Finding => ({
  status: 'warning',
  message,
  ...more,
})
export const problem = (message: string, more: Omit<Finding, 'status' | 'message'> = {}): Finding => ({
  status: 'problem',
  message,
  ...more,
})

/** The error of another part of the program, with its hint. */
export const ofFault = (thrown: unknown, more: Omit<Finding, 'status' | 'message'> = {}): Finding =>
  problem(messageOf(thrown), {
    ...(thrown instanceof Fault && thrown.hint ? { hint: thrown.hint } : {}),
    ...more,
  })

/** A word of a shell command. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./~-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString('en-US')} ${count === 1 ? one : many}`

export async function runCheck({ name, deadline_ms, run }: Check, facts: Facts): Promise<Checked> {
  const began = performance.now()
  const ended = new AbortController()
  const late = Promise.withResolvers<Finding[]>()
  const timer = setTimeout(() => {
    const seconds = deadline_ms / 1000
    late.resolve([problem(`no result within ${seconds} s`, { hint: 'something that it asks hangs' })])
    ended.abort()
  }, deadline_ms)
  // An error of a check is a finding: it must not end the others.
  const found = run(facts, ended.signal).catch((error: unknown) => [ofFault(error)])
  const findings = await Promise.race([found, late.promise])
  clearTimeout(timer)
  ended.abort()
  return { check: name, findings, took_ms: Math.round(performance.now() - began) }
}

export const worst = (checked: Checked[]): Status =>
  statuses.findLast((status) =>
    checked.some(({ findings }) => findings.some((finding) => finding.status === status)),
  ) ?? 'ok'
