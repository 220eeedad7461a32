// What an agent's file declares: how the agent is started, and how its model, provider, reasoning level and tools are set. Everything ends in an environment, arguments, files and what ACP has for it.
import { Fault } from '../fault.ts'
import type { ModelProvider } from '../model-providers.ts'
import type { Autonomy } from '../protocol/messages.ts'

export type AgentRequest = {
  /** The provider's API as this droid reaches it, and the key to send there. Without it, the agent brings its own models. */
  provider?: { name: string; url: string; key: string }
  model?: string
  reasoning_level?: string
  tools_allowed: string[]
  tools_disallowed: string[]
  autonomy: Autonomy
  home: string
  /** The agent's own id of the conversation to resume. */
  resume?: string
  /** Belongs to this session only: where `files` are written. */
  directory: string
}

export type AgentSetup = {
  env?: Record<string, string>
  /** Appended to those of the config. */
  args?: string[]
  /** Sent with `session/new`, `session/load` and `session/resume`. */
  meta?: Record<string, unknown>
  /** By name, written before the agent starts. */
  files?: Record<string, string>
  /** Runs before the agent starts. */
  before?: () => void
  /** The ACP authentication method to use before a session is opened. */
  authenticate?: string
  /** Values of session options, by category. */
  options?: Record<string, string>
}

/** The container type that has the agent is the folder of `images/` with the agent's name. */
export type Agent = {
  command: string
  args: string[]
  /** Model providers that it can use, in the order in which they are chosen. */
  providers: ModelProvider[]
  /** Memory of one session's processes in MiB: as measured in a short turn, with a margin for longer ones. */
  memory_mb: number
  setUp(request: AgentRequest): AgentSetup
}

/** The fields that have a value. */
export const definedFields = (fields: Record<string, string | undefined>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(fields).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )

/** A setting that an agent would ignore is refused, so that it does not look as if it were in force. */
export function refuseToolLists(
  agent: string,
  request: Pick<AgentRequest, 'tools_allowed' | 'tools_disallowed'>,
): void {
  if (request.tools_allowed.length + request.tools_disallowed.length > 0)
    throw new Fault(
      'invalid',
      `${agent} does not support tool lists: omit tools_allowed and tools_disallowed`,
    )
}
