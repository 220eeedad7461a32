// Many subscribers on one session: each gets everything, and how long after it was said.
import { median, report, startServer } from './sessions/server.ts'
import { follow } from './sessions/stream.ts'

const subscribers = Number(process.argv[2] ?? 200)
const lines = Number(process.argv[3] ?? 300)
await using stack = new AsyncDisposableStack()
const server = await startServer(stack)

const { session_id } = await server.spawn(
  `until [ -e go ]; do sleep 0.05; done; i=0; while [ $i -lt ${lines} ]; do i=$((i+1)); echo "t $(date +%s%3N)"; sleep 0.03; done`,
)
const late: number[] = []
const counts = new Array<number>(subscribers).fill(0)
const over = Promise.withResolvers<void>()
let finished = 0
const received = new Array<number>(subscribers).fill(0)
for (let at = 0; at < subscribers; at++) {
  const stream = await follow(
    `${server.url}/sessions/${session_id}/events`,
    server.token,
    ({ event, data }) => {
      const now = Date.now()
      received[at]! += 1
      // The completion repeats the end of what was said.
      const said = event === 'delta' ? (data.match(/t (\d{13})/g) ?? []) : []
      counts[at]! += said.length
      for (const one of said) late.push(now - Number(one.slice(2)))
      if (event === 'completion' && ++finished === subscribers) over.resolve()
    },
  )
  stack.defer(() => stream.close())
}
const began = performance.now()
await server.call('container', { action: 'exec', project_id: server.project_id, command: 'touch go' })
await over.promise
const seconds = (performance.now() - began) / 1000
const wrong = counts.filter((count) => count !== lines).length
const total = received.reduce((sum, count) => sum + count, 0)
const at99 = late.toSorted((a, b) => a - b)[Math.floor(late.length * 0.99)]!
report(
  `${subscribers} subscribers on one session`,
  `${total} events in ${seconds.toFixed(1)} s, ${wrong} subscribers with a gap or a double; ${median(late)} ms after it was said (median), ${at99} ms (p99); server ${(await server.peakMegabytes()).server.toFixed(0)} MB`,
)
if (wrong > 0) process.exitCode = 1
