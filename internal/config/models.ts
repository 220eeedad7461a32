// The part of the config that is about droids and the models they use: what each needs, the secrets, the prices.
import { z } from 'zod'
import { agentNames, agents } from '../agents/agents.ts'
import { Fault } from '../fault.ts'
import { Secret } from '../log.ts'
import { credentialVariables, modelProviders } from '../model-providers.ts'

export const droidSchema = z.strictObject({
  kind: z
    .enum(['shell', 'acp'])
    .describe('`shell` runs the prompt as a bash script; `acp` speaks the Agent Client Protocol.'),
  command: z.string().min(1).optional().describe('The program to start (acp).'),
  args: z.array(z.string()).default([]).describe('Its arguments.'),
  env: z.record(z.string(), z.string()).default({}).describe('Its additional environment.'),
  image: z
    .string()
    .optional()
    .describe('The container type that has it: that of projects which are made for it and name none.'),
  agent: z
    .enum(agentNames)
    .optional()
    .describe(
      'Which agent it is, if one of those whose model, reasoning, tools and gateway we know how to set.',
    ),
  providers: z
    .array(z.enum(modelProviders))
    .default([])
    .describe(
      'Model providers that it can use through the model gateway; the first with a credential is used.',
    ),
  memory_mb: z
    .int()
    .min(1)
    .max(1_048_576)
    .optional()
    .describe(
      `Memory that one session of it is expected to take, in MiB, which admission counts against \`limits.memory_mb\`. If left out: ${agentNames.map((name) => `${name} ${agents[name].memory_mb}`).join(', ')}, another acp droid 256, shell 8.`,
    ),
})
export type DroidConfig = z.infer<typeof droidSchema>

export const credentialSchema = z.strictObject({
  provider: z.enum(['git', ...modelProviders]).describe('What it is for: `git`, or a model provider.'),
  key: z.string().min(1).describe('The secret itself, or `${env:NAME}` to take it from the environment.'),
  username: z
    .string()
    .optional()
    .describe('For `git`: the user name that goes with it; x-access-token if left out.'),
  base_url: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe("For a model provider: where it is, if not at the provider's own address."),
  region: z.string().min(1).optional().describe('For `bedrock`: the region; us-east-1 if left out.'),
  access_key_id: z
    .string()
    .min(1)
    .optional()
    .describe('For `bedrock`: the id that goes with a secret access key. Without it the key is an API key.'),
  session_token: z
    .string()
    .min(1)
    .optional()
    .describe('For `bedrock`: the token of temporary credentials, or `${env:NAME}`.'),
})

const usd = z.number().min(0).max(1_000_000)
export const priceSchema = z.strictObject({
  input: usd.describe('Input tokens.'),
  output: usd.describe('Output tokens, thoughts included.'),
  cache_read: usd.optional().describe('Input tokens read from a cache; as `input` if left out.'),
  cache_write: usd.optional().describe('Input tokens written to a cache; as `input` if left out.'),
  cache_write_1h: usd
    .optional()
    .describe('Input tokens written to a cache for an hour; twice `input` if left out.'),
  long_context: z
    .strictObject({
      above_tokens: z.int().min(1).describe('Applies to requests with more input tokens than this.'),
      factor: z.number().min(1).max(100).describe('Multiplies the prices of the whole request.'),
    })
    .optional()
    .describe('For models that cost more when the input is long.'),
  max_output_tokens: z
    .int()
    .min(1)
    .max(10_000_000)
    .optional()
    .describe('The most the model writes in one answer; `estimates.output_tokens` if left out.'),
})
export type Price = z.infer<typeof priceSchema>

/** Above what the large models cost today: a model without a price must not be cheaper for it. */
export const defaultPriceSchema = priceSchema.extend({
  input: priceSchema.shape.input.default(15),
  output: priceSchema.shape.output.default(75),
})

const tokens = z.int().min(1).max(10_000_000)
export const estimatesSchema = z.strictObject({
  output_tokens: tokens
    .default(128_000)
    .describe('Output of a request that sets no maximum itself, for a model whose price sets none.'),
  image_tokens: tokens.default(10_000).describe('Input tokens of one image.'),
  file_tokens: tokens
    .default(300_000)
    .describe('Input tokens of one document, audio or video file, and of what one hosted tool adds.'),
})
export type Estimates = z.infer<typeof estimatesSchema>

/** Kinds of what a provider does on its own side for a request; see docs/models.md. */
export const hostedTools = [
  'web_search',
  'web_fetch',
  'code_execution',
  'mcp',
  'file_search',
  'image_generation',
  'urls',
  'files',
] as const
export type HostedTool = (typeof hostedTools)[number]

export type Credential = {
  provider: string
  key: Secret
  username?: string
  base_url?: string
  region?: string
  access_key_id?: string
  session_token?: Secret
}

const fromEnvironment = /^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$/

/** Whether a value of the config file is a secret itself, rather than the name of a variable that holds one. */
export const isLiteral = (text: string): boolean => !fromEnvironment.test(text)

/** The secret, or the name of the variable that should hold it and is not set. */
export function secretOf(
  text: string,
  env: NodeJS.ProcessEnv,
): { secret: Secret; unset?: never } | { secret?: never; unset: string } {
  const variable = fromEnvironment.exec(text)?.[1]
  if (variable === undefined) return { secret: new Secret(text) }
  const value = env[variable]
  return value ? { secret: new Secret(value) } : { unset: variable }
}

/** The fields that only some providers have a use for. */
const fieldsFor = {
  username: ['git'],
  base_url: modelProviders,
  region: ['bedrock'],
  access_key_id: ['bedrock'],
  session_token: ['bedrock'],
} as const satisfies Partial<Record<keyof z.infer<typeof credentialSchema>, readonly string[]>>

function checkFields(name: string, credential: z.infer<typeof credentialSchema>, file: string): void {
  for (const [field, users] of Object.entries(fieldsFor))
    if (credential[field as keyof typeof fieldsFor] !== undefined)
      if (!(users as readonly string[]).includes(credential.provider))
        throw new Fault(
          'invalid',
          `${file}: credentials.${name}.${field} has no use for provider "${credential.provider}"`,
          { hint: `it is for ${users.join(', ')}` },
        )
  if (credential.provider === 'openai-compatible' && !credential.base_url)
    throw new Fault('invalid', `${file}: credentials.${name}.base_url is missing`, {
      hint: 'an openai-compatible provider can be anywhere, for example at http://127.0.0.1:11434/v1',
    })
}

/**
 * Those of the config, and those that the environment has for providers that the config has none for. A credential
 * whose variable is not set is left out with a warning: projects that do not use it are not held up by it.
 */
export function readCredentials(
  configured: Record<string, z.infer<typeof credentialSchema>>,
  env: NodeJS.ProcessEnv,
  file: string,
): { credentials: Map<string, Credential>; warnings: string[] } {
  const read = new Map<string, Credential>()
  const warnings: string[] = []
  for (const [name, credential] of Object.entries(configured)) {
    checkFields(name, credential, file)
    const { key, session_token, ...rest } = credential
    const main = secretOf(key, env)
    const token = session_token === undefined ? undefined : secretOf(session_token, env)
    for (const unset of [main.unset, token?.unset])
      if (unset !== undefined)
        warnings.push(
          `credential "${name}" is not available: ${file} takes it from the environment variable ${unset}, which is not set`,
        )
    if (!main.secret || token?.unset) continue
    read.set(name, { ...rest, key: main.secret, ...(token?.secret ? { session_token: token.secret } : {}) })
  }
  for (const [provider, variable] of Object.entries(credentialVariables)) {
    const value = env[variable]
    const there = read.has(provider) || [...read.values()].some((it) => it.provider === provider)
    if (value && !there) read.set(provider, { provider, key: new Secret(value) })
  }
  return { credentials: read, warnings }
}
