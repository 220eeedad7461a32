// The predefined droids: name, command, and the model providers that each can use, in order of preference. An entry of
// the config with the same name replaces one of these.
import type { DroidConfig } from './models.ts'

const entry = (
  agent: NonNullable<DroidConfig['agent']>,
  command: string,
  args: string[],
  providers: DroidConfig['providers'],
): DroidConfig => ({ kind: 'acp', agent, command, args, env: {}, image: agent, providers })

export const defaultDroids: Record<string, DroidConfig> = {
  claude: entry('claude', 'claude-agent-acp', [], ['anthropic', 'bedrock']),
  codex: entry('codex', 'codex-acp', [], ['openai']),
  gemini: entry('gemini', 'gemini', ['--acp'], ['gemini']),
  opencode: entry(
    'opencode',
    'opencode',
    ['acp'],
    ['anthropic', 'openai', 'openrouter', 'openai-compatible', 'gemini'],
  ),
  droid: entry(
    'droid',
    'droid',
    ['exec', '--output-format', 'acp'],
    ['anthropic', 'openai', 'openrouter', 'openai-compatible'],
  ),
}

/** Expected memory of the processes of one agent in MiB: measured in a short turn, plus a margin for longer ones. */
export const agentMemoryMb: Record<NonNullable<DroidConfig['agent']>, number> = {
  claude: 320,
  codex: 200,
  gemini: 330,
  opencode: 480,
  droid: 260,
}

/** Environment variables of the server that are used as a credential of their provider when the config has none. */
export const credentialVariables: Record<string, string> = {
  anthropic: 'ANTHROPIC_API_KEY',
  openai: 'OPENAI_API_KEY',
  gemini: 'GEMINI_API_KEY',
  openrouter: 'OPENROUTER_API_KEY',
}
