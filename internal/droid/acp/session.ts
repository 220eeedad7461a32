// Opens a conversation with an agent: initialize, authenticate, then a new session or a resumed one. Every request has a
// deadline, and the error names the request that was not answered.
import type { InitializeResponse, McpServer, SessionConfigOption, Stream } from '@agentclientprotocol/sdk'
import type { AgentSetup } from '../../agents/agent.ts'
import { Fault, messageOf } from '../../fault.ts'
import { createDeadlines } from '../../lib/deadlines.ts'
import type { PermissionOption } from '../autonomy.ts'
import type { AcpOptions } from './acp.ts'

/** Opening a session takes longer: the agent reads files, starts MCP servers, and may replay a conversation. */
const sessionFactor = 2

type Ask = <T>(method: string, params: Record<string, unknown>) => Promise<T>

type Permission = (
  toolCall: Record<string, unknown>,
  choices: PermissionOption[],
) => Promise<{ outcome: { outcome: 'cancelled' } | { outcome: 'selected'; optionId: string } }>

type Opened = { sessionId: string; configOptions?: SessionConfigOption[] | null }

/** Agents answer `Internal error` and put the cause into `data`. */
function reasonOf(error: unknown): string {
  const { data } = error as { data?: { details?: unknown } | string | null }
  const details = typeof data === 'string' ? data : data?.details
  return typeof details === 'string' ? `${messageOf(error)}: ${details.slice(0, 500)}` : messageOf(error)
}

async function resumeSession(
  ask: Ask,
  session: { cwd: string; mcpServers: McpServer[] },
  can: { load: boolean; resume: boolean },
  resume: AcpOptions['resume'],
): Promise<Opened | { why_not?: string }> {
  if (!resume) return {}
  if (!can.load && !can.resume) return { why_not: 'the agent does not support resuming a conversation' }
  const sessionId = resume.agent_session_id
  try {
    // Resuming is loading without a replay.
    const answer = await ask<{ configOptions?: SessionConfigOption[] | null } | null>(
      can.resume ? 'session/resume' : 'session/load',
      { ...session, sessionId },
    )
    return { ...answer, sessionId }
  } catch (error) {
    // An agent that hangs would not answer the next request either.
    if (error instanceof Fault) throw error
    // The agent's history is missing: a new conversation begins, and `resumed` is false.
    return { why_not: reasonOf(error) }
  }
}

/**
 * Sets session options. A reasoning level that the agent would ignore is refused; an agent without a model option keeps its
 * own model. An agent that resumes a conversation need not list its options again.
 */
async function choose(ask: Ask, session: Opened, setup: AgentSetup, resumed: boolean): Promise<void> {
  const { sessionId } = session
  let offered = session.configOptions
  for (const [category, value] of Object.entries(setup.options ?? {})) {
    const option = offered?.find((it) => it.category === category && it.type === 'select')
    if (!option && !resumed && category === 'thought_level')
      throw new Fault('invalid', `the agent does not support reasoning_level for this model: omit "${value}"`)
    if (!option || option.currentValue === value) continue
    const answer = await ask<{ configOptions?: SessionConfigOption[] } | null>('session/set_config_option', {
      sessionId,
      configId: option.id,
      value,
    })
    // One option can change the others.
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
      throw new Fault(
        'conflict',
        `the agent uses ACP version ${protocolVersion}; version ${acp.PROTOCOL_VERSION} is required`,
      )
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
    const old = await resumeSession(ask, session, can, options.resume)
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
    throw new Fault('unavailable', `the agent failed to open a session: ${reasonOf(error)}`, { cause: error })
  } finally {
    deadlines.close()
  }
}
