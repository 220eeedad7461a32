// Checks of input that hold for every tool, and the sentence that says what is wrong with it.
import type { z } from 'zod'
import { Fault } from '../fault.ts'

const deepest = 64

/** Text that no database row or file name can hold, and nesting that no caller means, end here. */
export function checkText(root: unknown): void {
  const open: { value: unknown; path: string; depth: number }[] = [{ value: root, path: '', depth: 0 }]
  for (let next = open.pop(); next; next = open.pop()) {
    const { value, path, depth } = next
    if (typeof value === 'string') {
      if (value.includes('\0')) throw new Fault('invalid', `${path || 'the text'} holds a NUL character`)
      if (!value.isWellFormed())
        throw new Fault('invalid', `${path || 'the text'} holds half of a surrogate pair`)
    } else if (typeof value === 'object' && value !== null) {
      if (depth === deepest) throw new Fault('invalid', `the arguments are nested more than ${deepest} deep`)
      for (const [key, inner] of Object.entries(value)) {
        if (key.includes('\0') || !key.isWellFormed())
          throw new Fault('invalid', 'a field name holds a character that cannot be stored')
        open.push({ value: inner, path: path ? `${path}.${key}` : key, depth: depth + 1 })
      }
    }
  }
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
    hint: fields.length > 0 ? `fields are ${fields.join(', ')}` : 'it takes no fields',
  })
}
