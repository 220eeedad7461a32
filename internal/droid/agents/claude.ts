// Claude Code, by way of claude-agent-acp.
import type { Agent } from './agent.ts'
import { given } from './given.ts'

export const claude: Agent = ({ provider, model, reasoning_level, tools_allowed, tools_disallowed }) => {
  const options = {
    ...(tools_allowed.length > 0
      ? {
          // The first is what it has of its own, the second what it may use without asking.
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
            // Where the server really asks is the credential's business.
            AWS_REGION: 'us-east-1',
          }
        : {}),
      ...given({ ANTHROPIC_MODEL: model }),
    },
    meta: { claudeCode: { options } },
    options: given({ thought_level: reasoning_level }),
  }
}
