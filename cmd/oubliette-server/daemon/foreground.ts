import { type Command, options, serverSettings } from '../command.ts'
import { keepSmall } from './log-file.ts'

async function run(args: string[]): Promise<undefined> {
  const { values } = options(args, { 'log-file': { type: 'string' } })
  using _kept = values['log-file'] ? keepSmall(values['log-file']) : undefined
  const { serve } = await import('./serve.ts')
  await serve(serverSettings())
}

export const foreground: Command = {
  about: 'Run the server in the foreground, without any set-up.',
  usage: '[--log-file FILE]',
  help: `  --log-file FILE  Keep this file, to which stderr is already directed, below a bounded size.`,
  run,
}
