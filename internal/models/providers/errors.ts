// Formats a fault as each provider does, so that agents handle it correctly: what to show, and whether to retry.
import type { Fault, Kind } from '../../fault.ts'
import type { Dialect } from './providers.ts'

type ProviderStatus = { status: number; type: string }

const statuses: Record<Dialect, Partial<Record<Kind, ProviderStatus>> & { internal: ProviderStatus }> = {
  anthropic: {
    invalid: { status: 400, type: 'invalid_request_error' },
    unauthenticated: { status: 401, type: 'authentication_error' },
    forbidden: { status: 403, type: 'permission_error' },
    not_found: { status: 404, type: 'not_found_error' },
    exhausted: { status: 402, type: 'billing_error' },
    unavailable: { status: 503, type: 'api_error' },
    timeout: { status: 504, type: 'timeout_error' },
    internal: { status: 500, type: 'api_error' },
  },
  openai: {
    invalid: { status: 400, type: 'invalid_request_error' },
    unauthenticated: { status: 401, type: 'invalid_api_key' },
    forbidden: { status: 403, type: 'permission_denied' },
    not_found: { status: 404, type: 'not_found' },
    exhausted: { status: 429, type: 'insufficient_quota' },
    unavailable: { status: 503, type: 'service_unavailable' },
    timeout: { status: 504, type: 'timeout' },
    internal: { status: 500, type: 'server_error' },
  },
  gemini: {
    invalid: { status: 400, type: 'INVALID_ARGUMENT' },
    unauthenticated: { status: 401, type: 'UNAUTHENTICATED' },
    forbidden: { status: 403, type: 'PERMISSION_DENIED' },
    not_found: { status: 404, type: 'NOT_FOUND' },
    exhausted: { status: 429, type: 'RESOURCE_EXHAUSTED' },
    unavailable: { status: 503, type: 'UNAVAILABLE' },
    timeout: { status: 504, type: 'DEADLINE_EXCEEDED' },
    internal: { status: 500, type: 'INTERNAL' },
  },
  bedrock: {
    invalid: { status: 400, type: 'ValidationException' },
    unauthenticated: { status: 403, type: 'UnrecognizedClientException' },
    forbidden: { status: 403, type: 'AccessDeniedException' },
    not_found: { status: 404, type: 'ResourceNotFoundException' },
    exhausted: { status: 400, type: 'ServiceQuotaExceededException' },
    unavailable: { status: 503, type: 'ServiceUnavailableException' },
    timeout: { status: 408, type: 'ModelTimeoutException' },
    internal: { status: 500, type: 'InternalServerException' },
  },
}

function bodyOf(dialect: Dialect, { status, type }: ProviderStatus, message: string, fault: Fault): object {
  switch (dialect) {
    case 'anthropic':
      return { type: 'error', error: { type, message }, request_id: fault.id }
    case 'openai':
      return { error: { message, type, param: null, code: type } }
    case 'gemini':
      return {
        error: {
          code: status,
          message,
          status: type,
          // A daily quota, so that clients do not retry within the minute.
          ...(fault.kind === 'exhausted'
            ? {
                details: [
                  {
                    '@type': 'type.googleapis.com/google.rpc.QuotaFailure',
                    violations: [{ quotaId: 'OublietteCostPerDay' }],
                  },
                ],
              }
            : {}),
        },
      }
    case 'bedrock':
      return { message }
  }
}

export function providerError(dialect: Dialect, fault: Fault) {
  const chosen = statuses[dialect][fault.kind] ?? statuses[dialect].internal
  const message = fault.hint ? `${fault.message} (${fault.hint})` : fault.message
  const again = fault.kind === 'unavailable' || fault.kind === 'timeout'
  return {
    status: chosen.status,
    headers: {
      'content-type': 'application/json',
      // Takes precedence over everything else in the clients of Anthropic and OpenAI.
      'x-should-retry': String(again && fault.retry_after_seconds !== undefined),
      ...(dialect === 'bedrock' ? { 'x-amzn-errortype': chosen.type } : {}),
      ...(fault.retry_after_seconds === undefined
        ? {}
        : { 'retry-after': String(fault.retry_after_seconds) }),
    },
    body: JSON.stringify(bodyOf(dialect, chosen, message, fault)),
  }
}
