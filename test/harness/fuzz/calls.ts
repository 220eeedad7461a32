// Whole requests that are wrong in one way or another, for every tool and action that there is.
import fc from 'fast-check'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { bodyFor, type Era, eras, headersFor, type Send } from '../rpc.ts'
import { badName, badText, badValue, nested } from './values.ts'

export type Target = { token: string; session: string; project_id: string; max_body_bytes: number }
type Args = Record<string, unknown>

// With a real project these would run something, or take it away.
const harmful = /^(container|session|image_rebuild)|^project\.(delete|create)$/

type Known = { tool: string; action: string | undefined; fields: string[]; harmless: boolean }
const known: Known[] = Object.values(tools).flatMap((tool) =>
  Object.entries(tool.actions).map(([name, action]) => ({
    tool: tool.name,
    action: tool.unified ? name : undefined,
    fields: Object.keys(action.input.shape),
    harmless: !harmful.test(`${tool.name}.${name}`),
  })),
)

const plain: Args = {
  name: 'fuzz',
  path: 'file.txt',
  content: 'text',
  scope: 'admin:ro',
  token_id: 'tok_0123456789abcdef0123',
  session_id: 'gogol_0123456789abcdef0123',
  approval_id: 'apr_0123456789abcdef0123',
  decision: 'deny',
  message: 'true',
  command: 'true',
}

/**
 * Bad values for some fields and unknown fields beside them; or one bad value among good ones and in a project that is
 * there, to get further in.
 */
function argsOf({ action, fields, harmless }: Known, project_id: string): fc.Arbitrary<Args> {
  const wild = fc
    .tuple(
      fc.record(Object.fromEntries(fields.map((field) => [field, badValue])), { requiredKeys: [] }),
      fc.dictionary(badName, badValue, { maxKeys: 2 }),
      fc.boolean(),
    )
    .map(([some, more, named]) => ({ ...more, ...some, ...(named && action ? { action } : {}) }))
  const good: Args = harmless ? { ...plain, project_id } : plain
  const needed = Object.fromEntries(
    fields.filter((field) => field in good).map((field) => [field, good[field]]),
  )
  const single = fc
    .tuple(fc.constantFrom(...fields, 'unknown_field'), badValue)
    .map(([field, value]) => ({ ...needed, [field]: value, ...(action ? { action } : {}) }))
  return fc.oneof(wild, single)
}

const post = (era: Era, to: Target, method: string, name: string | undefined, body: unknown): Send => ({
  headers: {
    ...headersFor(era, to.token, method, name),
    ...(era === '2025-11-25' ? { 'mcp-session-id': to.session } : {}),
  },
  body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
})

const era = fc.constantFrom(...eras)
/** What node's own client refuses to send is not ours to test. */
const headerText = badText.map((text) => encodeURI(text.toWellFormed()).slice(0, 9000))

export function badArguments(to: Target): fc.Arbitrary<Send> {
  const one = fc.constantFrom(...known).chain((of) => fc.tuple(fc.constant(of), argsOf(of, to.project_id)))
  return fc
    .tuple(era, one)
    .map(([era, [{ tool }, args]]) =>
      post(era, to, 'tools/call', tool, bodyFor(era, 'tools/call', { name: tool, arguments: args })),
    )
}

export function badParams(to: Target): fc.Arbitrary<Send> {
  const method = fc.oneof(
    fc.constantFrom('tools/call', 'tools/list', 'initialize', 'ping', 'server/discover', 'resources/list'),
    badText,
  )
  const params = fc.oneof(
    badValue,
    fc.record({ name: badValue, arguments: badValue, _meta: badValue }, { requiredKeys: [] }),
  )
  const frame = fc.record(
    { jsonrpc: fc.oneof(fc.constant('2.0'), badValue), id: badValue },
    { requiredKeys: [] },
  )
  return fc.tuple(era, method, params, frame).map(([era, method, params, frame]) => {
    const body = { ...bodyFor(era, method), ...(params === 1 ? {} : { params }), ...frame }
    return post(era, to, encodeURI(method.toWellFormed()).slice(0, 200), undefined, body)
  })
}

export function badBodies(to: Target): fc.Arbitrary<Send> {
  const good = JSON.stringify(bodyFor('2026-07-28', 'tools/list'))
  const body = fc.oneof(
    fc.integer({ min: 0, max: good.length - 1 }).map((length) => good.slice(0, length)),
    fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
    fc.constantFrom(127, 129, 5000, 50_000).map((depth) => '['.repeat(depth)),
    fc.constantFrom(100, 130, 3000).map((depth) => JSON.stringify(nested(depth))),
    badValue.map((value) => JSON.stringify(value)),
    fc.array(badValue, { maxLength: 4 }).map((batch) => JSON.stringify(batch)),
    fc.constant(good.replace('"tools/list"', '"tools/list","method":"x"')),
    fc.constant(`\ufeff${good}`),
    fc.constantFrom(1, 50_000).map((over) => 'x'.repeat(to.max_body_bytes + over)),
  )
  return fc.tuple(era, body).map(([era, body]) => post(era, to, 'tools/list', undefined, body))
}

export function badHeaders(to: Target): fc.Arbitrary<Send> {
  const names = [
    'authorization',
    'content-type',
    'accept',
    'mcp-protocol-version',
    'mcp-method',
    'mcp-name',
    'mcp-session-id',
    'origin',
    'host',
    'last-event-id',
    'x-forwarded-for',
    'cookie',
  ]
  const wrong = fc.dictionary(fc.constantFrom(...names), fc.oneof(headerText, fc.constant(undefined)), {
    minKeys: 1,
    maxKeys: 3,
  })
  return fc.tuple(era, wrong).map(([era, wrong]) => {
    const good = post(era, to, 'tools/list', undefined, bodyFor(era, 'tools/list'))
    return { ...good, headers: { ...good.headers, ...wrong } }
  })
}

export function badRequests(to: Target): fc.Arbitrary<Send> {
  const method = fc.constantFrom('GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'HEAD', 'TRACE', 'PROPFIND')
  const path = fc.oneof(
    fc.constantFrom('/mcp', '/mcp/', '/%00', '/%', '/..%2f..%2fetc', '/healthz', '/readyz', '/mcp?x=%ff'),
    badText.map((text) => `/${encodeURIComponent(text.toWellFormed()).slice(0, 4000)}`),
  )
  // A GET with the session's id would open its stream, which is no error and has no end.
  return fc
    .tuple(method, path)
    .map(([method, path]) => ({ method, path, headers: { authorization: `Bearer ${to.token}` } }))
}
