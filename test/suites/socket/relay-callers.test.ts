// Who hears of a caller's tools and of calls of them: the droid's own MCP client, several callers, subscribers of both eras.
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  callTool as call,
  clientCommand,
  clientEnv,
  droid,
  greet,
  offer,
  openRequests,
  slow,
} from '../../fixtures/droid-socket.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { connect } from '../../harness/client.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 200, max_spawns_per_minute: 1000 } } })
  project_id = await booted.project()
})
afterAll(() => booted?.stop())

const respond = (session_id: string, request_id: string, answer: object) =>
  booted.ok('caller_tool_response', { session_id, request_id, ...answer })
const refused = (session_id: string, request_id: string, answer: object = { result: 1 }) =>
  booted.fault('caller_tool_response', { session_id, request_id, ...answer })

describe('an MCP client of the droid', () => {
  it('lists the tools, is notified when they change, calls them, and cancels', async () => {
    const one = await droid(booted, project_id, offer)
    const client = new Client({ name: 'droid', version: '1' })
    let changes = 0
    client.setNotificationHandler('notifications/tools/list_changed', () => void changes++)
    await client.connect(new StdioClientTransport({ ...clientCommand, env: clientEnv(one) }))
    try {
      const names = async () => (await client.listTools()).tools.map(({ name }) => name).sort()
      expect(await names()).toEqual(['app_greet', 'app_hasty', 'app_slow'])
      const later = { caller_id: 'later', caller_tools: [greet] }
      await booted.ok('session', { action: 'message', session_id: one.session_id, message: 'true', ...later })
      await until(() => changes > 0, { what: 'the list changed' })
      expect(await names()).toEqual(['app_greet', 'app_hasty', 'app_slow', 'later_greet'])
      const asked = client.callTool({ name: 'later_greet', arguments: { name: 'y' } })
      const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
      await respond(one.session_id, request_id, {
        result: {
          content: [{ type: 'image', data: 'aGk=', mimeType: 'image/png' }],
          structuredContent: { a: 1 },
        },
      })
      expect(await asked).toMatchObject({
        content: [{ type: 'image', data: 'aGk=', mimeType: 'image/png' }],
        structuredContent: { a: 1 },
      })
      const giveUp = new AbortController()
      const cancelled = client.callTool({ name: 'app_slow', arguments: {} }, { signal: giveUp.signal })
      await openRequests(booted, one.session_id)
      giveUp.abort('enough')
      await expect(cancelled).rejects.toThrow()
      await openRequests(booted, one.session_id, 0)
    } finally {
      await client.close()
    }
  })
})

describe('several callers on one session', () => {
  it('each answer their own requests only, and receive no others', async () => {
    const { token } = await booted.ok('token', {
      action: 'create',
      name: 'second',
      scope: `project:${project_id}`,
    })
    const second = await connect(booted.server, token)
    const one = await droid(booted, project_id, offer)
    const declared = { caller_id: 'two', caller_tools: [{ ...slow, name: 'ring' }] }
    await second.call('session', {
      action: 'message',
      session_id: one.session_id,
      message: 'true',
      ...declared,
    })
    const heard = { first: [] as Answer[], second: [] as Answer[] }
    const listen = async (secret: string, into: Answer[]) => {
      const client = new Client({ name: 'legacy', version: '1' }, { versionNegotiation: { mode: 'legacy' } })
      client.setNotificationHandler(
        'notifications/message',
        ({ params }) => void into.push(params.data as Answer),
      )
      const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client')
      await client.connect(
        new StreamableHTTPClientTransport(new URL('/mcp', booted.server.url), {
          requestInit: { headers: { authorization: `Bearer ${secret}` } },
        }),
      )
      return client
    }
    const clients = [await listen(booted.server.admin_token, heard.first), await listen(token, heard.second)]
    const asked = [call(one, 'app_slow'), call(one, 'two_ring')]
    const open = await openRequests(booted, one.session_id, 2)
    const of = (caller_id: string) =>
      open.find((request) => request.caller_id === caller_id)!.request_id as string
    expect(await refused(one.session_id, of('two'))).toMatchObject({ kind: 'forbidden' })
    const theft = { session_id: one.session_id, request_id: of('app'), result: 'stolen' }
    expect((await second.call('caller_tool_response', theft)).is_error).toBe(true)
    await respond(one.session_id, of('app'), { result: 'from app' })
    await second.call('caller_tool_response', { ...theft, request_id: of('two'), result: 'from two' })
    expect((await Promise.all(asked)).map(({ result }) => result)).toEqual(['from app', 'from two'])
    const requests = (of: Answer[]) =>
      of.filter(({ type }) => type === 'caller_tool_request').map(({ tool }) => tool)
    await until(() => requests(heard.first).length > 0 && requests(heard.second).length > 0, {
      what: 'both heard',
    })
    expect([requests(heard.first), requests(heard.second)]).toEqual([['slow'], ['ring']])
    await Promise.all([...clients.map((client) => client.close()), second.close()])
  })
})

describe('sessions as resources', () => {
  it('are listed and read by who may see them, and announce their changes in both eras', async () => {
    const one = await droid(booted, project_id, offer)
    const uri = `oubliette://sessions/${one.session_id}`
    const other = await booted.project()
    const { token } = await booted.ok('token', { action: 'create', name: 'o', scope: `project:${other}` })
    const stranger = await connect(booted.server, token)
    await expect(stranger.client.readResource({ uri })).rejects.toThrow(`no session ${one.session_id}`)
    expect((await stranger.client.listResources()).resources).toEqual([])
    await stranger.close()
    const { client } = booted.client()
    const { contents } = await client.readResource({ uri })
    expect(JSON.parse((contents[0] as { text: string }).text)).toMatchObject({ session_id: one.session_id })
    const { resources } = await client.listResources()
    expect(resources.map((resource) => resource.uri)).toContain(uri)

    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client')
    const updates = new Map<string, number>()
    const clients = await Promise.all(
      (['legacy', 'modern'] as const).map(async (era) => {
        const made = new Client(
          { name: era, version: '1' },
          { versionNegotiation: { mode: era === 'legacy' ? 'legacy' : { pin: '2026-07-28' } } },
        )
        made.setNotificationHandler('notifications/resources/updated', ({ params }) => {
          if (params.uri === uri) updates.set(era, (updates.get(era) ?? 0) + 1)
        })
        await made.connect(
          new StreamableHTTPClientTransport(new URL('/mcp', booted.server.url), {
            requestInit: { headers: { authorization: `Bearer ${booted.server.admin_token}` } },
          }),
        )
        if (era === 'legacy') await made.subscribeResource({ uri })
        else await made.listen({ resourceSubscriptions: [uri] })
        return made
      }),
    )
    void call(one, 'app_slow')
    await openRequests(booted, one.session_id)
    await until(() => updates.size === 2, { what: 'both eras were told' })
    await Promise.all(clients.map((made) => made.close()))
  })
})

describe('the example', () => {
  const example = resolve(import.meta.dirname, '../../../examples/caller.ts')
  it('offers two tools, answers, and is short', async () => {
    const env = {
      ...process.env,
      OUBLIETTE_URL: booted.server.url,
      OUBLIETTE_TOKEN: booted.server.admin_token,
    }
    const { stdout } = await promisify(execFile)(process.execPath, [example, project_id], { env })
    expect(stdout).toContain('caller_tool_request lookup')
    expect(stdout).toContain('{"sku":"A-1","in_stock":12}')
    expect((await readFile(example, 'utf8')).split('\n').length).toBeLessThan(80)
  })
})
