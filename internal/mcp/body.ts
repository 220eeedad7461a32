// What a client posted, as JSON. Depth and number of values are bounded before it is parsed: everything behind may then
// walk a value by recursion, and the cost of doing so is known.
import { jsonProblem } from '../event-loop/json-bounds.ts'

const decoder = new TextDecoder('utf-8', { fatal: true })

export type Parsed = { ok: true; value: unknown } | { ok: false; problem: string }

export function isJson(content_type: string | null): boolean {
  return content_type?.split(';', 1)[0]?.trim().toLowerCase() === 'application/json'
}

export function parseBody(bytes: Uint8Array | undefined): Parsed {
  if (!bytes?.length) return { ok: false, problem: 'the body is empty' }
  try {
    const text = decoder.decode(bytes)
    const problem = jsonProblem(text)
    if (problem) return { ok: false, problem: `the body ${problem}` }
    return { ok: true, value: JSON.parse(text) }
  } catch {
    return { ok: false, problem: 'the body is not JSON in UTF-8' }
  }
}
