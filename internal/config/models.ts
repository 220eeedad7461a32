// The part of the config about droids and the models that they use: droids, credentials, prices and cost estimates.
import { z } from 'zod'
import { agentNames, agents } from '../agents/agents.ts'
import { Fault } from '../fault.ts'
import { Secret } from '../log.ts'
import { credentialVariables, modelProviders } from '../model-providers.ts'

export const droidSchema = z.strictObject({
  kind: z
    .enum(['shell', 'acp'])
    .describe('`shell` runs the prompt as a bash script; `acp` speaks the Agent Client Protocol.'),
  command: z.string().min(1).optional().describe('Program to start. Required for `acp`.'),
  args: z.array(z.string()).default([]).describe('Arguments of the program.'),
  env: z
    .record(z.string(), z.string())
    .default({})
    .describe('Environment variables that are added for the program.'),
  image: z
    .string()
    .optional()
    .describe(
      'Container type that contains the program. Projects that are created with this droid and set no container type use it.',
    ),
  agent: z
    .enum(agentNames)
    .optional()
    .describe(
      'Agent implementation. If set, Oubliette configures its model, reasoning level, tools and model proxy.',
    ),
  providers: z
    .array(z.enum(modelProviders))
    .default([])
    .describe(
      'Model providers that the droid can use through the model proxy. The first one with a credential is used.',
    ),
  memory_mb: z
    .int()
    .min(1)
    .max(1_048_576)
    .optional()
    .describe(
      `Expected memory of one session, in MiB. Admission counts it against \`limits.memory_mb\`. If omitted: ${agentNames.map((name) => `${name} ${agents[name].memory_mb}`).join(', ')}, other \`acp\` droids 256, shell 8.`,
    ),
})
export type DroidConfig = z.infer<typeof droidSchema>

export const credentialSchema = z.strictObject({
  provider: z.enum(['git', ...modelProviders]).describe('Use of the credential: `git`, or a model provider.'),
  key: z.string().min(1).describe('The secret, or `${env:NAME}` to read it from the environment.'),
  username: z.string().optional().describe('`git` only: user name. If omitted, `x-access-token`.'),
  base_url: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe(
      "Model providers only: base URL that replaces the provider's default. Required for `openai-compatible`.",
    ),
  region: z.string().min(1).optional().describe('`bedrock` only: AWS region. If omitted, `us-east-1`.'),
  access_key_id: z
    .string()
    .min(1)
    .optional()
    .describe(
      '`bedrock` only: access key ID. If set, `key` is the secret access key; otherwise `key` is an API key.',
    ),
  session_token: z
    .string()
    .min(1)
    .optional()
    .describe('`bedrock` only: session token of temporary credentials, or `${env:NAME}`.'),
})

const usd = z.number().min(0).max(1_000_000)
export const priceSchema = z.strictObject({
  input: usd.describe('Price of input tokens.'),
  output: usd.describe('Price of output tokens, including reasoning tokens.'),
  cache_read: usd
    .optional()
    .describe('Price of input tokens read from a cache. If omitted, same as `input`.'),
  cache_write: usd
    .optional()
    .describe('Price of input tokens written to a cache. If omitted, same as `input`.'),
  cache_write_1h: usd
    .optional()
    .describe('Price of input tokens written to a one-hour cache. If omitted, twice `input`.'),
  long_context: z
    .strictObject({
      above_tokens: z.int().min(1).describe('Number of input tokens above which `factor` applies.'),
      factor: z
        .number()
        .min(1)
        .max(100)
        .describe('Factor by which all prices of the request are multiplied.'),
    })
    .optional()
    .describe('Surcharge for requests with a long input.'),
  max_output_tokens: z
    .int()
    .min(1)
    .max(10_000_000)
    .optional()
    .describe('Maximum output tokens of one response of the model. If omitted, `estimates.output_tokens`.'),
})
export type Price = z.infer<typeof priceSchema>

/** Higher than the price of current large models, so that a model does not become cheaper by having no price. */
export const defaultPriceSchema = priceSchema.extend({
  input: priceSchema.shape.input.default(15),
  output: priceSchema.shape.output.default(75),
})

const tokens = z.int().min(1).max(10_000_000)
export const estimatesSchema = z.strictObject({
  output_tokens: tokens
    .default(128_000)
    .describe('Output tokens of a request without a maximum, for a model without `max_output_tokens`.'),
  image_tokens: tokens.default(10_000).describe('Input tokens of one image.'),
  file_tokens: tokens
    .default(300_000)
    .describe(
      'Input tokens of one document, audio or video file, and of the input that one hosted tool adds.',
    ),
})
export type Estimates = z.infer<typeof estimatesSchema>

/** Features that a provider runs on its side of a request; see docs/models.md. */
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
  /** The environment variable that it is read from and that is not set: the credential cannot be used, and its key is empty. */
  unset?: string
  key: Secret
  username?: string
  base_url?: string
  region?: string
  access_key_id?: string
  session_token?: Secret
}

const fromEnvironment = /^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$/

/** Whether a value is the secret itself and not a reference to an environment variable. */
export const isLiteral = (text: string): boolean => !fromEnvironment.test(text)

/** The secret, or the name of the variable that it refers to and that is not set. */
export function secretOf(
  text: string,
  env: NodeJS.ProcessEnv,
): { secret: Secret; unset?: never } | { secret?: never; unset: string } {
  const variable = fromEnvironment.exec(text)?.[1]
  if (variable === undefined) return { secret: new Secret(text) }
  const value = env[variable]
  return value ? { secret: new Secret(value) } : { unset: variable }
}

/** Throws if its environment variable is not set: another credential must not be used in its place. */
export function requireSet(name: string, credential: Credential): Credential {
  if (credential.unset === undefined) return credential
  throw new Fault(
    'unavailable',
    `credential "${name}" is not available: the environment variable ${credential.unset} is not set`,
    { hint: `set ${credential.unset} in the environment of the server, and restart the server` },
  )
}

/** Fields that apply to some providers only. */
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
          `${file}: credentials.${name}.${field} does not apply to provider "${credential.provider}"`,
          { hint: `remove it; it applies to ${users.join(', ')}` },
        )
  if (credential.provider === 'openai-compatible' && !credential.base_url)
    throw new Fault('invalid', `${file}: credentials.${name}.base_url is missing`, {
      hint: 'provider openai-compatible requires a base_url, for example http://127.0.0.1:11434/v1',
    })
}

/**
 * The credentials of the config, and those of well-known environment variables for providers without one in the config.
 * A credential whose variable is not set gives a warning, so that projects that do not use it still work.
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
          `credential "${name}" is not available: ${file} reads it from the environment variable ${unset}, which is not set`,
        )
    const unset = main.unset ?? token?.unset
    read.set(name, {
      ...rest,
      ...(unset === undefined ? {} : { unset }),
      key: main.secret ?? new Secret(''),
      ...(token?.secret ? { session_token: token.secret } : {}),
    })
  }
  for (const [provider, variable] of Object.entries(credentialVariables)) {
    const value = env[variable]
    const there = [...read.values()].some((it) => it.provider === provider && it.unset === undefined)
    if (value && !there && !read.has(provider)) read.set(provider, { provider, key: new Secret(value) })
  }
  return { credentials: read, warnings }
}
