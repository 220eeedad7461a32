// Codex, through codex-acp. Its own sandbox needs privileges that a container does not have, so the container is the sandbox,
// and the mode sets what Codex may do without asking.
import { type Agent, refuseToolLists } from './agent.ts'

const modes = { off: 'read-only', low: 'read-only', medium: 'agent', high: 'agent-full-access' } as const

export const codex: Agent = {
  command: 'codex-acp',
  args: [],
  providers: ['openai'],
  memory_mb: 200,
  setUp(request) {
    const { provider, model, reasoning_level, autonomy } = request
    refuseToolLists('Codex', request)
    return {
      env: {
        NO_BROWSER: '1',
        INITIAL_AGENT_MODE: modes[autonomy],
        ...(provider ? { MODEL_PROVIDER: 'oubliette' } : {}),
        CODEX_CONFIG: JSON.stringify({
          check_for_update_on_startup: false,
          analytics: { enabled: false },
          features: { plugins: false, apps: false },
          ...(model === undefined ? {} : { model }),
          ...(reasoning_level === undefined ? {} : { model_reasoning_effort: reasoning_level }),
          ...(provider
            ? {
                model_provider: 'oubliette',
                model_providers: {
                  oubliette: {
                    name: 'Oubliette',
                    base_url: `${provider.url}/v1`,
                    env_key: 'OUBLIETTE_API_KEY',
                    wire_api: 'responses',
                  },
                },
              }
            : {}),
        }),
      },
    }
  },
}
