// The report for a terminal: a line for each finding, wrapped between words. A command stays on one line of its own, so that it
// can be pasted.

import { wrap } from '../command.ts'
import { columnsOf, hasColours, oneLine } from '../tool-command/output/text.ts'
import type { Checked, Finding, Status } from './finding.ts'

const colours: Record<Status | 'fixed', number> = { ok: 32, skipped: 2, warning: 33, problem: 31, fixed: 36 }
const statusWidth = 9
const nameWidth = 13

const painted = (status: keyof typeof colours): string => {
  const text = status.padEnd(statusWidth)
  return hasColours() ? `\x1b[${colours[status]}m${text}\x1b[0m` : text
}

export function lineOf(status: keyof typeof colours, check: string, message: string): string {
  const indent = ' '.repeat(statusWidth + nameWidth)
  const lines = wrap(oneLine(message), Math.max(20, columnsOf() - indent.length))
  return `${painted(status)}${check.padEnd(nameWidth)}${lines.join(`\n${indent}`)}\n`
}

function remedy({ hint, command, status }: Finding): string {
  if (status === 'ok' || status === 'skipped') return ''
  const indent = ' '.repeat(statusWidth + nameWidth)
  const advice = hint
    ? wrap(oneLine(hint), Math.max(20, columnsOf() - indent.length)).map((line) => `${indent}${line}\n`)
    : []
  const fitting = command && `${indent}$ ${command}`.length <= columnsOf() ? indent : '  '
  return `${advice.join('')}${command ? `${fitting}$ ${command}\n` : ''}`
}

export const textOf = ({ check, findings }: Checked): string =>
  findings.map((finding) => `${lineOf(finding.status, check, finding.message)}${remedy(finding)}`).join('')

export const jsonOf = (checked: Checked[]) =>
  checked.flatMap(({ check, findings, took_ms }) =>
    findings.map(({ status, message, hint, command, fix }) => ({
      check,
      status,
      message,
      ...(hint ? { hint } : {}),
      ...(command ? { command } : {}),
      fixable: fix !== undefined,
      took_ms,
    })),
  )
