// Bounds of a session: droid, autonomy and lists of tools. A session must not exceed its own bounds by spawning or messaging a
// session with wider ones, so a child has at most the bounds of its parent.
import { Fault } from '../../../fault.ts'
import type { SessionRow } from '../../../store/rows/session/sessions.ts'

export type Bounds = Pick<SessionRow, 'droid' | 'autonomy_level' | 'tools_allowed' | 'tools_disallowed'>
type Wanted = {
  autonomy_level?: Bounds['autonomy_level']
  tools_allowed?: string[]
  tools_disallowed?: string[]
}

const levels = ['off', 'low', 'medium', 'high'] as const
const levelOf = ({ autonomy_level }: Bounds) => levels.indexOf(autonomy_level)

/** How the inner bounds exceed the outer ones; undefined if they do not. */
export function excess(outer: Bounds, inner: Bounds): string | undefined {
  if (levelOf(inner) > levelOf(outer))
    return `autonomy_level ${inner.autonomy_level} is higher than ${outer.autonomy_level}`
  // A script requests no approvals and has no lists of tools.
  if (inner.droid === 'shell' && outer.droid !== 'shell' && outer.autonomy_level !== 'high')
    return `droid shell acts without approvals, and autonomy_level is ${outer.autonomy_level}`
  const isListed = outer.tools_allowed.length > 0 || outer.tools_disallowed.length > 0
  if (isListed && inner.droid !== outer.droid)
    return `droid ${inner.droid} has other tools than droid ${outer.droid}, whose tools are restricted`
  const extra = inner.tools_allowed.filter((name) => !outer.tools_allowed.includes(name))
  if (outer.tools_allowed.length > 0 && inner.tools_allowed.length === 0)
    return 'tools_allowed is empty, which allows all'
  if (outer.tools_allowed.length > 0 && extra.length > 0) return `tools_allowed has ${extra.join(', ')}`
  const missing = outer.tools_disallowed.filter((name) => !inner.tools_disallowed.includes(name))
  return missing.length > 0 ? `tools_disallowed lacks ${missing.join(', ')}` : undefined
}

/** The bounds of a child: what it requests within the bounds of its parent, otherwise those of its parent. */
export function boundsOfChild(parent: Bounds & { id: string }, droid: string, wanted: Wanted): Bounds {
  const child: Bounds = {
    droid,
    autonomy_level: wanted.autonomy_level ?? parent.autonomy_level,
    tools_allowed: wanted.tools_allowed ?? parent.tools_allowed,
    tools_disallowed: [...new Set([...parent.tools_disallowed, ...(wanted.tools_disallowed ?? [])])],
  }
  const more = excess(parent, child)
  if (more)
    throw new Fault('forbidden', `a child may not exceed the bounds of its parent ${parent.id}: ${more}`, {
      hint: 'omit the field to inherit the value of the parent',
    })
  return child
}
