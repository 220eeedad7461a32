import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { manifestOf, manifestText } from '../dev/manifest.ts'
import { parseArguments } from './arguments.ts'
import { toolCommand } from './command.ts'
import { calledAs, manifestFile, readManifest } from './manifest.ts'

const manifest = readManifest()
const actions = Object.values(manifest).flatMap((tool) =>
  Object.entries(tool.actions).map(([name, action]) => ({ called: calledAs(tool, name), action })),
)

const wordsOf = (line: string) =>
  [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')

test('the manifest matches the declarations', () => {
  expect(readFileSync(manifestFile, 'utf8'), 'run ./oubliette docs').toBe(manifestText(tools))
  expect(manifest).toEqual(manifestOf(tools))
})

test.each(actions)('the example of "$called" has all required fields', ({ called, action }) => {
  const prefix = `./oubliette ${called}`
  expect(action.example.startsWith(prefix)).toBe(true)
  const { args } = parseArguments(wordsOf(action.example.slice(prefix.length)), action)
  for (const field of action.fields) if (field.required) expect(args).toHaveProperty(field.name)
})

test('the help of a tool without actions lists its fields', () => {
  const flags = toolCommand(manifest.config_limits!).options?.map(([flag]) => flag)
  expect(flags).toContain('--project-id string')
})
