// The connections of containers that speak HTTP to the server. No client of a model or of a git remote sends requests ahead
// of the answers, and a thousand of them in one piece would be read in one go, which stops everybody. A container that does
// so loses all its connections, and gets none for a moment.
import type { Socket } from 'node:net'

const barredMs = 10_000
/** More than one, so that a request which overtakes the end of the last answer is nobody's fault. */
const mostAhead = 4

export function createConnections(now: () => number = () => performance.now()) {
  const projects = new WeakMap<Socket, string>()
  const open = new Map<string, Set<Socket>>()
  const barred = new Map<string, number>()
  const under_way = new WeakMap<Socket, number>()

  function bar(project_id: string): void {
    barred.set(project_id, now() + barredMs)
    for (const socket of open.get(project_id) ?? []) socket.destroy()
  }

  return {
    projectOf: (socket: Socket): string | undefined => projects.get(socket),
    /** False: it was destroyed. */
    add(project_id: string, socket: Socket): boolean {
      if ((barred.get(project_id) ?? 0) > now()) {
        socket.destroy()
        return false
      }
      barred.delete(project_id)
      projects.set(socket, project_id)
      const mine = open.get(project_id) ?? new Set()
      open.set(project_id, mine.add(socket))
      socket.once('close', () => {
        mine.delete(socket)
        if (mine.size === 0 && open.get(project_id) === mine) open.delete(project_id)
      })
      return true
    },
    /** What ends the request; nothing if it must not be. */
    begin(socket: Socket): (() => void) | undefined {
      const project_id = projects.get(socket)
      if (project_id === undefined || socket.destroyed) return undefined
      const ahead = under_way.get(socket) ?? 0
      if (ahead === mostAhead) {
        bar(project_id)
        return undefined
      }
      const change = (by: number) => void under_way.set(socket, (under_way.get(socket) ?? 0) + by)
      change(1)
      return () => change(-1)
    },
  }
}
