// Calls of tools of upstreams, by droids and by callers. In this order: is the same call known already; do the arguments match
// the schema; is the rate kept; is the result still valid in the cache; does the policy allow it, or must it be asked. Then the
// row is committed and the request leaves. Questions of the upstream are asked in the inbox; the call continues with the
// answers.
import { LRUCache } from 'lru-cache'
import { createRate } from '../../../auth/rate.ts'
import { Fault, messageOf } from '../../../fault.ts'
import { newUpstreamCallId } from '../../../ids.ts'
import { hashOf } from '../../../lib/canonical-json.ts'
import type { Log } from '../../../log.ts'
import type { Autonomy } from '../../../protocol/messages.ts'
import type { Db } from '../../../store/open.ts'
import type { UpstreamCallRow } from '../../../store/rows/upstream/calls.ts'
import type { UpstreamRow } from '../../../store/rows/upstream/upstreams.ts'
import { UpstreamFault } from '../../../upstream/faults.ts'
import type { CallOutcome, InputRequest, InputResponse, UpstreamTool } from '../../../upstream/upstream.ts'
import { type Approvals, refusal } from '../../approval/approval.ts'
import type { Override, PolicyAnswer } from '../../approval/policy.ts'
import type { SchemaCheck } from '../../caller/tools.ts'
import type { Offer } from '../catalog.ts'
import type { Connections } from '../connection/connections.ts'
import { matches } from '../names.ts'
import type { CallLog } from './log.ts'
import { restoredFault, storedError, type ToolResult, unknownOutcome } from './outcome.ts'

export type From = {
  /** The project on whose behalf it is made; null for a call of a global upstream by an admin. */
  project_id: string | null
  session_id: string | null
  caller_id: string
  /** Chosen by the droid's client: a repeat has the same. */
  call_id?: string
  /** Of the session; null for a call without one. */
  autonomy: Autonomy | null
}
type Progress = { progress: number; total?: number; message?: string }
export type How = {
  signal: AbortSignal
  progress: (update: Progress) => void
  /** Whether this reason of the signal ends the call; a lost connection does not. */
  cancelled: (reason: unknown) => boolean
  /** Settles when the audit has the intent; nothing is sent before. */
  intent: Promise<void>
}

const cacheBytes = 32 * 1024 * 1024
/** An upstream that asks again and again is ended. */
const mostRounds = 10

/** The verdicts that the upstream's own policy has for a tool; the longest pattern that matches decides. */
function overridesOf({ id, settings, trusted }: UpstreamRow, tool: string): Override[] {
  const found = Object.entries(settings.policy ?? {})
    .filter(([pattern]) => matches(pattern, tool))
    .sort(([one], [other]) => other.length - one.length)[0]
  if (!found) return []
  const verdict = found[1] as Override['verdict']
  return [{ set_by: trusted ? 'admin' : 'project', server_id: id, tool, verdict }]
}

const isReadOnly = ({ annotations }: UpstreamTool) => annotations?.readOnlyHint === true
const isRepeatable = (tool: UpstreamTool) => isReadOnly(tool) || tool.annotations?.idempotentHint === true
const isCacheable = (tool: UpstreamTool) => isReadOnly(tool) && tool.annotations?.idempotentHint !== false

export type Decide = (question: {
  tool: UpstreamTool
  upstream: UpstreamRow
  from: From
  overrides: Override[]
}) => Promise<PolicyAnswer> | PolicyAnswer

export function createCalls(deps: {
  connections: Connections
  calls: CallLog
  approvals: Pick<Approvals, 'ask' | 'use'>
  decide: Decide
  schema: SchemaCheck
  rate: { per_second: number; burst: number }
  /** Unless the upstream sets its own. */
  max_result_bytes: number
  log: Log
}) {
  const { connections, calls, approvals } = deps
  const rate = createRate(deps.rate)
  const cache = new LRUCache<string, { result: ToolResult; bytes: number }>({
    maxSize: cacheBytes,
    sizeCalculation: ({ bytes }) => bytes + 200,
  })

  /** Schemas that the bounded check does not support are left to the upstream. */
  async function checkArguments(
    from: From,
    { upstream, tool }: Offer,
    args: Record<string, unknown>,
  ): Promise<void> {
    const schema = (tool.definition as UpstreamTool).inputSchema
    let wrong: string | undefined
    try {
      wrong = await deps.schema.validate(from.project_id ?? upstream.id, schema, args)
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      return
    }
    if (wrong)
      throw new Fault('invalid', `${tool.visible_name}: ${wrong}`, {
        hint: 'correct the arguments and call it again',
      })
  }

  function takeRate(from: From, { name, id }: UpstreamRow): void {
    const taken = rate.take(`${from.project_id ?? from.caller_id} ${id}`)
    if (taken.ok) return
    throw new Fault('exhausted', `too many calls to MCP server "${name}"`, {
      hint: `try again in ${Math.ceil(taken.retry_after_seconds * 1000)} ms`,
      retry_after_seconds: taken.retry_after_seconds,
    })
  }

  /** The receipt of an approval to use when the call is sent; undefined if none was needed. */
  async function permission(
    from: From,
    { upstream, tool }: Offer,
    args: Record<string, unknown>,
    call_id: string,
    how: How,
  ): Promise<string | undefined> {
    const definition = tool.definition as UpstreamTool
    const overrides = overridesOf(upstream, tool.name)
    const answer = await deps.decide({ tool: definition, upstream, from, overrides })
    if (answer.verdict === 'deny')
      throw new Fault('forbidden', `${tool.visible_name} is denied: ${answer.because}`, {
        hint: 'use another tool; an admin can change the policy of the server',
      })
    // A caller that belongs to no session decides for itself.
    if (answer.verdict === 'allow' || from.session_id === null) return undefined
    const decision = await approvals.ask(
      {
        kind: 'tool',
        session_id: from.session_id,
        project_id: from.project_id,
        server: upstream.name,
        server_id: upstream.id,
        tool: tool.name,
        arguments: args,
        call_id,
        allowed_at: answer.allowed_at,
        set_by_admin: answer.set_by_admin,
        because: answer.because,
      },
      { signal: how.signal, cancelled: how.cancelled },
    )
    if (decision.decision === 'deny') throw refusal(tool.visible_name, decision)
    return decision.by === 'decision' ? decision.approval_id : undefined
  }

  /** An elicitation of the upstream, as a question in the inbox. Other requests are declined. */
  async function answerInput(
    from: From,
    upstream: UpstreamRow,
    tool: string,
    joined: { call_id: string } | { key: string },
    request: InputRequest,
    how: How,
  ): Promise<InputResponse> {
    if (!request.method.startsWith('elicitation/')) return { action: 'decline' }
    const decision = await approvals.ask(
      {
        kind: 'elicitation',
        session_id: from.session_id,
        project_id: from.project_id,
        server: upstream.name,
        server_id: upstream.id,
        tool,
        request: request.params,
        ...joined,
      },
      { signal: how.signal, cancelled: how.cancelled },
    )
    if (decision.decision === 'allow')
      return { action: 'accept', ...(decision.content ? { content: decision.content } : {}) }
    return { action: decision.status === 'denied' ? 'decline' : 'cancel' }
  }

  /** The transport bounds messages roughly; what a model gets is bounded exactly, and told when it was too much. */
  function withinSize({ name, settings }: UpstreamRow, tool: string, result: ToolResult): ToolResult {
    const most = settings.max_result_bytes ?? deps.max_result_bytes
    const bytes = Buffer.byteLength(JSON.stringify(result))
    if (bytes <= most) return result
    const text = `The call of ${tool} on MCP server "${name}" was made, but its result has ${bytes} bytes, and the limit is ${most} bytes. Ask for less.`
    return { content: [{ type: 'text', text }], isError: true }
  }

  type Parked = { requests: Record<string, InputRequest>; request_state?: unknown; round: number }

  async function send(
    from: From,
    offer: Offer,
    args: Record<string, unknown>,
    row: Omit<UpstreamCallRow, 'boot'>,
    approval_id: string | undefined,
    how: How,
  ): Promise<ToolResult> {
    const { upstream, tool } = offer
    const { id, call_id } = row
    const upstreams = await connections.use(upstream)
    let parked = row.status === 'input_required' ? (row.input as Parked | null) : null
    let isSent = false
    const write = (change: Partial<UpstreamCallRow>, permit?: (trx: Db) => Promise<void>) =>
      calls.begin(
        {
          ...row,
          ...change,
          arguments: JSON.stringify(args),
          input: change.input ? JSON.stringify(change.input) : null,
          result: null,
          error: null,
        },
        permit,
      )

    async function answersTo({ requests, round }: Parked): Promise<Record<string, InputResponse>> {
      const answered = Object.entries(requests).map(async ([key, request]) => {
        const which = `${call_id ?? id} ${round} ${key}`
        const joined = from.session_id === null ? { key: which } : { call_id: which }
        return [key, await answerInput(from, upstream, tool.name, joined, request, how)] as const
      })
      return Object.fromEntries(await Promise.all(answered))
    }

    const useReceipt = async (trx: Db) => {
      const binding = {
        session_id: from.session_id!,
        server_id: upstream.id,
        tool: tool.name,
        arguments: args,
        call_id: call_id ?? id,
      }
      if (approval_id && !(await approvals.use(trx, approval_id, binding)))
        throw new Fault('conflict', `the approval ${approval_id} was used already`)
    }

    try {
      for (let round = parked ? parked.round : 0; ; round++) {
        if (round > mostRounds)
          throw new Fault('unavailable', `MCP server "${upstream.name}" asked for input ${round} times`)
        const input = parked && {
          responses: await answersTo(parked),
          ...(parked.request_state === undefined ? {} : { request_state: parked.request_state }),
        }
        const needsReceipt = approval_id !== undefined && round === 0
        isSent = false
        const outcome: CallOutcome = await upstreams.call(
          upstream.id,
          {
            tool: tool.name,
            arguments: args,
            ...(upstream.settings.tool_timeouts?.[tool.name] === undefined
              ? {}
              : { timeout_seconds: upstream.settings.tool_timeouts[tool.name]! }),
            ...(input ? { input } : {}),
          },
          {
            signal: how.signal,
            progress: how.progress,
            fair_key: from.session_id ?? from.caller_id,
            onInput: (request) =>
              answerInput(from, upstream, tool.name, { key: `${id} ${request.id}` }, request, how),
            onSent: async () => {
              const sent_at = new Date().toISOString()
              row.sent_at = sent_at
              await Promise.all([
                how.intent,
                write({ status: 'sent', sent_at, input: null }, needsReceipt ? useReceipt : undefined),
              ])
              isSent = true
            },
          },
        )
        if (outcome.kind === 'result') {
          const result = withinSize(upstream, tool.name, outcome.result)
          calls.end({ id, status: 'done', result: call_id === null ? null : result, error: null })
          return result
        }
        const { requests, request_state } = outcome
        parked = { requests, round: round + 1, ...(request_state === undefined ? {} : { request_state }) }
        isSent = false
        await write({ status: 'input_required', input: parked as unknown as Record<string, unknown> })
      }
    } catch (error) {
      return failed(row, upstream, error, isSent, how)
    }
  }

  /** What was sent and may not be sent again has an unknown outcome, unless the upstream itself refused it. */
  function failed(
    row: Omit<UpstreamCallRow, 'boot'>,
    upstream: UpstreamRow,
    error: unknown,
    isSent: boolean,
    how: How,
  ): ToolResult {
    const isCut = error === how.signal.reason && how.signal.aborted
    const isUnclear = isCut || !(error instanceof UpstreamFault) || error.outcome === 'unknown'
    if (!isSent) {
      // Nothing has left: a parked call waits for its answers, any other may simply be made again.
      if (row.sent_at !== null && !isCut)
        calls.end({ id: row.id, status: 'failed', result: null, error: storedError(error) })
      throw error
    }
    const reason = isCut ? 'the call was cancelled' : messageOf(error)
    if (!isUnclear || row.repeatable) {
      calls.end({
        id: row.id,
        status: isUnclear ? 'outcome_unknown' : 'failed',
        result: null,
        error: storedError(error),
      })
      throw error
    }
    calls.end({ id: row.id, status: 'outcome_unknown', result: null, error: { reason } })
    return unknownOutcome({ ...row, server: upstream.name }, reason)
  }

  /** What became of the same call before; undefined if it is to be made (again). */
  function known(row: UpstreamCallRow, upstream: UpstreamRow): ToolResult | undefined {
    if (row.status === 'done')
      return (
        row.result ?? {
          content: [{ type: 'text', text: 'The call was made; its result is no longer stored.' }],
          isError: true,
        }
      )
    if (row.status === 'failed') throw restoredFault(row.error)
    if (row.status === 'cancelled') throw new Fault('conflict', 'the call was cancelled')
    if (row.status === 'sent' && calls.isOurs(row))
      throw new Fault('conflict', 'the same call is still running')
    if (row.status === 'input_required' || row.repeatable) return undefined
    const reason = String(
      (row.error as { reason?: unknown } | null)?.reason ?? 'the server stopped before the answer arrived',
    )
    return unknownOutcome({ ...row, server: upstream.name }, reason)
  }

  return {
    async call(from: From, offer: Offer, args: Record<string, unknown>, how: How): Promise<ToolResult> {
      const { upstream, tool } = offer
      const definition = tool.definition as UpstreamTool
      const arguments_hash = hashOf(args)
      const before =
        from.session_id !== null && from.call_id !== undefined
          ? await calls.find(from.session_id, from.call_id)
          : undefined
      if (before) {
        const isSame =
          before.upstream_id === upstream.id &&
          before.tool === tool.name &&
          before.arguments_hash === arguments_hash
        if (!isSame) throw new Fault('conflict', 'this call_id was used for another call')
        const result = known(before, upstream)
        if (result) return result
      }
      await checkArguments(from, offer, args)
      takeRate(from, upstream)
      const seconds = isCacheable(definition) ? (upstream.settings.cache_seconds ?? 0) : 0
      const cacheKey = `${upstream.id} ${from.project_id} ${tool.pin} ${arguments_hash}`
      const cached = seconds > 0 ? cache.get(cacheKey) : undefined
      if (cached) return cached.result
      const row: Omit<UpstreamCallRow, 'boot'> = before ?? {
        id: newUpstreamCallId(),
        upstream_id: upstream.id,
        project_id: from.project_id,
        session_id: from.session_id,
        call_id: from.session_id === null ? null : (from.call_id ?? null),
        caller_id: from.caller_id,
        tool: tool.name,
        arguments: args,
        arguments_hash,
        repeatable: isRepeatable(definition),
        status: 'sent',
        input: null,
        result: null,
        error: null,
        created_at: new Date().toISOString(),
        sent_at: null,
        ended_at: null,
      }
      // A call that was sent before had its permission then.
      const approval_id = before
        ? undefined
        : await permission(from, offer, args, from.call_id ?? row.id, how)
      const result = await send(from, offer, args, { ...row }, approval_id, how)
      if (seconds > 0 && result.isError !== true)
        cache.set(cacheKey, { result, bytes: JSON.stringify(result).length }, { ttl: seconds * 1000 })
      return result
    },
    forget: (upstream_id: string): void => {
      for (const key of cache.keys()) if (key.startsWith(`${upstream_id} `)) cache.delete(key)
    },
  }
}
