// What went wrong, in words.
import { messageOf } from '../fault.ts'

const longest = 2_000
export const clip = (text: string, most = longest): string =>
  text.length > most ? `${text.slice(0, most)}…` : text

/** Undici reports the reason in `cause`; the outer message is only "fetch failed". */
export function reasonOf(thrown: unknown): string {
  const causes = [thrown]
  for (let at = thrown; at instanceof Error && at.cause !== undefined && causes.length < 4; at = at.cause)
    causes.push(at.cause)
  const texts = causes.map((one) => messageOf(one).trim()).filter((text) => text && text !== 'fetch failed')
  const distinct = texts.filter((text, at) => !texts.slice(0, at).some((before) => before.includes(text)))
  return clip(distinct.join(': ') || 'no reason was given', 500)
}
