// The other side: a process of its own that sends one request again and again over kept connections, and counts answers.
import { Agent, request } from 'node:http'

export type Work = {
  url: string
  headers: Record<string, string>
  body: string
  concurrency: number
  milliseconds: number
}
export type Done = { calls: number; calls_per_second: number }

const agent = new Agent({ keepAlive: true, maxSockets: 64 })

let last = 0
/** Requests that are under way together in one session must differ in their id. */
const numbered = (body: string) => body.replace(/"id":\d+/, `"id":${++last}`)

function once({ url, headers, body }: Work): Promise<void> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { agent, method: 'POST', headers })
    outgoing.on('error', reject)
    outgoing.on('response', (incoming) => {
      let text = ''
      incoming.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
      incoming.on('end', () => {
        if (incoming.statusCode === 200 && !text.includes('"isError":true') && text.includes('"result"'))
          resolve()
        else reject(new Error(`HTTP ${incoming.statusCode}: ${text.slice(0, 500)}`))
      })
    })
    outgoing.end(numbered(body))
  })
}

async function run(work: Work): Promise<Done> {
  let calls = 0
  const from = performance.now()
  const until = from + work.milliseconds
  const lane = async () => {
    while (performance.now() < until) {
      await once(work)
      calls += 1
    }
  }
  await Promise.all(Array.from({ length: work.concurrency }, lane))
  return { calls, calls_per_second: (calls / (performance.now() - from)) * 1000 }
}

process.on('message', (work: Work) => {
  run(work).then(
    (done) => process.send?.(done),
    (error: unknown) => {
      process.stderr.write(`${error}\n`)
      process.exit(1)
    },
  )
})
