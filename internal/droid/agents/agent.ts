// What we know about single agents: how each is told its model, its provider, how hard to think and which tools it may
// use. All of it ends in an environment, arguments, and what ACP has for it; agents that are not here get the model by ACP
// alone.
import type { Autonomy } from '../autonomy.ts'
import { claude } from './claude.ts'
import { codex } from './codex.ts'
import { droid } from './droid.ts'
import { gemini } from './gemini.ts'
import { given } from './given.ts'
import { opencode } from './opencode.ts'

export type AgentWish = {
  /** Where the provider's API is for this droid, and the key to show there. None: it has its models from elsewhere. */
  provider?: { name: string; url: string; key: string }
  model?: string
  reasoning_level?: string
  tools_allowed: string[]
  tools_disallowed: string[]
  autonomy: Autonomy
  home: string
  /** The conversation that it shall take up again, by its own id. */
  resume?: string
  /** Of this session alone: where `files` will be. */
  directory: string
}

export type AgentSetup = {
  env?: Record<string, string>
  /** After those of the config. */
  args?: string[]
  /** Goes with `session/new`, `session/load` and `session/resume`. */
  meta?: Record<string, unknown>
  /** By name, written before it starts. */
  files?: Record<string, string>
  /** What has to be put in order before it starts. */
  before?: () => void
  /** The first one of a container starts alone: it makes files that it cannot share while it makes them. */
  first_alone?: boolean
  /** The ACP way to log in, before a session is opened. */
  authenticate?: string
  /** Values for the options of a session, by their category. */
  options?: Record<string, string>
}

export type Agent = (wish: AgentWish) => AgentSetup

const agents: Record<string, Agent> = { claude, codex, droid, gemini, opencode }

const unknownAgent: Agent = ({ model, reasoning_level }) => ({
  options: given({ model, thought_level: reasoning_level }),
})

export const setUpAgent = (name: string | undefined, wish: AgentWish): AgentSetup =>
  (name !== undefined && Object.hasOwn(agents, name) ? agents[name]! : unknownAgent)(wish)
