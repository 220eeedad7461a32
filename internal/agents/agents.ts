// The agents that work without any config. Adding one takes a file beside this one, its line in this list and a folder in
// `images/`; the config, the memory that is expected for it and its container type follow from the list.
import { Fault } from '../fault.ts'
import { type Agent, type AgentRequest, type AgentSetup, definedFields } from './agent.ts'
import { claude } from './claude.ts'
import { codex } from './codex.ts'
import { droid } from './droid.ts'
import { gemini } from './gemini.ts'
import { opencode } from './opencode.ts'

export const agents = { claude, codex, gemini, opencode, droid } satisfies Record<string, Agent>

export type AgentName = keyof typeof agents
export const agentNames = Object.keys(agents) as [AgentName, ...AgentName[]]

const isAgentName = (name: string): name is AgentName => Object.hasOwn(agents, name)

/** Without a name, the agent is of no known kind and gets its model and reasoning level by ACP only. */
export function setUpAgent(name: string | undefined, request: AgentRequest): AgentSetup {
  if (name === undefined)
    return { options: definedFields({ model: request.model, thought_level: request.reasoning_level }) }
  if (!isAgentName(name))
    throw new Fault('conflict', `the client in the container does not know the agent "${name}"`, {
      hint: 'restart the container with container start and recreate, to get the client of this server',
    })
  return agents[name].setUp(request)
}
