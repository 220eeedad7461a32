// Runs a program of the host: its output as a stream or as lines, its failure as a fault with the last lines of stderr.
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { access, constants } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import type { Readable } from 'node:stream'
import { Fault } from '../fault.ts'

const path = `${process.env.PATH ?? ''}${delimiter}/usr/local/sbin${delimiter}/usr/sbin${delimiter}/sbin`

export async function findProgram(name: string): Promise<string | undefined> {
  for (const directory of path.split(delimiter).filter(Boolean)) {
    const file = join(directory, name)
    try {
      await access(file, constants.X_OK)
      return file
    } catch {
      // Not in this directory.
    }
  }
  return undefined
}

type Options = {
  signal?: AbortSignal | undefined
  progress?: ((line: string) => void) | undefined
  env?: Record<string, string>
}

export type Command = { stdout: Readable; done: Promise<void> }

/** `stdout` must be read by the caller; stderr goes to `progress`. `done` rejects unless the program ends with 0. */
export function startCommand(program: string, args: string[], options: Options = {}): Command {
  const child: ChildProcessByStdio<null, Readable, Readable> = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, PATH: path, ...options.env },
    ...(options.signal ? { signal: options.signal } : {}),
  })
  const last: string[] = []
  eachLine(child.stderr, (line) => {
    last.push(line)
    if (last.length > 5) last.shift()
    options.progress?.(line)
  })
  const done = new Promise<void>((resolve, reject) => {
    child.once('error', (error) =>
      reject(new Fault('unavailable', `failed to run ${program}: ${error.message}`, { cause: error })),
    )
    child.once('close', (code, signal) => {
      if (code === 0) return resolve()
      const why = last.join('; ') || (signal ? `killed by ${signal}` : `exit code ${code}`)
      reject(new Fault('unavailable', `${program} failed: ${why}`))
    })
  })
  return { stdout: child.stdout, done }
}

export async function runCommand(program: string, args: string[], options: Options = {}): Promise<string> {
  const { stdout, done } = startCommand(program, args, options)
  let text = ''
  stdout.setEncoding('utf8')
  stdout.on('data', (chunk: string) => {
    text += chunk
  })
  await done
  return text
}

function eachLine(stream: Readable, onLine: (line: string) => void): void {
  let rest = ''
  stream.setEncoding('utf8')
  stream.on('data', (chunk: string) => {
    const lines = (rest + chunk).split(/[\r\n]+/)
    rest = lines.pop() ?? ''
    for (const line of lines) if (line.trim()) onLine(line)
  })
  stream.on('end', () => {
    if (rest.trim()) onLine(rest)
  })
}
