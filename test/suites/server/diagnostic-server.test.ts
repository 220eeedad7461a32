// The tools of an assistant's diagnostic server, each called as the table of docs/diagnostics.md says.
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { type Booted, boot } from '../../harness/booted.ts'

const page = readFileSync(resolve(import.meta.dirname, '../../../docs/diagnostics.md'), 'utf8')
const [, table = ''] = /^## Tools of an assistant's diagnostic server$([\s\S]*?)^## /m.exec(page) ?? []
const rows = [...table.matchAll(/^\| `(\w+)` \| (?:`(\w+) (\w+)`|-) \| (.*) \|$/gm)].map(
  ([, name = '', tool, action, args = '']) => ({ name, tool, action, args: args.replaceAll('`', '') }),
)

const eighteen = [
  'server_log web_log health db_query list_conversations list_messages list_tools get_tool_schema run_tool',
  'list_agents get_agent_state list_mcp_servers toggle_mcp_server list_tasks run_task list_skills get_config',
  'send_message',
].flatMap((line) => line.split(' '))

/** What must be in the answer. */
const shows: Record<string, (answer: Record<string, unknown>) => unknown> = {
  server_log: ({ entries }) => expect((entries as unknown[]).length).toBeGreaterThan(0),
  health: (answer) => expect(answer).toMatchObject({ database: { ok: true } }),
  db_query: (answer) => expect(answer).toMatchObject({ columns: ['one'], rows: [[1]] }),
  list_conversations: (answer) =>
    expect(answer).toMatchObject({ sessions: [{ session_id: ids.session_id }] }),
  list_messages: ({ events }) =>
    expect(events).toContainEqual(expect.objectContaining({ type: 'message', text: 'echo first' })),
  list_tools: ({ tools: seen }) =>
    expect(seen).toContainEqual(expect.objectContaining({ name: 'oubliette_project', source: 'own' })),
  get_tool_schema: (answer) => expect(answer).toMatchObject({ input_schema: { type: 'object' } }),
  run_tool: (answer) =>
    expect(answer).toMatchObject({ result: { projects: [{ project_id: ids.project_id }] } }),
  list_agents: (answer) => expect(answer).toMatchObject({ agents: [{ session_id: ids.session_id }] }),
  get_agent_state: (answer) => expect(answer).toMatchObject({ supervisor: { connected: true } }),
  list_mcp_servers: (answer) => expect(answer).toMatchObject({ servers: [{ name: ids.mcp_server }] }),
  toggle_mcp_server: (answer) => expect(answer).toMatchObject({ name: ids.mcp_server, enabled: false }),
  list_tasks: (answer) => expect(answer).toMatchObject({ schedules: [{ schedule_id: ids.schedule_id }] }),
  run_task: (answer) => expect(answer).toMatchObject({ runs: [{ trigger: 'manual' }] }),
  list_skills: (answer) => expect(answer).toMatchObject({ skills: [{ name: 'review' }] }),
  get_config: (answer) => expect(answer).toMatchObject({ sources: { address: 'environment' } }),
  send_message: (answer) => expect(answer).toMatchObject({ final_text: expect.stringContaining('answer') }),
}

let booted: Booted
const ids: Record<string, string> = {}
beforeAll(async () => {
  booted = await boot()
  ids.project_id = await booted.project()
  const { project_id } = ids
  const spawned = await booted.ok('session', {
    action: 'spawn',
    project_id,
    prompt: 'echo first',
    api_scope: `project:${project_id}`,
    wait_seconds: 60,
  })
  ids.session_id = spawned.session_id
  const timing = { cron_expr: '@yearly', enabled: false, prompt: 'true' }
  const made = await booted.ok('schedule', {
    action: 'create',
    name: 'task',
    targets: [{ project_id }],
    ...timing,
  })
  ids.schedule_id = made.schedule_id
  // Nothing listens there: its state is of no interest here.
  const url = 'http://127.0.0.1:9/mcp'
  await booted.ok('mcp_server', { action: 'add', name: 'tickets', transport: 'http', url })
  ids.mcp_server = 'tickets'
  const path = '.claude/skills/review/SKILL.md'
  await booted.ok('workspace', {
    action: 'write_file',
    project_id,
    path,
    content: '---\nname: review\n---\n',
  })
})
afterAll(() => booted?.stop())

test('the table has all eighteen', () => {
  expect(rows.map(({ name }) => name)).toEqual(eighteen)
})

test.for(rows)('$name is $tool $action', async ({ name, tool, action, args }, context) => {
  const skip = (why: string) => {
    process.stdout.write(`skipped ${name}: ${why}\n`)
    context.skip(why)
  }
  if (tool === undefined || action === undefined) return skip('the web console sends no lines yet')
  expect(tools).toHaveProperty(tool)
  const given = JSON.parse(args.replaceAll(/\$(\w+)/g, (_, id: string) => ids[id] ?? ''))
  const answer = await booted.ok(tool, { action, ...given })
  expect(shows).toHaveProperty(name)
  shows[name]!(answer)
})
