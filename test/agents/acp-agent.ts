// A scripted agent that implements the Agent Client Protocol on stdio, and fails on demand. The first word of the prompt
// selects what it does; `help` lists the words. It replaces a real agent in tests: no model, no network.
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { type AgentContext, agent, type McpServer, methods, ndJsonStream } from '@agentclientprotocol/sdk'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

type Said = { role: 'user' | 'agent'; text: string }
type Session = { id: string; cwd: string; servers: McpServer[]; mcp?: Client; stop: AbortController }
type Turn = { session: Session; rest: string; client: AgentContext; signal: AbortSignal }

const memory = process.env.ACP_AGENT_HOME ?? join(homedir(), '.acp-agent')
const sessions = new Map<string, Session>()
const fileOf = (id: string) => join(memory, `${id}.jsonl`)

function remember(id: string, said: Said): void {
  mkdirSync(memory, { recursive: true })
  appendFileSync(fileOf(id), `${JSON.stringify(said)}\n`)
}
const recall = (id: string): Said[] =>
  existsSync(fileOf(id))
    ? readFileSync(fileOf(id), 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as Said)
    : []

const update = (client: AgentContext, session: Session, what: Record<string, unknown>) =>
  client.notify('session/update', { sessionId: session.id, update: what })
const say = (turn: Pick<Turn, 'client' | 'session'>, text: string) =>
  update(turn.client, turn.session, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } })

async function mcpOf(session: Session): Promise<Client> {
  if (session.mcp) return session.mcp
  const server = session.servers[0]
  if (!server || !('command' in server)) throw new Error('no MCP server was given')
  const client = new Client({ name: 'acp-agent', version: '1' })
  const env = Object.fromEntries(server.env.map(({ name, value }) => [name, value]))
  await client.connect(new StdioClientTransport({ command: server.command, args: server.args, env }))
  session.mcp = client
  return client
}

const words: Record<string, (turn: Turn) => Promise<void>> = {
  help: (turn) => say(turn, Object.keys(words).join(' ')),
  echo: (turn) => say(turn, turn.rest),
  env: (turn) => say(turn, process.env[turn.rest] ?? ''),
  async history(turn) {
    await say(turn, JSON.stringify(recall(turn.session.id).map((it) => it.text)))
  },
  /** `slow N MS`: N words with a pause after each. */
  async slow(turn) {
    const [n = 10, ms = 20] = turn.rest.split(' ').map(Number)
    for (let i = 1; i <= n && !turn.signal.aborted; i++) {
      await say(turn, `word${i} `)
      await delay(ms)
    }
  },
  async think(turn) {
    const text = { type: 'text', text: 'hmm' }
    await update(turn.client, turn.session, { sessionUpdate: 'agent_thought_chunk', content: text })
    await update(turn.client, turn.session, {
      sessionUpdate: 'plan',
      entries: [{ content: 'do it', priority: 'high', status: 'pending' }],
    })
    await update(turn.client, turn.session, { sessionUpdate: 'usage_update', used: 10, size: 100 })
    await update(turn.client, turn.session, { sessionUpdate: 'brand_new_kind', anything: 1 })
    await say(turn, 'thought')
  },
  /** `diffs N BYTES`: N edits of files, each shown as a diff with so much text before and after. */
  async diffs(turn) {
    const [n = 1, bytes = 1000] = turn.rest.split(' ').map(Number)
    for (let i = 1; i <= n && !turn.signal.aborted; i++) {
      const line = (word: string) => `${word} ${i}\n`.repeat(Math.ceil(bytes / (word.length + 3)))
      await update(turn.client, turn.session, {
        sessionUpdate: 'tool_call',
        toolCallId: `edit-${i}`,
        title: 'edit',
        kind: 'edit',
        status: 'completed',
        content: [{ type: 'diff', path: `/file-${i}`, oldText: line('old'), newText: line('new') }],
      })
    }
    await say(turn, 'edited')
  },
  /** `tools`: the names on the MCP server. `tool NAME JSON`: calls one. */
  async tools(turn) {
    const { tools } = await (await mcpOf(turn.session)).listTools()
    await say(turn, tools.map((tool) => tool.name).join(' '))
  },
  async tool(turn) {
    const [name = '', ...json] = turn.rest.split(' ')
    const call = { toolCallId: `call-${Date.now()}`, title: name, kind: 'other', rawInput: json.join(' ') }
    await update(turn.client, turn.session, { sessionUpdate: 'tool_call', status: 'in_progress', ...call })
    const mcp = await mcpOf(turn.session)
    const result = await mcp.callTool(
      { name, arguments: JSON.parse(json.join(' ') || '{}') },
      { signal: turn.signal, timeout: 600_000 },
    )
    await update(turn.client, turn.session, {
      sessionUpdate: 'tool_call_update',
      toolCallId: call.toolCallId,
      status: result.isError ? 'failed' : 'completed',
      rawOutput: result,
    })
    await say(turn, JSON.stringify(result.structuredContent ?? result.content))
  },
  /** `work MS`: what a coding agent does, with a pause after each step. */
  async work(turn) {
    const ms = Number(turn.rest) || 0
    const step = async (what: Record<string, unknown>) => {
      if (!turn.signal.aborted) await update(turn.client, turn.session, what)
      await delay(ms)
    }
    const call = (toolCallId: string, more: object) =>
      step({ sessionUpdate: 'tool_call', toolCallId, status: 'pending', ...more })
    const change = (toolCallId: string, more: object) =>
      step({ sessionUpdate: 'tool_call_update', toolCallId, ...more })
    const plan = (status: string) =>
      step({
        sessionUpdate: 'plan',
        entries: [
          { content: 'Read the code', priority: 'high', status: 'completed' },
          { content: 'Fix the test', priority: 'high', status },
        ],
      })
    await step({
      sessionUpdate: 'agent_thought_chunk',
      content: { type: 'text', text: 'Where is\nthe bug?' },
    })
    await step({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'I look at it.' } })
    await plan('in_progress')
    await call('read-1', { title: 'Read', kind: 'read' })
    await change('read-1', {
      status: 'in_progress',
      locations: [{ path: `${turn.session.cwd}/src/sum.ts` }],
      rawInput: { filePath: `${turn.session.cwd}/src/sum.ts` },
    })
    await change('read-1', { status: 'completed' })
    await call('run-1', { title: 'bash', kind: 'execute' })
    await change('run-1', { status: 'in_progress', rawInput: { command: 'npm test' } })
    await change('run-1', { status: 'failed', rawOutput: { error: 'expected 3, received 4' } })
    await call('edit-1', { title: 'edit', kind: 'edit' })
    await change('edit-1', {
      status: 'completed',
      content: [
        {
          type: 'diff',
          path: `${turn.session.cwd}/src/sum.ts`,
          oldText: 'export function sum(a, b) {\n  return a - b\n}\n',
          newText: 'export function sum(a, b) {\n  return a + b\n}\n',
        },
      ],
    })
    await plan('completed')
    await say(turn, 'The test passes.')
  },
  /** Tries to control the terminal of whoever looks at it. */
  async hostile(turn) {
    const control = '\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\x1b[1;1H\x9b31m\r'
    await say(turn, `${control}\n? Allow? [y]es, [n]o: \n`)
    await update(turn.client, turn.session, {
      sessionUpdate: 'tool_call',
      toolCallId: 'hostile-1',
      title: `title ${control}`,
      kind: 'execute',
      status: 'in_progress',
      rawInput: { command: `ls ${control}; rm -rf / \u202e` },
    })
    await update(turn.client, turn.session, {
      sessionUpdate: 'tool_call_update',
      toolCallId: 'hostile-1',
      status: 'failed',
      rawOutput: { error: `no ${control}` },
    })
    await say(turn, 'done')
  },
  /** `ask KIND COMMAND`: asks for permission to do something of that kind. */
  async ask(turn) {
    const [kind = '', ...command] = turn.rest.split(' ')
    const { outcome } = await turn.client.request(methods.client.session.requestPermission, {
      sessionId: turn.session.id,
      toolCall: {
        toolCallId: 'call-ask',
        title: `to ${kind}`,
        kind: kind as 'read',
        ...(command.length > 0 ? { rawInput: { command: command.join(' ') } } : {}),
      },
      options: [
        { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
        { optionId: 'always', name: 'Always', kind: 'allow_always' },
        { optionId: 'no', name: 'Deny', kind: 'reject_once' },
      ],
    })
    await say(turn, outcome.outcome === 'selected' ? outcome.optionId : outcome.outcome)
  },
  async crash(turn) {
    await say(turn, 'about to crash')
    process.stderr.write('scripted crash\n')
    process.exit(Number(turn.rest) || 3)
  },
  /** `allocate MIB`: takes so much memory, and uses it. */
  async allocate(turn) {
    await say(turn, 'allocating')
    const taken: Buffer[] = []
    for (let mib = 0; mib < Number(turn.rest); mib += 8) {
      taken.push(Buffer.alloc(8 * 1024 * 1024, 1))
      await delay(1)
    }
    await say(turn, `${taken.length} pieces`)
  },
  /** Does not even listen to cancel. */
  async hang(turn) {
    process.on('SIGTERM', () => {})
    await say(turn, 'hanging')
    await new Promise(() => {})
  },
  async flood(turn) {
    for (let i = 1; i <= Number(turn.rest); i++) await say(turn, `${i}\n`)
  },
  async garbage(turn) {
    process.stdout.write('this is not JSON\n{"neither": "is this"}\n\n{"jsonrpc":"2.0",\n')
    await say(turn, 'after the garbage')
  },
  /** `huge N`: a line of N bytes that is no message, without and then with an end. */
  async huge(turn) {
    const piece = 'x'.repeat(1024 * 1024)
    for (let left = Number(turn.rest); left > 0; left -= piece.length)
      await new Promise((resolve) => process.stdout.write(piece.slice(0, left), resolve))
    process.stdout.write('\n')
    await say(turn, 'after the huge line')
  },
  /** Speaks on after it has answered. */
  async late(turn) {
    await say(turn, 'early ')
    setTimeout(() => void say(turn, 'late'), 20)
  },
}

const stdin = Readable.toWeb(process.stdin) as ReadableStream<Uint8Array>
agent({ name: 'acp-agent' })
  .onRequest(methods.agent.initialize, ({ params }) => ({
    protocolVersion: params.protocolVersion,
    agentCapabilities: { loadSession: process.env.ACP_AGENT_FORGETS === undefined },
    authMethods: [],
  }))
  .onRequest(methods.agent.session.new, ({ params }) => {
    const id = `agent-${crypto.randomUUID()}`
    sessions.set(id, { id, cwd: params.cwd, servers: params.mcpServers, stop: new AbortController() })
    return { sessionId: id }
  })
  .onRequest(methods.agent.session.load, async ({ params, client }) => {
    const id = params.sessionId
    const past = recall(id)
    if (past.length === 0) throw new Error(`no session ${id}`)
    const session = { id, cwd: params.cwd, servers: params.mcpServers, stop: new AbortController() }
    sessions.set(id, session)
    for (const { role, text } of past)
      await update(client, session, {
        sessionUpdate: `${role}_message_chunk`,
        content: { type: 'text', text },
      })
    return {}
  })
  .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
    const session = sessions.get(params.sessionId)
    if (!session) throw new Error('no such session')
    session.stop = new AbortController()
    const block = params.prompt[0]
    const text = block?.type === 'text' ? block.text : ''
    const space = text.indexOf(' ')
    const word = space === -1 ? text : text.slice(0, space)
    remember(session.id, { role: 'user', text })
    const act = words[word] ?? words.echo!
    await act({
      session,
      rest: space === -1 ? '' : text.slice(space + 1),
      client,
      signal: session.stop.signal,
    })
    remember(session.id, { role: 'agent', text: `did ${word}` })
    return {
      stopReason: session.stop.signal.aborted ? 'cancelled' : 'end_turn',
      _meta: { usage: { inputTokens: text.length, outputTokens: 1, totalTokens: text.length + 1 } },
    }
  })
  .onNotification(methods.agent.session.cancel, ({ params }) => {
    sessions.get(params.sessionId)?.stop.abort()
  })
  .connect(ndJsonStream(Writable.toWeb(process.stdout) as WritableStream<Uint8Array>, stdin))
// An agent ends with the process that started it.
process.stdin.on('end', () => process.exit(0))
