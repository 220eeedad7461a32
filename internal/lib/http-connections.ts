// The HTTP connections of containers. Clients of models and git remotes do not pipeline requests, and Node would process
// thousands of pipelined requests in one iteration of the event loop. A container that pipelines loses all its connections and
// is barred for a moment.
import type { Socket } from 'node:net'

const barredMs = 10_000
/** More than one, because a request may arrive before the end of the previous answer is processed. */
const maxPipelined = 4

export function createConnections(now: () => number = () => performance.now()) {
  const projects = new WeakMap<Socket, string>()
  const open = new Map<string, Set<Socket>>()
  const barred = new Map<string, number>()
  const pipelined = new WeakMap<Socket, number>()

  function bar(project_id: string): void {
    barred.set(project_id, now() + barredMs)
    for (const socket of open.get(project_id) ?? []) socket.destroy()
  }

  return {
    projectOf: (socket: Socket): string | undefined => projects.get(socket),
    /** False if the socket was destroyed. */
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
    /** Returns the function to call at the end of the request; undefined if the request must be ignored. */
    begin(socket: Socket): (() => void) | undefined {
      const project_id = projects.get(socket)
      if (project_id === undefined || socket.destroyed) return undefined
      const ahead = pipelined.get(socket) ?? 0
      if (ahead === maxPipelined) {
        bar(project_id)
        return undefined
      }
      const change = (by: number) => void pipelined.set(socket, (pipelined.get(socket) ?? 0) + by)
      change(1)
      return () => change(-1)
    },
  }
}
