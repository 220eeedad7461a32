// How fast the git traffic of one container passes through the server, all its requests and both directions together: moving
// bytes costs the server's time, which belongs to all containers.
import { Transform } from 'node:stream'
import { LRUCache } from 'lru-cache'

const burstMs = 100
const remembered = 10_000

export function createThrottle(bytes_per_second: number, now: () => number = () => performance.now()) {
  /** By container: until when what it has moved takes, at this rate. */
  const busy_until = new LRUCache<string, number>({ max: remembered })

  return (project_id: string): Transform =>
    new Transform({
      transform(chunk: Buffer, _encoding, done) {
        const begin = Math.max(now(), busy_until.get(project_id) ?? 0)
        busy_until.set(project_id, begin + (chunk.length / bytes_per_second) * 1000)
        const wait_ms = begin - now() - burstMs
        if (wait_ms <= 0) done(null, chunk)
        else setTimeout(done, wait_ms, null, chunk)
      },
    })
}
