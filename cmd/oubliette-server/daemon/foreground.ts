// `./oubliette serve`: the server alone, for service managers and containers.
import { type Command, options } from '../command.ts'
import { serverSettings } from '../settings.ts'
import { rotatePeriodically } from './log-file.ts'

async function run(args: string[]): Promise<undefined> {
  const { values } = options(args, { 'log-file': { type: 'string' } })
  using _rotation = values['log-file'] ? rotatePeriodically(values['log-file']) : undefined
  const { serve } = await import('./serve.ts')
  await serve(serverSettings())
}

export const foreground: Command = {
  about: 'Run the server in the foreground, without setting up the machine',
  usage: '[OPTIONS]',
  options: [['--log-file FILE', 'Rotate FILE, to which stderr is redirected, when it exceeds 10 MiB']],
  examples: ['./oubliette serve', './oubliette serve --log-file server.log 2>>server.log'],
  run,
}
