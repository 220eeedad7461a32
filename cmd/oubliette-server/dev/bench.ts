// `./oubliette bench`: sets up the machine and runs the benchmarks of `bench/` one after another.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { type Command, checkout, options, Usage } from '../command.ts'
import { settings } from '../settings.ts'
import { createProgress } from '../setup/progress.ts'
import { setUp } from '../setup/set-up.ts'

const folder = join(checkout, 'bench')

async function run(args: string[]): Promise<number> {
  const { positionals } = options(args, {}, true)
  const all = readdirSync(folder)
    .filter((file) => file.endsWith('.ts'))
    .map((file) => file.slice(0, -'.ts'.length))
  const unknown = positionals.find((name) => !all.includes(name))
  if (unknown) throw new Usage(`unknown benchmark "${unknown}"`, `benchmarks: ${all.join(', ')}`)
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
  about: 'Set up this machine and run the benchmarks',
  usage: '[NAME...]',
  details: 'Runs all benchmarks of bench/, or those that are named.',
  examples: ['./oubliette bench', './oubliette bench project-get'],
  run,
}
