// OpenSpec changes of a project, read from `openspec/changes/` of a workspace: what is proposed, and how far its
// task list is. Nothing is cached; the files are the truth.
import { Fault } from '../fault.ts'
import type { Workspaces } from './workspaces.ts'

const changesDir = 'openspec/changes'
const mostBytes = 1024 * 1024

export type Task = { number: string | null; section: string | null; text: string; done: boolean }

export function parseTasks(markdown: string): Task[] {
  const tasks: Task[] = []
  let section: string | null = null
  for (const line of markdown.split(/\r?\n/)) {
    const heading = /^#{2,6}\s+(.*\S)\s*$/.exec(line)
    if (heading) section = heading[1]!
    const item = /^\s*[-*]\s+\[([ xX])\]\s+(?:(\d+(?:\.\d+)*)\.?\s+)?(.*\S)\s*$/.exec(line)
    if (item) tasks.push({ number: item[2] ?? null, section, text: item[3]!, done: item[1] !== ' ' })
  }
  return tasks
}

const titleOf = (markdown: string | undefined) => /^#\s+(.*\S)\s*$/m.exec(markdown ?? '')?.[1] ?? null

export function createChanges(workspaces: Workspaces) {
  /** Undefined for what cannot be read as text: a droid may put anything in the place of a file. */
  async function text(
    project_id: string,
    workspace_id: string | undefined,
    path: string,
  ): Promise<string | undefined> {
    try {
      const range = { offset: 0, max_bytes: mostBytes }
      const { content, encoding } = await workspaces.readFile(project_id, workspace_id, path, range)
      return encoding === 'utf8' ? content : undefined
    } catch (error) {
      if (error instanceof Fault && ['not_found', 'invalid', 'conflict'].includes(error.kind))
        return undefined
      throw error
    }
  }

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

  async function read(project_id: string, workspace_id: string | undefined, path: string, archived: boolean) {
    const tasks = parseTasks((await text(project_id, workspace_id, `${path}/tasks.md`)) ?? '')
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
      title: titleOf(await text(project_id, workspace_id, `${path}/proposal.md`)),
      path,
      state,
      tasks_done: done,
      tasks_total: tasks.length,
    }
  }

  async function changes(project_id: string, options: { workspace_id?: string; include_archived: boolean }) {
    const { workspace_id } = options
    await workspaces.rootOf(project_id, workspace_id)
    const found = []
    for (const name of await directories(project_id, workspace_id, changesDir))
      if (name !== 'archive') found.push(await read(project_id, workspace_id, `${changesDir}/${name}`, false))
    if (options.include_archived)
      for (const name of await directories(project_id, workspace_id, `${changesDir}/archive`))
        found.push(await read(project_id, workspace_id, `${changesDir}/archive/${name}`, true))
    return { changes: found }
  }

  async function tasks(project_id: string, options: { workspace_id?: string; change?: string }) {
    const { changes: all } = await changes(project_id, {
      workspace_id: options.workspace_id,
      include_archived: options.change !== undefined,
    })
    const wanted = options.change === undefined ? all : all.filter(({ change }) => change === options.change)
    if (options.change !== undefined && wanted.length === 0)
      throw new Fault('not_found', `no change ${options.change}`, { hint: 'project_changes lists them' })
    const listed = []
    for (const { change, path } of wanted)
      for (const task of parseTasks((await text(project_id, options.workspace_id, `${path}/tasks.md`)) ?? ''))
        listed.push({ change, ...task })
    return { tasks: listed, done: listed.filter((task) => task.done).length, total: listed.length }
  }

  return { changes, tasks }
}
