import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/agents/scripted-agent.ts'
import { end, get, history, say, spawn, statusesOf, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({
    config: { droids: scriptedDroids, limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } },
  })
  project_id = await booted.project({ droid: 'scripted' })
  await booted.ok('container', { action: 'start', project_id })
  await putAgent(booted, project_id)
})
afterAll(() => booted?.stop())

const ask = (prompt: string, more: object = {}) => spawn(booted, project_id, prompt, more)
async function finish(session: Answer): Promise<void> {
  await end(booted, session.session_id)
}

describe('a permission', () => {
  test('is asked for outside when autonomy is off, and the agent continues with the answer', async () => {
    for (const [decision, outcome] of [
      ['allow', 'yes'],
      ['deny', 'no'],
    ] as const) {
      const session = await ask('ask edit', { autonomy_level: 'off', wait_seconds: 0 })
      const waiting = await untilStatus(booted, session.session_id, 'waiting')
      const { approvals } = await booted.ok('approval', { action: 'list', session_id: session.session_id })
      expect(approvals).toHaveLength(1)
      const [approval] = approvals
      expect(waiting.requires).toEqual([approval.request_id])
      expect(approval).toMatchObject({
        status: 'open',
        tool_call: { title: 'to edit', kind: 'edit' },
        decided_by: null,
      })
      await booted.ok('approval', {
        action: 'decide',
        approval_id: approval.approval_id,
        decision,
        reason: 'because',
      })
      const idle = await untilStatus(booted, session.session_id, 'idle')
      expect(idle).toMatchObject({ final_text: outcome, requires: [] })
      const got = await booted.ok('approval', { action: 'get', approval_id: approval.approval_id })
      expect(got).toMatchObject({ status: decision === 'allow' ? 'allowed' : 'denied', reason: 'because' })
      const second = await booted.fault('approval', {
        action: 'decide',
        approval_id: approval.approval_id,
        decision,
      })
      expect(second.kind).toBe('conflict')
      const events = await history(booted, session.session_id)
      expect(statusesOf(events)).toEqual(['starting', 'running', 'waiting', 'running', 'idle'])
      expect(events.find((event) => event.type === 'tool_approval_decision')).toMatchObject({
        decision,
        request_id: approval.request_id,
      })
      await finish(session)
    }
  })

  test('is given by the autonomy of the session: reading at low, all at high', async () => {
    const answer = async (kind: string, autonomy_level: string) => {
      const session = await ask(`ask ${kind}`, { autonomy_level, wait_seconds: 0 })
      const now = await until(
        async () => {
          const seen = await get(booted, session.session_id)
          return ['idle', 'waiting'].includes(seen.status) && seen
        },
        { what: 'it was decided' },
      )
      await finish(session)
      return now.status === 'idle' ? now.final_text : 'waiting'
    }
    expect(await answer('read', 'low')).toBe('yes')
    expect(await answer('edit', 'medium')).toBe('waiting')
    expect(await answer('execute', 'high')).toBe('yes')
  })

  test('that is not answered is withdrawn with the turn, and with the session', async () => {
    const session = await ask('ask edit', { autonomy_level: 'off', wait_seconds: 0 })
    await untilStatus(booted, session.session_id, 'waiting')
    await booted.ok('session', { action: 'cancel', session_id: session.session_id })
    expect((await untilStatus(booted, session.session_id, 'idle')).stop_reason).toBe('cancelled')
    await say(booted, session.session_id, 'ask edit', { wait_seconds: 0 })
    await untilStatus(booted, session.session_id, 'waiting')
    await finish(session)
    const { approvals } = await booted.ok('approval', { action: 'list', session_id: session.session_id })
    expect(approvals.map((approval: Answer) => approval.status)).toEqual(['cancelled', 'cancelled'])
  })

  test('is still open after the server was killed', async () => {
    const session = await ask('ask edit', { autonomy_level: 'off', wait_seconds: 0 })
    await untilStatus(booted, session.session_id, 'waiting')
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    const { approvals } = await booted.ok('approval', {
      action: 'list',
      session_id: session.session_id,
      status: 'open',
    })
    await booted.ok('approval', {
      action: 'decide',
      approval_id: approvals[0].approval_id,
      decision: 'allow',
    })
    expect((await untilStatus(booted, session.session_id, 'idle')).final_text).toBe('yes')
    await finish(session)
  })
})
