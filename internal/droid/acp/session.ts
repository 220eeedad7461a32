// The opening of a conversation with an agent: who we are, what it can, a new session or an old one taken up again. Every
// request has a deadline, and the one that was not answered is named.
import type { InitializeResponse, McpServer, SessionConfigOption, Stream } from '@agentclientprotocol/sdk'
import type { AgentSetup } from '../../agents/agent.ts'
import { Fault, messageOf } from '../../fault.ts'
import { createDeadlines } from '../../lib/deadlines.ts'
import type { PermissionOption } from '../autonomy.ts'
import type { AcpOptions } from './acp.ts'

/** Sessions read files and start MCP servers, and an old one is told from its beginning. */
const sessionFactor = 2

type Ask = <T>(method: string, params: Record<string, unknown>) => Promise<T>

type Permission = (
  toolCall: Record<string, unknown>,
  choices: PermissionOption[],
) => Promise<{ outcome: { outcome: 'cancelled' } | { outcome: 'selected'; optionId: string } }>

type Opened = { sessionId: string; configOptions?: SessionConfigOption[] | null }

/** Agents say `Internal error` and put what happened beside it. */
function reasonOf(error: unknown): string {
  const { data } = error as { data?: { details?: unknown } | string | null }
  const details = typeof data === 'string' ? data : data?.details
  return typeof details === 'string' ? `${messageOf(error)}: ${details.slice(0, 500)}` : messageOf(error)
}

async function takeUp(
  ask: Ask,
  session: { cwd: string; mcpServers: McpServer[] },
  can: { load: boolean; resume: boolean },
  resume: AcpOptions['resume'],
): Promise<Opened | { why_not?: string }> {
  if (!resume) return {}
  if (!can.load && !can.resume) return { why_not: 'the agent cannot take up a conversation' }
  const sessionId = resume.agent_session_id
  try {
    // Resuming is loading without telling everything again.
    const answer = await ask<{ configOptions?: SessionConfigOption[] | null } | null>(
      can.resume ? 'session/resume' : 'session/load',
      { ...session, sessionId },
    )
    return { ...answer, sessionId }
  } catch (error) {
    // One that hangs would not answer the next request either.
    if (error instanceof Fault) throw error
    // Its memory is gone or was never written: the conversation begins anew, and `resumed` says so.
    return { why_not: reasonOf(error) }
  }
}

/**
 * How hard to think is refused where it would not be heard; an agent that offers no models has one of its own. One that
 * takes up a conversation need not say again what there is to choose.
 */
async function choose(ask: Ask, session: Opened, setup: AgentSetup, resumed: boolean): Promise<void> {
  const { sessionId } = session
  let offered = session.configOptions
  for (const [category, value] of Object.entries(setup.options ?? {})) {
    const option = offered?.find((it) => it.category === category && it.type === 'select')
    if (!option && !resumed && category === 'thought_level')
      throw new Fault('invalid', `the agent takes no reasoning_level for this model: leave "${value}" out`)
    if (!option || option.currentValue === value) continue
    const answer = await ask<{ configOptions?: SessionConfigOption[] } | null>('session/set_config_option', {
      sessionId,
      configId: option.id,
      value,
    })
    // One choice can change what else there is to choose.
    offered = answer?.configOptions ?? offered
  }
}

export async function openAgent(stream: Stream, options: AcpOptions, permission: Permission) {
  const acp = await import('@agentclientprotocol/sdk')
  const connection = acp
    .client({ name: 'oubliette' })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) =>
      permission(params.toolCall, params.options),
    )
    .connect(stream)
  const context = connection.agent
  const deadlines = createDeadlines()
  const ask: Ask = (method, params) => {
    const seconds = options.answer_seconds * (method.startsWith('session/') ? sessionFactor : 1)
    const late = () => new Fault('timeout', `the agent did not answer ${method} within ${seconds} s`)
    return deadlines.within(context.request(method, params) as Promise<never>, seconds * 1000, late)
  }
  const open = async () => {
    const { agentCapabilities, protocolVersion } = await ask<InitializeResponse>('initialize', {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
      clientInfo: { name: 'oubliette', version: '1' },
    })
    if (protocolVersion !== acp.PROTOCOL_VERSION)
      throw new Fault('conflict', `the agent speaks ACP ${protocolVersion}, not ${acp.PROTOCOL_VERSION}`)
    if (options.setup.authenticate !== undefined)
      await ask('authenticate', { methodId: options.setup.authenticate })
    const session = {
      cwd: options.workspace_dir,
      ...(options.setup.meta ? { _meta: options.setup.meta } : {}),
      mcpServers: options.mcp_servers.map(({ env, ...server }) => ({
        ...server,
        env: Object.entries(env).map(([name, value]) => ({ name, value })),
      })),
    }
    const can = {
      load: agentCapabilities?.loadSession === true,
      resume: agentCapabilities?.sessionCapabilities?.resume != null,
    }
    const old = await takeUp(ask, session, can, options.resume)
    const resumed = 'sessionId' in old
    const opened: Opened = resumed ? old : await ask('session/new', session)
    await choose(ask, opened, options.setup, resumed)
    return {
      context,
      sessionId: opened.sessionId,
      resumed,
      resumable: can.load || can.resume,
      ...(!resumed && old.why_not !== undefined ? { why_not_resumed: old.why_not } : {}),
      images: agentCapabilities?.promptCapabilities?.image === true,
    }
  }
  try {
    return await open()
  } catch (error) {
    if (error instanceof Fault) throw error
    throw new Fault('unavailable', `the agent did not open a session: ${reasonOf(error)}`, { cause: error })
  } finally {
    deadlines.close()
  }
}
