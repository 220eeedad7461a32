// Every command by name: the program's own commands, and one per tool.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { nearest } from '../../internal/lib/nearest.ts'
import { type Command, columns, firstSentence, helpText, options, Usage, version } from './command.ts'

const versionCommand: Command = {
  about: 'Show the version',
  usage: '',
  examples: ['./oubliette version'],
  async run(args) {
    options(args, {})
    process.stdout.write(`oubliette ${version()} (Node ${process.versions.node})\n`)
    return 0
  },
}

const own: Record<string, () => Promise<Command>> = {
  up: async () => (await import('./daemon/up.ts')).up,
  down: async () => (await import('./daemon/down.ts')).down,
  status: async () => (await import('./daemon/status.ts')).status,
  logs: async () => (await import('./daemon/logs.ts')).logs,
  ps: async () => (await import('./sessions/ps.ts')).ps,
  run: async () => (await import('./run/run.ts')).runPrompt,
  chat: async () => (await import('./sessions/chat.ts')).chat,
  attach: async () => (await import('./sessions/chat.ts')).attach,
  cp: async () => (await import('./copy/cp.ts')).cp,
  shell: async () => (await import('./shell/shell.ts')).shell,
  mcp: async () => (await import('./mcp/mcp.ts')).mcp,
  doctor: async () => (await import('./doctor/doctor.ts')).doctor,
  service: async () => (await import('./service/service.ts')).service,
  backup: async () => (await import('./backup/backup.ts')).backup,
  restore: async () => (await import('./backup/restore.ts')).restore,
  test: async () => (await import('./dev/run-tests.ts')).test,
  bench: async () => (await import('./dev/bench.ts')).bench,
  node: async () => (await import('./dev/node.ts')).node,
  docs: async () => (await import('./dev/docs.ts')).docs,
  completion: async () => (await import('./completion.ts')).completion,
  version: async () => versionCommand,
  serve: async () => (await import('./daemon/foreground.ts')).foreground,
}

export const ownCommands = (): string[] => Object.keys(own)

const loadTools = async () => (await import('./tool-command/manifest.ts')).readManifest()

export async function findCommand(name: string): Promise<Command> {
  if (Object.hasOwn(own, name)) return own[name]!()
  const tools = await loadTools()
  const tool = name.replaceAll('-', '_')
  if (Object.hasOwn(tools, tool)) return (await import('./tool-command/command.ts')).toolCommand(tools[tool]!)
  const [near] = nearest(name, [...Object.keys(own), ...Object.keys(tools)])
  throw new Usage(
    `unknown command "${name}"`,
    near ? `did you mean "${near}"?` : 'run "./oubliette --help" for a list of commands',
  )
}

export const commandHelp = async (name: string): Promise<string> => helpText(name, await findCommand(name))

type Overview = { commands: [name: string, about: string][]; tools: [name: string, about: string][] }

export const overviewFile = join(import.meta.dirname, 'overview.json')

/** What `overview.json` contains: loading every command for the list of commands would take longer than most commands. */
export async function describeCommands(): Promise<Overview> {
  const commands = Object.entries(own).map(
    async ([name, load]): Promise<[string, string]> => [name, (await load()).about],
  )
  const tools = Object.values(await loadTools()).map((tool): [string, string] => [
    tool.name.replaceAll('_', '-'),
    firstSentence(tool.about),
  ])
  return { commands: await Promise.all(commands), tools }
}

export function overview(): string {
  const { commands, tools } = JSON.parse(readFileSync(overviewFile, 'utf8')) as Overview
  return `Usage: ./oubliette COMMAND [OPTIONS]

A control plane for AI agents in containers

Commands:
${columns(commands)}

Tool commands, which call the running server:
${columns(tools)}

Options:
${columns([
  ['-h, --help', 'Show this help text'],
  ['-V, --version', 'Show the version'],
])}

Examples:
  ./oubliette up --detach
  ./oubliette run 'echo hello'
  ./oubliette project list

Run "./oubliette COMMAND --help" for more information about a command. The
environment variables OUBLIETTE_HOME, OUBLIETTE_ADDRESS, DATABASE_URL,
DOCKER_HOST and others are described in docs/configuration.md.
`
}
