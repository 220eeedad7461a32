// Bounds what all connections of one container together make the server hold. When the bound is exceeded, the connections that
// hold the most are closed.
import { Fault } from '../fault.ts'
import type { Load, Peer } from '../protocol/peer.ts'

const containerLoad: Load = { requests: 8192, bytes: 128 * 1024 * 1024 }

/** Checks once per iteration of the event loop, however often it is called. */
export function createLoadShedding(peers: () => Peer[], most: Load = containerLoad): () => void {
  let checking = false

  function shed(what: keyof Load, words: string): void {
    const loads = peers().map((peer) => ({ peer, held: peer.load[what] }))
    let sum = loads.reduce((total, { held }) => total + held, 0)
    if (sum <= most[what]) return
    for (const { peer, held } of loads.sort((one, other) => other.held - one.held)) {
      if (sum <= most[what]) return
      peer.close(new Fault('exhausted', `the container exceeds its limit of ${most[what]} ${words}`))
      sum -= held
    }
  }

  return () => {
    if (checking) return
    checking = true
    setImmediate(() => {
      checking = false
      shed('requests', 'open requests')
      shed('bytes', 'buffered bytes')
    })
  }
}
