import { Fault } from '../../fault.ts'

/** Only what has a value. */
export const given = (fields: Record<string, string | undefined>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(fields).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )

/** A wish that an agent would not hear must not look as if it were granted. */
export function refuseToolLists(
  agent: string,
  wish: { tools_allowed: string[]; tools_disallowed: string[] },
): void {
  if (wish.tools_allowed.length + wish.tools_disallowed.length > 0)
    throw new Fault(
      'invalid',
      `${agent} cannot be told which tools to use: leave tools_allowed and tools_disallowed out`,
    )
}
