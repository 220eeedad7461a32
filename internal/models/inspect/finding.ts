// What the rules of all providers share: what the project allows, and what was found in the request. Known tools of the
// provider that are not allowed are removed from `tools`, since agents offer them by default; everything else that is not
// allowed is refused.
import type { HostedTool } from '../../config/models.ts'
import { Fault } from '../../fault.ts'
import { isGiven, type Json } from './json.ts'

export type Finding = {
  allowed: ReadonlySet<HostedTool>
  images: number
  files: number
  /** Of images and files inside the body: they are not text. */
  media_bytes: number
  hosted: number
  removed: string[]
}

export const createFinding = (allowed: readonly HostedTool[]): Finding => ({
  allowed: new Set(allowed),
  images: 0,
  files: 0,
  media_bytes: 0,
  hosted: 0,
  removed: [],
})

export function refused(what: string, kind?: HostedTool): Fault {
  return new Fault('forbidden', `${what} is not allowed`, {
    hint: kind
      ? `an administrator allows it with "${kind}" in hosted_tools of the config, for projects with network open`
      : 'the model proxy cannot determine what it costs or accesses',
  })
}

export function requireAllowed(finding: Finding, kind: HostedTool, what: string): void {
  if (!finding.allowed.has(kind)) throw refused(what, kind)
  finding.hosted += 1
}

/** Their names are looked through and logged. */
const maxRemoved = 100

/** `never`: of the provider, and not one that can be allowed. */
export type ToolKind = 'client' | HostedTool | 'never' | undefined

/** Whether the tool stays; one that is not known is refused. */
export function keepTool(finding: Finding, kind: ToolKind, name: string): boolean {
  if (kind === 'client') return true
  if (kind === undefined) throw refused(`tool type "${name.slice(0, 100)}"`)
  if (kind !== 'never' && finding.allowed.has(kind)) {
    finding.hosted += 1
    return true
  }
  if (finding.removed.length < maxRemoved && !finding.removed.includes(name)) finding.removed.push(name)
  return false
}

/** A file or image, inside the request or somewhere else. */
export function countMedia(finding: Finding, kind: 'images' | 'files', data: unknown): void {
  finding[kind] += 1
  if (typeof data === 'string') finding.media_bytes += data.length
}

/** Data inside the request, or an address that the provider would fetch. */
export function countAddress(
  finding: Finding,
  kind: 'images' | 'files',
  address: unknown,
  what: string,
): void {
  if (typeof address !== 'string') return
  // Anything but inline data may be an address, whatever its scheme looks like.
  const inline = /^data:/i.test(address)
  if (!inline) requireAllowed(finding, 'urls', what)
  countMedia(finding, kind, inline ? address : undefined)
}

const ordinaryTiers = ['auto', 'default', 'standard', 'standard_only', 'flex', 'on_demand']

/** Tiers that cost more than the configured price are refused. */
export function checkTier(holder: Json, ...names: string[]): void {
  for (const name of names) {
    const tier = holder[name]
    if (tier === undefined || tier === null) continue
    if (typeof tier !== 'string' || !ordinaryTiers.includes(tier.toLowerCase()))
      throw refused(`${name} ${JSON.stringify(tier).slice(0, 100)}`)
  }
}

export function refuseFields(holder: Json, ...names: string[]): void {
  for (const name of names) if (isGiven(holder[name])) throw refused(name)
}
