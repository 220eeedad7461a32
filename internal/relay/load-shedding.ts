// All connections of one container together may have the server hold only so much, however many they are. What is beyond
// that costs the connection that holds the most.
import { Fault } from '../fault.ts'
import type { Load, Peer } from '../protocol/peer.ts'

const containerLoad: Load = { requests: 8192, bytes: 128 * 1024 * 1024 }

/** Looks once in a turn of the event loop, however often it is called. */
export function createLoadShedding(peers: () => Peer[], most: Load = containerLoad): () => void {
  let looking = false

  function relieve(what: keyof Load, words: string): void {
    const loads = peers().map((peer) => ({ peer, held: peer.load[what] }))
    let sum = loads.reduce((total, { held }) => total + held, 0)
    if (sum <= most[what]) return
    for (const { peer, held } of loads.sort((one, other) => other.held - one.held)) {
      if (sum <= most[what]) return
      peer.close(new Fault('exhausted', `its container has more than ${most[what]} ${words}`))
      sum -= held
    }
  }

  return () => {
    if (looking) return
    looking = true
    setImmediate(() => {
      looking = false
      relieve('requests', 'open requests')
      relieve('bytes', 'bytes on their way')
    })
  }
}
