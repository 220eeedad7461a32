// Records executed commands and their answers. A command is recorded before it runs and again when it has answered, so that a
// repeat gets the same answer, and a command that was interrupted by a crash is never run twice.
import { appendFileSync, existsSync, readFileSync, truncateSync } from 'node:fs'
import { dirname } from 'node:path'
import { Fault } from '../fault.ts'
import { fromWireError, toWireError, type WireError } from '../protocol/wire.ts'
import { inDirectory } from './in-directory.ts'

type Entry = { id: string; begun: true } | { id: string; result: unknown } | { id: string; error: WireError }

export type CommandLog = {
  run(command_id: string, act: () => Promise<unknown>): Promise<unknown>
}

export function openCommandLog(file: string): CommandLog {
  const outcomes = new Map<string, Promise<unknown>>()
  const keep = (id: string, outcome: Promise<unknown>): void => {
    // The caller gets the rejection; without a repeat it must not count as unhandled.
    outcome.catch(() => {})
    outcomes.set(id, outcome)
  }
  const write = (entry: Entry) =>
    inDirectory(dirname(file), () => appendFileSync(file, `${JSON.stringify(entry)}\n`, { mode: 0o600 }))

  const text = existsSync(file) ? readFileSync(file, 'utf8') : ''
  const whole = text.slice(0, text.lastIndexOf('\n') + 1)
  if (whole.length < text.length) truncateSync(file, Buffer.byteLength(whole))
  for (const line of whole.split('\n')) {
    if (line === '') continue
    const entry = JSON.parse(line) as Entry
    if ('error' in entry) keep(entry.id, Promise.reject(fromWireError(entry.error)))
    else if ('result' in entry) keep(entry.id, Promise.resolve(entry.result))
    else
      keep(
        entry.id,
        Promise.reject(
          new Fault('conflict', 'the container was restarted while this command ran; it is not run again'),
        ),
      )
  }

  return {
    run(command_id, act) {
      const known = outcomes.get(command_id)
      if (known) return known
      write({ id: command_id, begun: true })
      const outcome = act().then(
        (result) => {
          write({ id: command_id, result })
          return result
        },
        (error) => {
          write({ id: command_id, error: toWireError(error) })
          throw error
        },
      )
      keep(command_id, outcome)
      return outcome
    },
  }
}
