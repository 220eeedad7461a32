// `./oubliette completion SHELL`: a script that asks this program for the words that can follow, so that the names of
// projects and sessions are those of the running server.
import { callTool, endpoint } from './client/call.ts'
import { type Command, options, place, Usage } from './command.ts'
import { findCommand } from './commands.ts'
import { baseUrl } from './daemon/daemon.ts'
import { flagOf } from './tool-command/fields.ts'
import { type ActionEntry, kebab, type Manifest, readManifest } from './tool-command/manifest.ts'
import { formats } from './tool-command/output/show.ts'
import { listSessions } from './tool-command/session-reference.ts'

// Projects and workspaces have names that tenants choose. No script may let the shell evaluate a candidate: `compgen -W` of
// bash would run a command substitution in a name.
const scripts: Record<string, string> = {
  bash: `_oubliette() {
  local word quoted
  COMPREPLY=()
  while IFS= read -r word; do
    printf -v quoted %q "$word"
    COMPREPLY+=("$quoted")
  done < <("\${COMP_WORDS[0]}" __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _oubliette oubliette ./oubliette
`,
  zsh: `#compdef oubliette ./oubliette
_oubliette() {
  local -a found
  found=("\${(@f)$("\${words[1]}" __complete "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found[1]" ]]; then compadd -a found; else _files; fi
}
compdef _oubliette oubliette ./oubliette
`,
  fish: `function __oubliette_complete
  set -l words (commandline -opc)
  set -l last (commandline -ct)
  set -l program $words[1]
  set -e words[1]
  $program __complete $words "$last" 2>/dev/null
end
complete -c oubliette -a '(__oubliette_complete)'
`,
}

/** What the server knows; the tests give their own. */
export type Names = {
  projects(start: string): Promise<string[]>
  sessions(): Promise<string[]>
  workspaces(project: string): Promise<string[]>
}

function serverNames(): Names {
  const config = place()
  const where = endpoint(config, baseUrl(config))
  return {
    async projects(start) {
      const filter = start === '' ? {} : { name_contains: start }
      const { projects } = await callTool(where, 'project', { action: 'list', limit: 200, ...filter })
      return (projects as { name: string }[]).map(({ name }) => name)
    },
    sessions: async () => (await listSessions(where)).map(({ session_id }) => session_id),
    async workspaces(project_id) {
      const { workspaces } = await callTool(where, 'workspace', { action: 'list', project_id, limit: 200 })
      return (workspaces as { workspace_id: string }[]).map(({ workspace_id }) => workspace_id)
    },
  }
}

/** What the words of an action mean: its flags with their values, and the plain words in their order. */
function read(action: ActionEntry, words: string[]): { flags: Map<string, string>; plain: string[] } {
  const flags = new Map<string, string>()
  const plain: string[] = []
  for (let at = 0; at < words.length; at++) {
    const field = action.fields.find((one) => flagOf(one) === words[at])
    if (field && !field.kinds.includes('boolean')) flags.set(field.name, words[++at] ?? '')
    else if (!words[at]!.startsWith('-')) plain.push(words[at]!)
  }
  return { flags, plain }
}

async function ofAction(action: ActionEntry, words: string[], last: string, names: Names): Promise<string[]> {
  const before = words.at(-1) ?? ''
  if (before === '-o' || before === '--output') return [...formats]
  const { flags, plain } = read(action, words)
  const field = action.fields.find((one) => flagOf(one) === before && !one.kinds.includes('boolean'))
  if (!field && last.startsWith('-')) return [...action.fields.map(flagOf), '--output', '--quiet', '--help']
  const name = field?.name ?? action.positional[plain.length]
  if (name === 'project_id') return await names.projects(last)
  if (name === 'session_id' || name === 'parent_session_id') return await names.sessions()
  if (name === 'workspace_id') {
    const project = flags.get('project_id') ?? plain[action.positional.indexOf('project_id')]
    return project ? await names.workspaces(project) : []
  }
  return action.fields.find((one) => one.name === name)?.choices ?? []
}

/** The first word after these commands. */
const subjects: Record<string, 'sessions' | 'projects'> = {
  logs: 'sessions',
  attach: 'sessions',
  chat: 'sessions',
  shell: 'projects',
}

async function ofOwn(name: string, words: string[], last: string, names: () => Names): Promise<string[]> {
  const before = words.at(-1)
  if (name === 'cp' && !last.startsWith('-'))
    return (await names().projects(last)).map((project) => `${project}:`)
  if (before === '--project') return await names().projects(last)
  if (before === '--session') return await names().sessions()
  if (last.startsWith('-')) {
    const { options: flags = [] } = await findCommand(name)
    return ['--help', ...flags.flatMap(([flag]) => /--[a-z-]+/.exec(flag) ?? [])]
  }
  const subject = words.every((word) => word.startsWith('-')) ? subjects[name] : undefined
  if (subject === 'sessions') return await names().sessions()
  return subject === 'projects' ? await names().projects(last) : []
}

/** The words that can replace the last one. */
export async function candidates(
  words: string[],
  { manifest, commands, names }: { manifest: Manifest; commands: string[]; names: () => Names },
): Promise<string[]> {
  const last = words.at(-1) ?? ''
  const [name, ...rest] = words.slice(0, -1)
  const all = [...commands, ...Object.keys(manifest).map(kebab)]
  if (name === undefined) return all
  if (name === 'completion') return rest.length > 0 ? [] : Object.keys(scripts)
  if (name === 'help') return rest.length > 0 ? [] : all
  if (commands.includes(name)) return await ofOwn(name, rest, last, names)
  const tool = manifest[name.replaceAll('-', '_')]
  if (!tool) return []
  if (!tool.unified) return await ofAction(Object.values(tool.actions)[0]!, rest, last, names())
  const [word, ...others] = rest
  if (word === undefined) return Object.keys(tool.actions).map(kebab)
  const action = tool.actions[word.replaceAll('-', '_')]
  return action ? await ofAction(action, others, last, names()) : []
}

/** Called by the scripts. Without a server there are no names, and no message that would disturb the line. */
export async function complete(words: string[], commands: string[]): Promise<number> {
  const found = await candidates(words, { manifest: readManifest(), commands, names: serverNames }).catch(
    () => [],
  )
  const last = words.at(-1) ?? ''
  process.stdout.write(
    found
      .filter((word) => word.toLowerCase().startsWith(last.toLowerCase()))
      .map((word) => `${word}\n`)
      .join(''),
  )
  return 0
}

export const completion: Command = {
  about: 'Print a completion script for a shell',
  usage: 'bash|zsh|fish',
  details: 'Completes commands, options, and the projects, workspaces and sessions of the running server.',
  examples: [
    'source <(./oubliette completion bash)',
    './oubliette completion zsh > ~/.zfunc/_oubliette',
    './oubliette completion fish > ~/.config/fish/completions/oubliette.fish',
  ],
  async run(args) {
    const { positionals } = options(args, {}, true)
    const [shell = ''] = positionals
    if (positionals.length !== 1 || !Object.hasOwn(scripts, shell))
      throw new Usage('expected one SHELL: bash, zsh or fish')
    process.stdout.write(scripts[shell]!)
    return 0
  },
}
