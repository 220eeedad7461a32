// The skills that a droid finds: `SKILL.md` files in its workspace, in its home directory and in the image. The first two are
// read through `internal/files`, the last one by a command in the container. The number and the size of files are bounded,
// because droids write them.
import { Fault } from '../../fault.ts'
import * as files from '../../files/files.ts'
import type { Relay } from '../../relay/relay.ts'
import type { Store } from '../../store/open.ts'
import { requireProject } from '../project/require.ts'
import { containerPaths, type Layout } from '../workspace/layout.ts'
import type { Workspaces } from '../workspace/workspaces.ts'

type Skill = { name: string; description: string; source: 'workspace' | 'home' | 'image'; path: string }
type Deps = {
  store: Store
  layout: Layout
  owner: { uid: number; gid: number }
  workspaces: Workspaces
  relay: Pick<Relay, 'supervisor'>
  paused: (project_id: string) => boolean
}

/** Directories in which the known agents look for skills, each in a directory of its own. */
const skillDirs = [
  '.claude/skills',
  '.agents/skills',
  '.codex/skills',
  '.factory/skills',
  '.gemini/skills',
  '.opencode/skill',
  '.opencode/skills',
  '.config/opencode/skill',
  '.config/opencode/skills',
  'skills',
]
const mostSkills = 200
/** A skill begins with its name and description; the instructions after them are not read. */
const headBytes = 8 * 1024
const mostName = 100
const mostDescription = 500

/** Prints path and beginning of each file, each followed by a NUL byte. */
const readImage = `set -- /etc/*/skills/*/SKILL.md /etc/*/.claude/skills/*/SKILL.md /usr/share/skills/*/SKILL.md /usr/local/share/skills/*/SKILL.md
for file; do [ -f "$file" ] || continue; printf '%s\\0' "$file"; head -c ${headBytes} "$file" | tr -d '\\0'; printf '\\0'; done`
const imageSeconds = 10

const clip = (text: string, most: number) => text.slice(0, most).toWellFormed()
const unquoted = (text: string) => /^(["'])(.*)\1$/.exec(text)?.[2] ?? text

/** The `name` and `description` of the front matter. Each line is looked at once. */
export function parseSkill(text: string, directory: string): { name: string; description: string } {
  const lines = text.split('\n').map((line) => line.trimEnd())
  const found: Record<string, string> = {}
  if (lines[0] === '---') {
    let field: string | undefined
    for (const line of lines.slice(1)) {
      if (line === '---') break
      const start = /^(\w+):\s*(.*)$/.exec(line)
      if (start) {
        field = start[1]!
        // `>` and `|` announce text on the lines that follow.
        found[field] = /^[>|][+-]?$/.test(start[2]!) ? '' : unquoted(start[2]!)
      } else if (field && /^\s+\S/.test(line)) found[field] = `${found[field]} ${line.trim()}`.trimStart()
    }
  }
  return {
    name: clip(found.name || directory, mostName),
    description: clip(found.description ?? '', mostDescription),
  }
}

const isUnreadable = (error: unknown) =>
  error instanceof Fault && ['not_found', 'invalid', 'conflict'].includes(error.kind)

export function createSkills({ store, layout, owner, workspaces, relay, paused }: Deps) {
  /** Undefined instead of a fault: a droid may put anything in the place of a file or directory. */
  async function attempt<T>(read: Promise<T>): Promise<T | undefined> {
    try {
      return await read
    } catch (error) {
      if (isUnreadable(error)) return undefined
      throw error
    }
  }

  async function below(root: files.Root, source: Skill['source'], skills: Skill[]): Promise<boolean> {
    for (const directory of skillDirs) {
      const listed = await attempt(files.listDir(root, directory, { limit: mostSkills }))
      for (const { name, type } of listed?.entries ?? []) {
        if (type !== 'directory') continue
        if (skills.length >= mostSkills) return true
        const path = `${directory}/${name}/SKILL.md`
        const file = await attempt(files.readFile(root, path, { offset: 0, max_bytes: headBytes }))
        if (file?.encoding !== 'utf8') continue
        skills.push({ ...parseSkill(file.content, name), source, path: `${root.inside}/${path}` })
      }
      if (listed?.next_cursor) return true
    }
    return false
  }

  async function ofImage(project_id: string, skills: Skill[]): Promise<{ read: boolean; cut: boolean }> {
    const link = relay.supervisor(project_id)
    if (!link || paused(project_id)) return { read: false, cut: false }
    const { stdout, truncated, exit_code } = await link.send('exec', {
      command: ['/bin/sh', '-c', readImage],
      timeout_seconds: imageSeconds,
      output_bytes: mostSkills * headBytes,
    })
    const parts = stdout.split('\0')
    for (let at = 0; at + 1 < parts.length && skills.length < mostSkills; at += 2) {
      const path = clip(parts[at]!, mostDescription)
      const directory = path.split('/').at(-2) ?? ''
      skills.push({ ...parseSkill(parts[at + 1]!, directory), source: 'image', path })
    }
    return { read: exit_code === 0, cut: truncated }
  }

  return async function skills(project_id: string, workspace_id: string | undefined) {
    await requireProject(store.db, project_id)
    const workspace = await workspaces.rootOf(project_id, workspace_id)
    const home = { ...workspace, host: layout.droidHome(project_id), inside: containerPaths.home, ...owner }
    const found: Skill[] = []
    const cut = [await below(workspace, 'workspace', found), await below(home, 'home', found)]
    const image = await ofImage(project_id, found)
    return {
      skills: found,
      truncated: cut.includes(true) || image.cut || found.length >= mostSkills,
      image_read: image.read,
    }
  }
}
