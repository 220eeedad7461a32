import { expect, test } from 'vitest'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { parseArguments } from './arguments.ts'
import { exampleOf, toolCommand } from './command.ts'
import { fieldsOf } from './fields.ts'

const actions = Object.values(tools).flatMap((tool) =>
  Object.entries(tool.actions).map(([name, action]) => ({ called: `${tool.name} ${name}`, action })),
)

const wordsOf = (line: string) =>
  [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')

test.each(actions)('the example of "$called" has all required fields', ({ called, action }) => {
  const prefix = `./oubliette ${called}`
  const example = exampleOf(called, action)
  expect(example.startsWith(prefix)).toBe(true)
  const fields = fieldsOf(action.input)
  const { args } = parseArguments(wordsOf(example.slice(prefix.length)), fields)
  for (const field of fields.values()) if (field.required) expect(args).toHaveProperty(field.name)
})

test('the help of a tool without actions lists its fields', () => {
  const flags = toolCommand(tools.config_limits!).options?.map(([flag]) => flag)
  expect(flags).toContain('--project-id string')
})
