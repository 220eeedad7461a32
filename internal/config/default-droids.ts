// The droids that work without any config: one for each known agent. An entry of the config with the same name replaces it.
import { type AgentName, agentNames, agents } from '../agents/agents.ts'
import type { DroidConfig } from './models.ts'

function entryFor(agent: AgentName): DroidConfig {
  const { command, args, providers } = agents[agent]
  return { kind: 'acp', agent, command, args, env: {}, image: agent, providers }
}

export const defaultDroids: Record<string, DroidConfig> & Record<AgentName, DroidConfig> = Object.fromEntries(
  agentNames.map((agent) => [agent, entryFor(agent)]),
) as Record<AgentName, DroidConfig>
