// The program behind `./oubliette`: finds the command, runs it, and turns an error into a message and an exit code. Each
// command is loaded only when it is used, so that small commands start fast.
import { explain, HelpRequested } from './command.ts'
import { commandHelp, findCommand, overview, ownCommands } from './commands.ts'

async function main([name, ...args]: string[]): Promise<number> {
  if (name === '--version' || name === '-V') return await main(['version'])
  if (name === '__complete') return (await import('./completion.ts')).complete(args, ownCommands())
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') {
    const [about] = args
    process.stdout.write(about ? await commandHelp(about) : overview())
    return 0
  }
  const command = await findCommand(name)
  try {
    if (args[0] === '--help' || args[0] === '-h') throw new HelpRequested()
    return (await command.run(args)) ?? 0
  } catch (error) {
    if (!(error instanceof HelpRequested)) throw error
    process.stdout.write(await commandHelp(name))
    return 0
  }
}

// A reader that closes the pipe early (`| head`) is not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1))
process.exitCode = await main(process.argv.slice(2)).catch(explain)
