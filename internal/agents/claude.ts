// Claude Code, through claude-agent-acp.
import { type Agent, definedFields } from './agent.ts'

export const claude: Agent = {
  command: 'claude-agent-acp',
  args: [],
  providers: ['anthropic', 'bedrock'],
  memory_mb: 320,
  setUp({ provider, model, reasoning_level, tools_allowed, tools_disallowed }) {
    const options = {
      ...(tools_allowed.length > 0
        ? {
            // `tools` are the built-in tools it has, `allowedTools` those it may use without asking.
            tools: tools_allowed.filter((name) => !name.startsWith('mcp__')),
            allowedTools: tools_allowed,
          }
        : {}),
      ...(tools_disallowed.length > 0 ? { disallowedTools: tools_disallowed } : {}),
    }
    return {
      env: {
        ...(provider?.name === 'anthropic'
          ? { ANTHROPIC_BASE_URL: provider.url, ANTHROPIC_API_KEY: provider.key }
          : {}),
        ...(provider?.name === 'bedrock'
          ? {
              CLAUDE_CODE_USE_BEDROCK: '1',
              ANTHROPIC_BEDROCK_BASE_URL: provider.url,
              AWS_BEARER_TOKEN_BEDROCK: provider.key,
              // Required by the SDK. The credential decides which region the server uses.
              AWS_REGION: 'us-east-1',
            }
          : {}),
        ...definedFields({ ANTHROPIC_MODEL: model }),
      },
      meta: { claudeCode: { options } },
      options: definedFields({ thought_level: reasoning_level }),
    }
  },
}
