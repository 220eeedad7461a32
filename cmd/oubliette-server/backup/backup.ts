// `./oubliette backup`: one archive of the database, the files of the home and, on request, the workspaces.
import { resolve } from 'node:path'
import { Fault } from '../../../internal/fault.ts'
import { createLog } from '../../../internal/log.ts'
import { type Command, options, Usage } from '../command.ts'
import { settings } from '../settings.ts'
import { createProgress } from '../setup/progress.ts'
import { type Created, createBackup } from './create.ts'
import { reachDatabase } from './database.ts'

/** Aborted by Ctrl-C or SIGTERM, so that incomplete files are removed. */
export function untilInterrupted(): AbortSignal {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.once(name, () => controller.abort(new Fault('unavailable', `interrupted by ${name}`)))
  return controller.signal
}

/** What was interrupted shows as an `AbortError` of a stream. */
export const interruption = (error: unknown, signal: AbortSignal): unknown =>
  signal.aborted ? signal.reason : error

const count = (value: number) => value.toLocaleString('en-US')

function summary({ tables, rows, bytes, file_bytes, skipped }: Created, file: string, ms: number): string {
  const size = file_bytes === undefined ? '' : `, ${count(Math.ceil(file_bytes / 1024))} KiB`
  const lines = [
    `Backup written to ${file}: ${tables} tables, ${count(rows)} rows, ${count(Math.ceil(bytes / 1024))} KiB of data${size}, ${(ms / 1000).toFixed(1)} s.`,
    'It contains secrets (keys, token hashes, credentials): keep it private.',
    ...skipped.entries.map(({ path, reason }) => `Left out: ${path} (${reason})`),
  ]
  if (skipped.count > skipped.entries.length)
    lines.push(`Left out: ${skipped.count - skipped.entries.length} more`)
  return `${lines.join('\n')}\n`
}

async function run(args: string[]): Promise<undefined> {
  const { values, positionals } = options(args, { workspaces: { type: 'boolean', default: false } }, true)
  const [target, ...rest] = positionals
  if (target === undefined) throw new Usage('missing FILE', 'use "-" to write to the standard output')
  if (rest.length > 0) throw new Usage(`unexpected argument "${rest[0]}"`)
  const file = target === '-' ? undefined : resolve(target)
  if (file === undefined && process.stdout.isTTY)
    throw new Usage('the standard output is a terminal', 'redirect it to a file or a command')
  const config = settings()
  const began = performance.now()
  const signal = untilInterrupted()
  const progress = createProgress()
  await using stack = new AsyncDisposableStack()
  stack.defer(() => progress.end())
  const database_url = await reachDatabase(config, createLog({ level: 'warn' }), stack)
  const created = await createBackup({
    home: config.home,
    database_url,
    file,
    workspaces: values.workspaces,
    signal,
    progress: progress.detail,
  }).catch((error: unknown) => {
    throw interruption(error, signal)
  })
  progress.end()
  const out = file === undefined ? process.stderr : process.stdout
  out.write(summary(created, file ?? 'the standard output', performance.now() - began))
}

export const backup: Command = {
  about: 'Write a backup of the server to a file',
  usage: '[OPTIONS] FILE|-',
  details: `The archive contains the database as it is at one moment, the config, the keys and the tokens of the home. The server keeps running. The archive has mode 0600 and contains secrets: keep it private.

"-" writes to the standard output.`,
  options: [
    ['--workspaces', 'Include the workspaces and the homes of droids, file by file as they are found'],
  ],
  examples: [
    './oubliette backup oubliette-backup.tar.gz',
    './oubliette backup --workspaces /mnt/backups/monday.tar.gz',
    './oubliette backup - | ssh host "cat > oubliette-backup.tar.gz"',
  ],
  run,
}
