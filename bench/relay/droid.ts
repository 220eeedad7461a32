// The droid of the benchmark: one connection to the socket, a number of calls at once and in all; prints its times.
// Usage: droid.ts SOCKET KEY; then messages {at_once, calls} → {times_ms, seconds}
import { randomUUID } from 'node:crypto'
import { createConnection } from 'node:net'

const [path = '', api_key = ''] = process.argv.slice(2)
const socket = createConnection(path)
const waiting = new Map<number, (message: { result?: unknown; error?: unknown }) => void>()
let last = 0
let left = ''
socket.setEncoding('utf8').on('data', (chunk: string) => {
  const lines = (left + chunk).split('\n')
  left = lines.pop() ?? ''
  for (const line of lines) {
    const message = JSON.parse(line)
    const take = waiting.get(message.id)
    waiting.delete(message.id)
    take?.(message)
  }
})

const ask = (method: string, params: object) =>
  new Promise<{ result?: unknown; error?: unknown }>((resolve) => {
    const id = ++last
    waiting.set(id, resolve)
    socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`)
  })

async function run(at_once: number, calls: number) {
  const times_ms: number[] = []
  let begun = 0
  const from = performance.now()
  const lane = async () => {
    while (begun < calls) {
      const number = ++begun
      const at = performance.now()
      const said = await ask('caller_tool', {
        tool: 'bench_echo',
        arguments: { number },
        call_id: randomUUID(),
      })
      times_ms.push(performance.now() - at)
      if ((said.result as { number?: number })?.number !== number)
        throw new Error(`call ${number} got ${JSON.stringify(said)}`)
    }
  }
  await Promise.all(Array.from({ length: at_once }, lane))
  return { times_ms, seconds: (performance.now() - from) / 1000 }
}

process.on('message', async ({ at_once, calls }: { at_once: number; calls: number }) => {
  process.send?.(await run(at_once, calls))
})
process.on('disconnect', () => process.exit(0))
await ask('hello', { role: 'droid', api_key })
process.send?.('ready')
