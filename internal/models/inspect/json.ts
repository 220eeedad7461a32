// Request bodies as values, with bounds on what they may make us do: depth and number of values are counted in the bytes
// first, because the time and memory that parsing takes depend on them more than on the length.
import { Fault, messageOf } from '../../fault.ts'

export type Json = Record<string, unknown>

const maxDepth = 256
const maxValues = 2_000_000
/** Of tokens or answers; what they cost stays a number that can be added. */
const maxNumber = 1_000_000_000

const quote = 0x22
const backslash = 0x5c

/** The end of the string that begins before `from`: the place after its closing quote. */
function afterString(bytes: Buffer, from: number): number {
  for (let end = bytes.indexOf(quote, from); end !== -1; end = bytes.indexOf(quote, end + 1)) {
    let escapes = 0
    while (bytes[end - 1 - escapes] === backslash && end - 1 - escapes >= from) escapes += 1
    if (escapes % 2 === 0) return end + 1
  }
  return bytes.length
}

function checkBounds(bytes: Buffer): void {
  let depth = 0
  let values = 0
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (byte === quote) at = afterString(bytes, at + 1) - 1
    else if (byte === 0x5b || byte === 0x7b) {
      depth += 1
      values += 1
    } else if (byte === 0x5d || byte === 0x7d) depth -= 1
    else if (byte === 0x2c) values += 1
    if (depth > maxDepth)
      throw new Fault('invalid', `the request is nested more than ${maxDepth} levels deep`)
    if (values > maxValues) throw new Fault('invalid', `the request has more than ${maxValues} values`)
  }
}

/** Throws `invalid` unless it is one JSON object. */
export function parseObject(bytes: Buffer): Json {
  checkBounds(bytes)
  let value: unknown
  try {
    value = JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw new Fault('invalid', `the request is not JSON: ${messageOf(error).slice(0, 200)}`, { cause: error })
  }
  if (!isObject(value)) throw new Fault('invalid', 'the request is not a JSON object')
  return value
}

export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

/** Those of a list; one alone counts as a list of one, because some servers take it for that. */
export const objectsOf = (value: unknown): Json[] =>
  isObject(value) ? [value] : listOf(value).filter(isObject)

/** A positive number; undefined if it is not set. A string is refused: some servers would read a number in it. */
export function numberIn(holder: Json, name: string): number | undefined {
  const value = holder[name]
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'number' || !(value >= 0 && value <= maxNumber))
    throw new Fault('invalid', `${name} must be a number from 0 to ${maxNumber}`)
  return Math.ceil(value)
}

/** Whether something was asked for, in whatever shape. */
export const isGiven = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== false && !(Array.isArray(value) && value.length === 0)

/** True or false; anything else that some servers would take for one of them is refused. */
export function flagIn(holder: Json, name: string): boolean {
  const value = holder[name]
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw new Fault('invalid', `${name} must be true or false`)
  return value
}
