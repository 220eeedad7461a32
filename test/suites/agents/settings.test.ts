// What a session asks of its agent, seen from the other end: what the model was given, and what came back as questions.
// Like `agents.test.ts`, for `./oubliette test --agents`.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type AgentWorld, agentCases, agentWorld } from '../../fixtures/agents/agents.ts'
import { findSecret } from '../../fixtures/attacks/secret-search.ts'
import { completionOf, get, history } from '../../fixtures/sessions.ts'
import { until } from '../../harness/wait.ts'
import { prompt } from '../../models/script.ts'

const enabled = process.env.OUBLIETTE_TEST_AGENTS === '1'
const minutes = (count: number) => count * 60_000
let world: AgentWorld

beforeAll(async () => {
  if (enabled) world = await agentWorld()
})
afterAll(() => world?.stop())

const only = process.env.OUBLIETTE_TEST_AGENT
const cases = agentCases.filter(({ droid }) => only === undefined || droid === only)

describe.runIf(enabled).each(cases)('$droid', ({ droid, write, run, tool, effort, asking = write }) => {
  let project_id: string

  beforeAll(async () => {
    project_id = await world.booted.project({ droid, model: 'test-model' })
    await world.booted.ok('container', { action: 'start', project_id })
  }, minutes(5))

  test('gets the model, the tools and the picture that it was asked to use', {
    timeout: minutes(3),
  }, async () => {
    const picture =
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    const { session_id: other } = await world.booted.ok('session', {
      action: 'spawn',
      project_id,
      prompt: prompt([{ say: 'A very small picture.' }]),
      new_session: true,
      model: 'test-other',
      ...(tool ? { tools_disallowed: [tool] } : {}),
      attachments: [{ name: 'dot.png', media_type: 'image/png', encoding: 'base64', data: picture }],
      wait_seconds: 120,
    })
    expect(await get(world.booted, other)).toMatchObject({ final_text: 'A very small picture.' })
    const asked = world.model.asked.findLast(
      ({ body, conversation }) => body.includes('A very small picture') && conversation?.tools.length,
    )!
    expect(asked.conversation?.model).toBe('test-other')
    expect(asked.conversation?.tools.length).toBeGreaterThan(3)
    if (tool) expect(asked.conversation?.tools).not.toContain(tool)
    // As it is, or made smaller by the agent.
    expect(/"type":"(?:image|image_url|input_image)"|"inlineData"/.test(asked.body)).toBe(true)
    await world.booted.ok('session', { action: 'end', session_id: other })
  })

  test.runIf(tool)('has only the tools that it was allowed', { timeout: minutes(3) }, async () => {
    const { session_id: other } = await world.booted.ok('session', {
      action: 'spawn',
      project_id,
      prompt: prompt([{ say: 'Few tools.' }]),
      new_session: true,
      tools_allowed: [tool],
      wait_seconds: 120,
    })
    const asked = world.model.asked.findLast(
      ({ body, conversation }) => body.includes('Few tools.') && conversation?.tools.length,
    )!
    expect(asked.conversation?.tools).toContain(tool)
    const command = run('')
    expect(asked.conversation?.tools).not.toContain('call' in command ? command.call : undefined)
    await world.booted.ok('session', { action: 'end', session_id: other })
  })

  test('uses the requested reasoning level, or reports that it does not support one', {
    timeout: minutes(3),
  }, async () => {
    const spawn = {
      action: 'spawn',
      project_id,
      prompt: prompt([{ say: 'Thought about it.' }]),
      new_session: true,
      reasoning_level: effort?.level ?? 'low',
      ...(effort ? { model: effort.model } : {}),
      wait_seconds: 120,
    }
    if (!effort)
      return expect((await world.booted.fault('session', spawn)).message).toContain('reasoning_level')
    const { session_id: other } = await world.booted.ok('session', spawn)
    const session = await get(world.booted, other)
    expect(session).toMatchObject({ final_text: 'Thought about it.' })
    const asked = world.model.asked.findLast(
      ({ body, conversation }) => body.includes('Thought about it.') && conversation?.tools.length,
    )!
    expect(asked.body).toContain(effort.told)
    await world.booted.ok('session', { action: 'end', session_id: other })
  })

  test('asks before it acts, when it may do nothing by itself', { timeout: minutes(3) }, async () => {
    const { session_id: other, turn_id } = await world.booted.ok('session', {
      action: 'spawn',
      project_id,
      prompt: prompt([asking('asked.txt', `asked by ${droid}`), { say: 'With your leave.' }]),
      new_session: true,
      autonomy_level: 'off',
    })
    const over = async () => completionOf(await history(world.booted, other), turn_id)
    // Some ask more than once for one act.
    const completion = await until(
      async () => {
        const { approvals } = await world.booted.ok('approval', { action: 'list', session_id: other })
        for (const { approval_id } of approvals.filter((it: { status: string }) => it.status === 'open'))
          await world.booted.ok('approval', { action: 'decide', approval_id, decision: 'allow' })
        return await over()
      },
      { deadline_ms: minutes(2), every_ms: 100, what: `${droid} ends` },
    )
    expect(completion).toMatchObject({ stop_reason: 'end_turn', final_text: 'With your leave.' })
    const kinds = (await history(world.booted, other)).map((event) => event.type)
    expect(kinds).toContain('permission_request')
    const file = await world.booted.ok('workspace', { action: 'read_file', project_id, path: 'asked.txt' })
    expect(String(file.content).trimEnd()).toBe(`asked by ${droid}`)
    await world.booted.ok('session', { action: 'end', session_id: other })
  })
})

test.runIf(enabled)(
  'afterwards the key is found nowhere but in the config of the server',
  { timeout: minutes(5) },
  async () => {
    expect((await findSecret(world.booted, world.key)).found).toEqual([])
  },
)
