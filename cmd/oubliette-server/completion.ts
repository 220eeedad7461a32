// `./oubliette completion SHELL`: a script that asks this program for the words that can follow, so that the names of
// projects and sessions are those of the running server.
import { callTool, endpoint, listProjects } from './client/call.ts'
import { type Command, options, place, Usage } from './command.ts'
import { baseUrl } from './daemon/daemon.ts'
import { flagOf } from './tool-command/fields.ts'
import { type ActionEntry, kebab, type Manifest, readManifest } from './tool-command/manifest.ts'
import { formats } from './tool-command/output/show.ts'

const scripts: Record<string, string> = {
  bash: `_oubliette() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -W "$("\${COMP_WORDS[0]}" __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _oubliette oubliette ./oubliette
`,
  zsh: `#compdef oubliette
_oubliette() {
  local -a words_found
  words_found=("\${(@f)$("\${words[1]}" __complete "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -a words_found || _files
}
compdef _oubliette oubliette ./oubliette
`,
  fish: `function __oubliette_complete
  set -l words (commandline -opc) (commandline -ct)
  $words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c oubliette -a '(__oubliette_complete)'
`,
}

/** What the server knows; the tests give their own. */
export type Names = { projects(): Promise<string[]>; sessions(): Promise<string[]> }

function serverNames(): Names {
  const config = place()
  const where = endpoint(config, baseUrl(config))
  return {
    projects: async () => (await listProjects(where)).map(({ name }) => name),
    async sessions() {
      const { sessions } = await callTool(where, 'session', { action: 'list', limit: 200 })
      return (sessions as { session_id: string }[]).map(({ session_id }) => session_id)
    },
  }
}

async function valuesOf(action: ActionEntry, name: string, names: Names): Promise<string[]> {
  if (name === 'project_id') return await names.projects()
  if (name === 'session_id' || name === 'parent_session_id') return await names.sessions()
  return action.fields.find((field) => field.name === name)?.choices ?? []
}

async function ofAction(action: ActionEntry, words: string[], last: string, names: Names): Promise<string[]> {
  const before = words.at(-1) ?? ''
  if (before === '-o' || before === '--output') return [...formats]
  const field = action.fields.find((one) => flagOf(one) === before)
  if (field && !field.kinds.includes('boolean')) return await valuesOf(action, field.name, names)
  if (last.startsWith('-')) return [...action.fields.map(flagOf), '--output', '--quiet', '--help']
  const filled = words.filter((word, index) => {
    const flag = action.fields.find((one) => flagOf(one) === words[index - 1])
    return !word.startsWith('-') && (!flag || flag.kinds.includes('boolean'))
  }).length
  const next = action.positional[filled]
  return next === undefined ? [] : await valuesOf(action, next, names)
}

/** The words that can replace the last one. */
export async function candidates(
  words: string[],
  { manifest, commands, names }: { manifest: Manifest; commands: string[]; names: () => Names },
): Promise<string[]> {
  const last = words.at(-1) ?? ''
  const [name, ...rest] = words.slice(0, -1)
  if (name === undefined) return [...commands, ...Object.keys(manifest).map(kebab)]
  if (name === 'completion') return Object.keys(scripts)
  if (name === 'help') return rest.length > 0 ? [] : [...commands, ...Object.keys(manifest).map(kebab)]
  if (name === 'logs') return last.startsWith('-') ? ['--follow', '--lines'] : await names().sessions()
  if (name === 'run' && rest.at(-1) === '--project') return await names().projects()
  if (name === 'shell' && rest.length === 0)
    return last.startsWith('-') ? ['--workspace'] : await names().projects()
  if (name === 'cp') return (await names().projects()).map((project) => `${project}:`)
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
      .filter((word) => word.startsWith(last))
      .map((word) => `${word}\n`)
      .join(''),
  )
  return 0
}

export const completion: Command = {
  about: 'Print a completion script for a shell',
  usage: 'bash|zsh|fish',
  details: 'Completes commands, options, and the names of projects and sessions of the running server.',
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
