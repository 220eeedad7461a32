// `./oubliette bench`: sets everything up and runs the benchmarks of `bench/`, one after the other.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { type Command, checkout, options, settings, Usage } from '../command.ts'
import { createProgress } from '../setup/progress.ts'
import { setUp } from '../setup/set-up.ts'

const folder = join(checkout, 'bench')

async function run(args: string[]): Promise<number> {
  const { positionals } = options(args, {}, true)
  const all = readdirSync(folder)
    .filter((file) => file.endsWith('.ts'))
    .map((file) => file.slice(0, -'.ts'.length))
  const strange = positionals.find((name) => !all.includes(name))
  if (strange) throw new Usage(`there is no benchmark "${strange}"`, `one of ${all.join(', ')}`)
  await setUp(settings(), createProgress())
  let failed = 0
  for (const name of positionals.length > 0 ? positionals : all) {
    process.stdout.write(`\n${name}\n`)
    const child = spawn(process.execPath, [join(folder, `${name}.ts`)], { cwd: checkout, stdio: 'inherit' })
    const [code] = (await once(child, 'exit')) as [number | null]
    if (code !== 0) failed += 1
  }
  return failed === 0 ? 0 : 1
}

export const bench: Command = {
  about: 'Set everything up and run the benchmarks.',
  usage: '[name…]',
  help: '  name  Only these, e.g. "project-get".',
  run,
}
