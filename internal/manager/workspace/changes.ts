// OpenSpec changes of a project, read from `openspec/changes/` of a workspace, with the progress of their task lists. Nothing is
// cached.
import { Fault } from '../../fault.ts'
import type { Workspaces } from './workspaces.ts'

const changesDir = 'openspec/changes'
const mostBytes = 1024 * 1024
/** Per call, over all files: bounds the work that files of a droid cause. */
const mostBytesInAll = 8 * 1024 * 1024
const mostTasks = 5_000
const mostCharacters = 1_000

export type Task = { number: string | null; section: string | null; text: string; done: boolean }

const clip = (text: string) =>
  text.length > mostCharacters ? `${text.slice(0, mostCharacters).toWellFormed()}…` : text

/** The rest of a line after a prefix and white space; undefined if the line does not start with it. */
const behind = (line: string, beginning: RegExp): string | undefined => {
  const found = beginning.exec(line)
  return found ? line.slice(found[0].length).trimStart() || undefined : undefined
}

// Each expression is anchored and cannot backtrack, so that a line is read once: a file may be one line of a million spaces.
export function parseTasks(markdown: string): Task[] {
  const tasks: Task[] = []
  let section: string | null = null
  for (const raw of markdown.split('\n')) {
    // No heading or task is shorter, and a file may have a million empty lines.
    if (raw.length < 4) continue
    const line = raw.trimEnd()
    const heading = behind(line, /^#{2,6}(?=\s)/)
    if (heading) section = clip(heading)
    const box = /^\s*[-*]\s+\[([ xX])\](?=\s)/.exec(line)
    const item = box ? line.slice(box[0].length).trimStart() : ''
    if (!box || item === '') continue
    const number = /^(\d+(?:\.\d+)*)\.?(?=\s)/.exec(item)
    const text = number ? item.slice(number[0].length).trimStart() : item
    tasks.push({ number: number ? clip(number[1]!) : null, section, text: clip(text), done: box[1] !== ' ' })
    if (tasks.length === mostTasks) break
  }
  return tasks
}

function titleOf(markdown: string | undefined): string | null {
  for (const raw of (markdown ?? '').split('\n')) {
    const title = behind(raw.trimEnd(), /^#(?=\s)/)
    if (title) return clip(title)
  }
  return null
}

export function createChanges(workspaces: Workspaces) {
  /** Reads files up to a total size; then `used_up` is true and the rest is left out. */
  function createReader(project_id: string, workspace_id: string | undefined) {
    let left = mostBytesInAll
    return {
      get used_up() {
        return left <= 0
      },
      /** Undefined if it cannot be read as text: a droid may put anything in the place of a file. */
      async text(path: string): Promise<string | undefined> {
        try {
          const range = { offset: 0, max_bytes: mostBytes }
          const { content, encoding } = await workspaces.readFile(project_id, workspace_id, path, range)
          left -= content.length
          return encoding === 'utf8' ? content : undefined
        } catch (error) {
          if (error instanceof Fault && ['not_found', 'invalid', 'conflict'].includes(error.kind))
            return undefined
          throw error
        }
      },
    }
  }
  type Reader = ReturnType<typeof createReader>

  async function directories(
    project_id: string,
    workspace_id: string | undefined,
    path: string,
  ): Promise<string[]> {
    const info = await workspaces.pathInfo(project_id, workspace_id, path)
    if (!info.exists) return []
    const { entries } = await workspaces.listDir(project_id, workspace_id, path, { limit: 1000 })
    return entries.filter((entry) => entry.type === 'directory').map((entry) => entry.name)
  }

  async function read(reader: Reader, path: string, archived: boolean) {
    const tasks = parseTasks((await reader.text(`${path}/tasks.md`)) ?? '')
    const done = tasks.filter((task) => task.done).length
    const state = archived
      ? 'archived'
      : tasks.length > 0 && done === tasks.length
        ? 'complete'
        : done > 0
          ? 'in_progress'
          : 'proposed'
    return {
      change: path.slice(path.lastIndexOf('/') + 1),
      title: titleOf(await reader.text(`${path}/proposal.md`)),
      path,
      state,
      tasks_done: done,
      tasks_total: tasks.length,
    }
  }

  async function pathsOf(
    project_id: string,
    options: { workspace_id?: string; include_archived: boolean },
  ): Promise<{ path: string; archived: boolean }[]> {
    const { workspace_id } = options
    await workspaces.rootOf(project_id, workspace_id)
    const names = await directories(project_id, workspace_id, changesDir)
    const found = names
      .filter((name) => name !== 'archive')
      .map((name) => ({ path: `${changesDir}/${name}`, archived: false }))
    if (options.include_archived)
      for (const name of await directories(project_id, workspace_id, `${changesDir}/archive`))
        found.push({ path: `${changesDir}/archive/${name}`, archived: true })
    return found
  }

  async function changes(project_id: string, options: { workspace_id?: string; include_archived: boolean }) {
    const reader = createReader(project_id, options.workspace_id)
    const found = []
    for (const { path, archived } of await pathsOf(project_id, options)) {
      if (reader.used_up) return { changes: found, truncated: true }
      found.push(await read(reader, path, archived))
    }
    return { changes: found, truncated: false }
  }

  async function tasks(project_id: string, options: { workspace_id?: string; change?: string }) {
    const { workspace_id, change: only } = options
    const reader = createReader(project_id, workspace_id)
    const all = await pathsOf(project_id, { workspace_id, include_archived: only !== undefined })
    const wanted = all
      .map(({ path }) => ({ path, change: path.slice(path.lastIndexOf('/') + 1) }))
      .filter(({ change }) => only === undefined || change === only)
    if (only !== undefined && wanted.length === 0)
      throw new Fault('not_found', `no change ${only}`, { hint: 'project_changes lists them' })
    const listed: (Task & { change: string })[] = []
    let truncated = false
    for (const { change, path } of wanted) {
      truncated = reader.used_up || listed.length >= mostTasks
      if (truncated) break
      for (const task of parseTasks((await reader.text(`${path}/tasks.md`)) ?? ''))
        listed.push({ change, ...task })
    }
    return {
      tasks: listed,
      done: listed.filter((task) => task.done).length,
      total: listed.length,
      truncated,
    }
  }

  return { changes, tasks }
}
