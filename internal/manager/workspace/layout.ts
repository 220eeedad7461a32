// The paths of a project, on the host and in its container. Only `containerPaths` are mounted; control data stays in the
// database.
import { join } from 'node:path'

export const containerPaths = {
  workspaces: '/workspaces',
  home: '/home/droid',
  socket: '/run/oubliette',
  client: '/opt/oubliette',
  groups: '/etc/group',
} as const

export function layoutOf(home: string) {
  const projects = join(home, 'projects')
  const sockets = join(home, 'sockets')
  return {
    home,
    projects,
    sockets,
    project: (project_id: string) => join(projects, project_id),
    workspaces: (project_id: string) => join(projects, project_id, 'workspaces'),
    workspace: (project_id: string, workspace_id: string) =>
      join(projects, project_id, 'workspaces', workspace_id),
    droidHome: (project_id: string) => join(projects, project_id, 'home'),
    trash: join(home, 'trash'),
    /** Where things are moved aside: the first of these on the same file system as the projects is used. */
    lost: (...parts: string[]): string[] => {
      const date = new Date().toISOString().slice(0, 10)
      return [join(home, 'lost', date, ...parts), join(projects, '.lost', date, ...parts)]
    },
    groups: (project_id: string) => join(projects, project_id, 'group'),
    // Shortened: the path of a Unix socket has at most 107 bytes.
    socketDir: (project_id: string) => join(sockets, project_id.replaceAll('-', '').slice(0, 16)),
  }
}
export type Layout = ReturnType<typeof layoutOf>
