// Whether a tool call is allowed, asked or denied, as pure functions. The container bounds what a droid does inside it at every
// level of autonomy; a tool of an upstream acts outside of it, so destructive calls are asked at `high` too unless the
// config says otherwise. docs/approvals.md has the table.
import type { Autonomy } from '../../protocol/messages.ts'
import { type Risk, riskOf } from './risk.ts'

export type Verdict = 'allow' | 'ask' | 'deny'

/** What an admin or a project set. Left out fields match everything; the most specific override applies. */
export type Override = {
  /** `project` may only tighten what `admin` set. */
  set_by: 'admin' | 'project'
  project_id?: string
  server_id?: string
  tool?: string
  verdict: Verdict
}

export type PolicySettings = {
  /** At autonomy `high`: which calls are asked nevertheless. */
  ask_at_high: 'destructive' | 'dangerous' | 'none'
}

export type PolicyQuestion = {
  tool: { name: string; annotations?: Record<string, unknown> | undefined }
  server_id: string
  project_id: string | null
  /** Whether its annotations may lower a verdict: an admin added it, or the config trusts all. */
  trusted: boolean
  /** Of the session that calls; null for a call by a token that belongs to no session, which only `deny` stops. */
  autonomy: Autonomy | null
}

export type PolicyAnswer = {
  verdict: Verdict
  /** A sentence for people and models. */
  because: string
  /** The lowest autonomy at which the call would be allowed; null if at none. */
  allowed_at: Autonomy | null
  /** An override of an admin decided. */
  set_by_admin: boolean
}

const strictness: Record<Verdict, number> = { allow: 0, ask: 1, deny: 2 }
const stricter = (a: Verdict, b: Verdict): Verdict => (strictness[a] >= strictness[b] ? a : b)

/** From the least autonomy to the most. */
export const autonomies = ['off', 'low', 'medium', 'high'] as const satisfies readonly Autonomy[]
export const atLeast = (level: Autonomy, least: Autonomy): boolean =>
  autonomies.indexOf(level) >= autonomies.indexOf(least)

function matches(one: Override, { tool, server_id, project_id }: PolicyQuestion): boolean {
  return (
    (one.project_id === undefined || one.project_id === project_id) &&
    (one.server_id === undefined || one.server_id === server_id) &&
    (one.tool === undefined || one.tool === tool.name)
  )
}

/** A tool is more specific than a server, and a server more than a project. */
const specificity = ({ tool, server_id, project_id }: Override): number =>
  (tool === undefined ? 0 : 4) + (server_id === undefined ? 0 : 2) + (project_id === undefined ? 0 : 1)

/** The verdict of the most specific ones; the strictest of them if they are equally specific. */
function mostSpecific(overrides: readonly Override[]): Verdict | undefined {
  const most = Math.max(...overrides.map(specificity))
  return overrides
    .filter((one) => specificity(one) === most)
    .map(({ verdict }) => verdict)
    .reduce<Verdict | undefined>(
      (one, other) => (one === undefined ? other : stricter(one, other)),
      undefined,
    )
}

/** Without overrides. */
function isAsked(risk: Risk, autonomy: Autonomy, { ask_at_high }: PolicySettings): boolean {
  if (autonomy === 'off') return true
  if (risk === 'read') return false
  if (autonomy !== 'high') return true
  if (risk === 'write') return false
  return risk === 'unstated' ? ask_at_high === 'destructive' : ask_at_high !== 'none'
}

const descriptions: Record<Risk, string> = {
  read: 'the tool says that it only reads',
  write: 'the tool says that it changes things and destroys nothing',
  unstated: 'the tool does not say whether it is destructive',
  dangerous: 'the tool is destructive, by its annotations or by its name',
}

export function decide(
  question: PolicyQuestion,
  overrides: readonly Override[],
  settings: PolicySettings,
): PolicyAnswer {
  const { autonomy, trusted, tool } = question
  const matching = overrides.filter((one) => matches(one, question))
  const byAdmin = mostSpecific(matching.filter(({ set_by }) => set_by === 'admin'))
  const byProject = mostSpecific(matching.filter(({ set_by }) => set_by === 'project'))
  const set = byAdmin && byProject ? stricter(byAdmin, byProject) : (byAdmin ?? byProject)
  const risk = riskOf(tool, trusted)
  const risen = (verdict: Verdict): Verdict => (autonomy === null && verdict === 'ask' ? 'allow' : verdict)
  if (set !== undefined) {
    const set_by_admin = set === byAdmin
    return {
      verdict: risen(set),
      because: `${set_by_admin ? 'an admin' : 'the project'} set this tool to "${set}"`,
      allowed_at: set === 'allow' ? 'off' : null,
      set_by_admin,
    }
  }
  const allowed_at = autonomies.find((level) => !isAsked(risk, level, settings)) ?? null
  const asked = autonomy !== null && isAsked(risk, autonomy, settings)
  return {
    verdict: asked ? 'ask' : 'allow',
    because: autonomy === null ? descriptions[risk] : `${descriptions[risk]}; autonomy is ${autonomy}`,
    allowed_at,
    set_by_admin: false,
  }
}
