// The model providers that the model proxy supports, by name.

export const modelProviders = [
  'anthropic',
  'openai',
  'gemini',
  'openrouter',
  'openai-compatible',
  'bedrock',
] as const
export type ModelProvider = (typeof modelProviders)[number]

/** Environment variables of the server that are used as a provider's credential if the config has none. */
export const credentialVariables: Partial<Record<ModelProvider, string>> = {
  anthropic: 'ANTHROPIC_API_KEY',
  openai: 'OPENAI_API_KEY',
  gemini: 'GEMINI_API_KEY',
  openrouter: 'OPENROUTER_API_KEY',
}
