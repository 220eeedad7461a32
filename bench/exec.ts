// A command in a container, through Oubliette and through the engine itself: `container exec` of `true`, and the time from
// a spawn to the first words of a shell droid. Measured in turns of several calls each, so that what else the machine does
// meets all of them, and what a call leaves behind (the engine tears an exec down after its answer) meets mostly its own kind.
import { median, report, startServer } from './sessions/server.ts'
import { follow } from './sessions/stream.ts'

const rounds = Number(process.argv[2] ?? 12)
const calls = 8
await using stack = new AsyncDisposableStack()
const server = await startServer(stack)
const container = await server.container()

/** To the first byte, and to the exit code. */
async function bare(command: string[]): Promise<{ first_ms: number; all_ms: number }> {
  const began = performance.now()
  const exec = await container.exec({ Cmd: command, AttachStdout: true, AttachStderr: true })
  const stream = await exec.start({})
  let first_ms = 0
  await new Promise((resolve, reject) => {
    stream.on('data', () => {
      first_ms ||= performance.now() - began
    })
    stream.on('end', resolve).on('error', reject)
  })
  await exec.inspect()
  return { first_ms, all_ms: performance.now() - began }
}

const heard = new Map<string, (at: number) => void>()
const stream = await follow(
  `${server.url}/projects/${server.project_id}/events`,
  server.token,
  ({ event, data }) => {
    if (event !== 'delta') return
    const mark = /mark-\d+/.exec(data)?.[0]
    if (mark) heard.get(mark)?.(performance.now())
  },
)
stack.defer(() => stream.close())

let count = 0
async function droid(): Promise<number> {
  const mark = `mark-${++count}`
  const said = new Promise<number>((resolve) => heard.set(mark, resolve))
  const began = performance.now()
  const spawned = server.spawn(`echo ${mark}`)
  const ms = (await said) - began
  heard.delete(mark)
  const { session_id } = await spawned
  await server.call('session', { action: 'end', session_id })
  return ms
}

async function ours(): Promise<number> {
  const began = performance.now()
  await server.call('container', { action: 'exec', project_id: server.project_id, command: ['true'] })
  return performance.now() - began
}

const kinds = {
  bare_true: async () => (await bare(['true'])).all_ms,
  our_true: ours,
  bare_echo: async () => (await bare(['bash', '-c', 'echo mark'])).first_ms,
  droid,
}
type Kind = keyof typeof kinds
/** By round. */
const seen: Record<Kind, number[][]> = { bare_true: [], our_true: [], bare_echo: [], droid: [] }
for (let round = -1; round < rounds; round++)
  for (const [kind, measure] of Object.entries(kinds) as [Kind, () => Promise<number>][]) {
    const times: number[] = []
    for (let call = 0; call < calls; call++) times.push(await measure())
    // In the first one compilers and caches get warm.
    if (round >= 0) seen[kind].push(times)
  }
const ratio = (a: Kind, b: Kind) =>
  median(seen[a].map((times, round) => median(times) / median(seen[b][round]!)))
const ms = (kind: Kind) =>
  `${median(seen[kind].flat()).toFixed(1)} ms (fastest ${Math.min(...seen[kind].flat()).toFixed(1)})`
const spawn_ratio = ratio('droid', 'bare_echo')
const exec_ratio = ratio('our_true', 'bare_true')
report('spawn to first event / engine exec, echo', `${ms('droid')} / ${ms('bare_echo')}`, {
  is: spawn_ratio,
  aim: '≤ 0.5',
  met: spawn_ratio <= 0.5,
})
report('container exec over MCP / engine exec, true', `${ms('our_true')} / ${ms('bare_true')}`, {
  is: exec_ratio,
  aim: '≤ 0.15',
  met: exec_ratio <= 0.15,
})
