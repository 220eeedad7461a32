// The SDK's client, which lets results through as the upstream sent them. The SDK validates results with schemas of its own, which
// drop fields that they do not know, and checks structured content against output schemas, which is left to the managers.
import { Client, type RequestOptions, type StandardSchemaV1 } from '@modelcontextprotocol/client'

export const asSent: StandardSchemaV1<unknown, Record<string, unknown>> = {
  '~standard': {
    version: 1,
    vendor: 'oubliette',
    validate: (value) => ({ value: value as Record<string, unknown> }),
  },
}

type Request = { method: string; params?: Record<string, unknown> }

/** Of the probe on stdio, where a server that does not know the request may not answer it. */
const probeMs = 4_000

export function createClient(version: string, era: 'legacy' | 'auto'): Client {
  const client = new Client(
    { name: 'oubliette', version },
    {
      // Sampling and roots are not offered.
      capabilities: { elicitation: { form: {}, url: {} } },
      versionNegotiation: { mode: era, probe: { timeoutMs: probeMs } },
    },
  )
  const request = client.request.bind(client) as (
    request: Request,
    schemaOrOptions?: StandardSchemaV1 | RequestOptions,
    options?: RequestOptions,
  ) => Promise<unknown>
  // `callTool` mirrors arguments in headers and uses `request` without a schema.
  client.request = ((
    one: Request,
    schemaOrOptions?: StandardSchemaV1 | RequestOptions,
    options?: RequestOptions,
  ) =>
    one.method === 'tools/call' && !(schemaOrOptions && '~standard' in schemaOrOptions)
      ? request(one, asSent, schemaOrOptions)
      : request(one, schemaOrOptions, options)) as Client['request']
  return client
}
