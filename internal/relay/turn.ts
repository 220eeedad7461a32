// How long the frames of all containers together are worked on before the event loop turns: whoever else waits, over HTTP
// for one, waits no longer than this and one frame. There is one event loop, so there is one of this.
const turnMs = 5
let began: number | undefined

export function turnIsOver(): boolean {
  if (began !== undefined) return performance.now() - began > turnMs
  began = performance.now()
  setImmediate(() => {
    began = undefined
  })
  return false
}
