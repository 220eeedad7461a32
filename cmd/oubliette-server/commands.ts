// Every command by name: the ones for people, and one for each tool.
import { type Command, nearest, Usage } from './command.ts'

const own: Record<string, () => Promise<Command>> = {
  up: async () => (await import('./daemon/up.ts')).up,
  down: async () => (await import('./daemon/down.ts')).down,
  status: async () => (await import('./daemon/status.ts')).status,
  logs: async () => (await import('./daemon/logs.ts')).logs,
  run: async () => (await import('./run/run.ts')).runPrompt,
  test: async () => (await import('./dev/run-tests.ts')).test,
  bench: async () => (await import('./dev/bench.ts')).bench,
  docs: async () => (await import('./dev/docs.ts')).docs,
  serve: async () => (await import('./daemon/foreground.ts')).foreground,
}

const loadTools = async () => (await import('../../internal/tools/declarations/index.ts')).tools

export async function findCommand(name: string): Promise<Command> {
  if (Object.hasOwn(own, name)) return own[name]!()
  const tools = await loadTools()
  const tool = name.replaceAll('-', '_')
  if (Object.hasOwn(tools, tool)) return (await import('./tool-command/command.ts')).toolCommand(tools[tool]!)
  const near = nearest(name, [...Object.keys(own), ...Object.keys(tools)])
  throw new Usage(
    `there is no command "${name}"`,
    near ? `did you mean ${near}?` : './oubliette --help lists the commands',
  )
}

export async function commandHelp(name: string): Promise<string> {
  const { about, usage, help } = await findCommand(name)
  return [`usage: ./oubliette ${name} ${usage}`.trimEnd(), about, help]
    .filter(Boolean)
    .join('\n\n')
    .concat('\n')
}

const lines = (entries: [string, string][]) => {
  const width = Math.max(...entries.map(([name]) => name.length))
  return entries.map(([name, about]) => `  ${name.padEnd(width)}  ${about}`).join('\n')
}

export async function overview(): Promise<string> {
  const commands = await Promise.all(
    Object.entries(own).map(async ([name, load]): Promise<[string, string]> => [name, (await load()).about]),
  )
  const tools = Object.values(await loadTools()).map((tool): [string, string] => [tool.name, tool.about])
  return `usage: ./oubliette <command> [options]

A control plane for AI agents that live in containers.

commands
${lines(commands)}

tools, as commands for a running server
${lines(tools)}

Each command has its own --help. The environment (OUBLIETTE_HOME, OUBLIETTE_ADDRESS, DATABASE_URL, DOCKER_HOST and
more) is described in docs/configuration.md.
`
}
