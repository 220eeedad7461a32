// The opening of a conversation with an agent: who we are, what it can, a new session or an old one taken up again.
import type { ClientContext, McpServer, SessionConfigOption, Stream } from '@agentclientprotocol/sdk'
import { Fault, messageOf } from '../fault.ts'
import type { AcpOptions } from './acp.ts'
import type { AgentSetup } from './agents/agent.ts'
import type { PermissionOption } from './autonomy.ts'

const OPENING_MS = 120_000

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
  context: ClientContext,
  session: { cwd: string; mcpServers: McpServer[] },
  can: { load: boolean; resume: boolean },
  resume: AcpOptions['resume'],
): Promise<Opened | { why_not?: string }> {
  if (!resume) return {}
  if (!can.load && !can.resume) return { why_not: 'the agent cannot take up a conversation' }
  const sessionId = resume.agent_session_id
  try {
    // Resuming is loading without telling everything again.
    const answer = await context.request<{ configOptions?: SessionConfigOption[] | null } | null>(
      can.resume ? 'session/resume' : 'session/load',
      { ...session, sessionId },
    )
    return { ...answer, sessionId }
  } catch (error) {
    // Its memory is gone or was never written: the conversation begins anew, and `resumed` says so.
    return { why_not: reasonOf(error) }
  }
}

/**
 * How hard to think is refused where it would not be heard; an agent that offers no models has one of its own. One that
 * takes up a conversation need not say again what there is to choose.
 */
async function choose(
  context: ClientContext,
  session: Opened,
  setup: AgentSetup,
  resumed: boolean,
): Promise<void> {
  const { sessionId } = session
  let offered = session.configOptions
  for (const [category, value] of Object.entries(setup.options ?? {})) {
    const option = offered?.find((it) => it.category === category && it.type === 'select')
    if (!option && !resumed && category === 'thought_level')
      throw new Fault('invalid', `the agent takes no reasoning_level for this model: leave "${value}" out`)
    if (!option || option.currentValue === value) continue
    const answer = await context.request<{ configOptions?: SessionConfigOption[] } | null>(
      'session/set_config_option',
      { sessionId, configId: option.id, value },
    )
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
  const open = async () => {
    const { agentCapabilities, protocolVersion } = await context.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
      clientInfo: { name: 'oubliette', version: '1' },
    })
    if (protocolVersion !== acp.PROTOCOL_VERSION)
      throw new Fault('conflict', `the agent speaks ACP ${protocolVersion}, not ${acp.PROTOCOL_VERSION}`)
    if (options.setup.authenticate !== undefined)
      await context.request('authenticate', { methodId: options.setup.authenticate })
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
    const old = await takeUp(context, session, can, options.resume)
    const resumed = 'sessionId' in old
    const opened: Opened = resumed ? old : await context.request(acp.methods.agent.session.new, session)
    await choose(context, opened, options.setup, resumed)
    return {
      context,
      sessionId: opened.sessionId,
      resumed,
      ...(!resumed && old.why_not !== undefined ? { why_not_resumed: old.why_not } : {}),
      images: agentCapabilities?.promptCapabilities?.image === true,
    }
  }
  const late = AbortSignal.timeout(OPENING_MS)
  const tooLate = new Promise<never>((_, reject) => {
    late.addEventListener('abort', () =>
      reject(new Fault('timeout', `the agent did not open a session within ${OPENING_MS / 1000} s`)),
    )
  })
  try {
    return await Promise.race([open(), tooLate])
  } catch (error) {
    if (error instanceof Fault) throw error
    throw new Fault('unavailable', `the agent did not open a session: ${reasonOf(error)}`, { cause: error })
  }
}
