// CONTRACT's matrix as the tests understand it, written down a second time on purpose: what a declaration says it needs is
// not looked at, so that a wrong `needs` is found.
import type { Kind } from '../../../internal/fault.ts'

/** `own` and `other` are tokens of the project that the call is about, and of another one. */
export const everybody = [
  'none',
  'admin',
  'admin:ro',
  'own',
  'own:ro',
  'other',
  'other:ro',
  'expired',
  'revoked',
] as const
export type Who = (typeof everybody)[number]

type Holder = 'admin' | 'admin:ro' | 'own' | 'own:ro'
const cells = (yes: Holder[]) => new Set<Holder>(yes)

const allowed = {
  admin: cells(['admin']),
  'admin read': cells(['admin', 'admin:ro']),
  'global write': cells(['admin']),
  'global read': cells(['admin', 'admin:ro', 'own', 'own:ro']),
  'project write': cells(['admin', 'own']),
  'project read': cells(['admin', 'admin:ro', 'own', 'own:ro']),
  // A field of project.update that bounds the project: who may write to it may not loosen it.
  'project boundary': cells(['admin']),
  // No caller of this interface; it is listed to those who may write.
  'project never': cells([]),
} as const
export type Class = keyof typeof allowed

const holderOf: Partial<Record<Who, Holder>> = {
  admin: 'admin',
  'admin:ro': 'admin:ro',
  own: 'own',
  'own:ro': 'own:ro',
  other: 'own',
  'other:ro': 'own:ro',
}

/** Whether this caller may use such an action in any project: what it is shown. */
export function listed(of: Class, who: Who): boolean {
  const holder = holderOf[who]
  return holder !== undefined && allowed[of].has(holder)
}

export function expected(of: Class, who: Who): 'ok' | Kind {
  if (holderOf[who] === undefined) return 'unauthenticated'
  const foreign = who === 'other' || who === 'other:ro'
  const isRefined = of === 'project boundary' || of === 'project never'
  if (isRefined && foreign) return expected('project write', who)
  if (!listed(of, who)) return 'forbidden'
  return foreign && of.startsWith('project') ? 'not_found' : 'ok'
}
