// A droid that starts many MCP servers as agents do, measures them, and attacks what they share. Bundled into a workspace and
// run by a shell droid: sessions.mjs COUNT OUTPUT
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

const count = Number(process.argv[2])
const output = process.argv[3]!
const env = process.env as Record<string, string>
const port = Number(env.OUBLIETTE_MCP_PORT)

type Started = { client: Client; pid: number }

async function start(more: Record<string, string> = {}): Promise<Started> {
  const client = new Client({ name: 'droid', version: '1' })
  const transport = new StdioClientTransport({
    command: 'oubliette-client',
    args: ['mcp'],
    env: { ...env, ...more },
  })
  await client.connect(transport)
  await client.listTools()
  return { client, pid: transport.pid ?? 0 }
}

type Process = { pid: number; ppid: number; command: string }
function processes(): Process[] {
  return readdirSync('/proc').flatMap((name) => {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'latin1')
      const [state, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      const command = readFileSync(`/proc/${name}/cmdline`, 'latin1').replaceAll('\0', ' ')
      return state === 'Z' ? [] : [{ pid: Number(name), ppid: Number(ppid), command }]
    } catch {
      return []
    }
  })
}
const familyOf = (pid: number) =>
  processes()
    .filter((it) => it.pid === pid || it.ppid === pid)
    .map((it) => it.pid)
const shared = () => processes().find(({ command }) => command.includes(' mcp-shared'))?.pid
const supervisor = () => processes().find(({ command }) => command.includes(' supervise'))?.pid

/** In KiB, of several processes together. */
function memoryOf(pids: number[]): { rss: number; pss: number } {
  const sum = { rss: 0, pss: 0 }
  for (const pid of pids) {
    const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1')
    sum.rss += Number(/^Rss:\s+(\d+)/m.exec(text)?.[1])
    sum.pss += Number(/^Pss:\s+(\d+)/m.exec(text)?.[1])
  }
  return sum
}

async function latency({ client }: Started): Promise<number> {
  const times: number[] = []
  for (let n = 0; n < 50; n++) {
    const before = performance.now()
    await client.callTool({ name: 'oubliette_project', arguments: { action: 'list' } })
    times.push(performance.now() - before)
  }
  return times.sort((a, b) => a - b)[25]!
}

async function until(condition: () => boolean, ms = 10_000): Promise<boolean> {
  for (const end = performance.now() + ms; performance.now() < end; await pause(50))
    if (condition()) return true
  return false
}

const result: Record<string, unknown> = {}
async function measure(name: string, sessions: number, more: Record<string, string>): Promise<Started[]> {
  const started: Started[] = []
  for (let n = 0; n < sessions; n++) started.push(await start(more))
  const each = started.map(({ pid }) => memoryOf(familyOf(pid)))
  const process_ids = shared() === undefined ? [] : [shared()!]
  result[name] = {
    sessions: each,
    shared: memoryOf(process_ids),
    latency_ms: await latency(started[0]!),
    commands: processes()
      .filter(({ pid }) => familyOf(started[0]!.pid).includes(pid))
      .map(({ command }) => command),
  }
  return started
}

const alone = await measure('alone', 3, { OUBLIETTE_MCP_PORT: '' })
for (const { client } of alone) await client.close()
const together = await measure('together', count, {})
const [first, second, third, ...rest] = together as [Started, Started, Started, ...Started[]]

const closing = familyOf(first.pid)
await first.client.close()
result.closed_is_gone = await until(() => !processes().some(({ pid }) => closing.includes(pid)))

const killed = familyOf(second.pid)
process.kill(second.pid, 'SIGKILL')
result.killed_is_gone = await until(() => !processes().some(({ pid }) => killed.includes(pid)))

// Its parent is killed, and another process keeps its stdin open.
const parent = spawn('sh', ['-c', 'oubliette-client mcp; true'], { stdio: ['pipe', 'pipe', 'inherit'] })
parent.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })}\n`)
await once(parent.stdout, 'data')
const orphans = familyOf(familyOf(parent.pid!).find((pid) => pid !== parent.pid)!)
parent.kill('SIGKILL')
result.orphan_is_gone =
  orphans.length === 3 && (await until(() => !processes().some(({ pid }) => orphans.includes(pid))))

const answers = async ({ client }: Started) =>
  (await client.callTool({ name: 'oubliette_project', arguments: { action: 'list' } })).isError !== true
result.others_work = await answers(third)

// What a hostile droid sends to the port that all share.
const keeper = supervisor()
const server = shared()
const open: Socket[] = []
const dial = (text: string | Buffer) => {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => undefined)
  socket.write(text)
  open.push(socket)
  return socket
}
for (let n = 0; n < 1000; n++) dial(n % 2 ? '' : 'no hello\n')
await until(() => open.every(({ connecting }) => !connecting))
for (const socket of open.splice(0)) socket.destroy()
const hello = (key = env.OUBLIETTE_API_KEY) => `${JSON.stringify({ api_key: key, pid: process.pid })}\n`
const endless = Buffer.alloc(1024 * 1024, 120)
const flood = Array.from({ length: 20 }, () => dial(hello()))
const closed = Promise.all(
  flood.map((socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))),
)
for (const socket of flood) for (let n = 0; n < 40; n++) socket.write(endless)
result.endless_is_closed = await Promise.race([closed.then(() => true), pause(20_000, false)])
const initialize = {
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'deaf', version: '1' } },
}
const list = `${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' })}\n`
for (let n = 0; n < 5; n++) dial(`${hello()}${JSON.stringify(initialize)}\n${list.repeat(1000)}`).pause()
// What is measured is the growth of answers that nothing reads: there is no condition to wait for.
await pause(1000)
result.under_attack = { works: await answers(third), shared: memoryOf([server!]) }
for (const socket of open) socket.destroy()
result.same_processes = keeper === supervisor() && server === shared()

const foreign = dial(`${hello('oubs_wrong')}${JSON.stringify(initialize)}\n${list}`)
let said = ''
foreign.on('data', (chunk) => {
  said += chunk
})
await until(() => said.includes('"id":1'), 5000)
result.wrong_key = said.split('\n').find((line) => line.includes('"id":1')) ?? said
foreign.destroy()

const victim = shared()!
process.kill(victim, 'SIGKILL')
// The supervisor starts another one for a client once it has reaped this one.
await until(() => !existsSync(`/proc/${victim}`))
const again = await start()
result.works_after_crash = await answers(again)
result.new_process = shared() !== undefined && shared() !== server
result.supervisor_lives = keeper === supervisor()
await again.client.close()
for (const { client } of [third, ...rest]) await client.close().catch(() => undefined)
writeFileSync(output, JSON.stringify(result))
console.log('done')
process.exit(0)
