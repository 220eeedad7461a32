// The canonical form of a JSON value: object keys sorted by UTF-16 code units, no white space, numbers and strings as
// JSON.stringify writes them (RFC 8785). Two values that JSON considers equal have the same text and the same hash.
import { createHash } from 'node:crypto'

/** Of a value that `JSON.parse` could have returned. Members that are undefined are left out, as in JSON. */
export function canonicalJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  const members = value as Record<string, unknown>
  const parts = Object.keys(members)
    .sort()
    .filter((key) => members[key] !== undefined)
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(members[key])}`)
  return `{${parts.join(',')}}`
}

export const hashOf = (value: unknown): string =>
  createHash('sha256').update(canonicalJson(value)).digest('hex')
