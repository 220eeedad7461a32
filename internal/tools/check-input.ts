// Checks of input that apply to every tool, and the message about invalid input.
import type { z } from 'zod'
import { Fault } from '../fault.ts'

const deepest = 64

/** Refuses text that cannot be stored in a database row or a file name, and nesting that is too deep. */
export function checkText(root: unknown): void {
  const path: string[] = []
  const wrong = (what: string) => {
    const where = path.join('.')
    return new Fault(
      'invalid',
      `${where.length > 200 ? `${where.slice(0, 200)}…` : where || 'the text'} ${what}`,
    )
  }
  const check = (value: unknown): void => {
    if (typeof value === 'string') {
      if (value.includes('\0')) throw wrong('contains a NUL character')
      if (!value.isWellFormed()) throw wrong('contains half of a surrogate pair')
    } else if (typeof value === 'object' && value !== null) descend(value)
  }
  // Called only for objects and arrays, so that the depth bounds the recursion and a flat list costs one call.
  const descend = (value: object): void => {
    if (path.length === deepest)
      throw new Fault('invalid', `the arguments are nested more than ${deepest} levels deep`)
    const at = path.length
    path.push('')
    if (Array.isArray(value))
      for (let index = 0; index < value.length; index++) {
        const inner: unknown = value[index]
        if (typeof inner !== 'string' && (typeof inner !== 'object' || inner === null)) continue
        path[at] = String(index)
        check(inner)
      }
    else
      for (const key of Object.keys(value)) {
        if (key.includes('\0') || !key.isWellFormed())
          throw new Fault('invalid', 'a field name contains a character that cannot be stored')
        path[at] = key
        check((value as Record<string, unknown>)[key])
      }
    path.pop()
  }
  check(root)
}

const clip = (text: string) => (text.length > 80 ? `${text.slice(0, 80)}…` : text)

export function describeProblems(what: string, input: z.ZodObject, error: z.ZodError): Fault {
  const sentences = error.issues.slice(0, 5).map((issue) => {
    const where = clip(issue.path.join('.'))
    if (issue.code === 'unrecognized_keys')
      return `unknown field ${issue.keys
        .slice(0, 5)
        .map((key) => `"${clip([...issue.path, key].join('.'))}"`)
        .join(', ')}`
    return where ? `${where}: ${issue.message}` : issue.message
  })
  const fields = Object.keys(input.shape)
  return new Fault('invalid', `${what}: ${sentences.join('; ')}`, {
    hint: fields.length > 0 ? `fields are ${fields.join(', ')}` : 'it accepts no fields',
  })
}
