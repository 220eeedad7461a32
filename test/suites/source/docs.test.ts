// The generated documents are those of the declarations as they are now.
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { renderDocs } from '../../../internal/tools/docs.ts'

const checkout = resolve(import.meta.dirname, '../../..')

it.each(Object.entries(renderDocs(tools)))('%s is up to date', (path, text) => {
  expect(readFileSync(join(checkout, path), 'utf8'), 'run ./oubliette docs').toBe(text)
})

it('every field of every input and every key of the config is described', () => {
  const inputs = Object.values(tools).flatMap((tool) =>
    Object.entries(tool.actions).flatMap(([name, action]) => {
      const { properties = {} } = z.toJSONSchema(action.input, { io: 'input', unrepresentable: 'any' })
      return Object.entries(properties).flatMap(([field, schema]) =>
        typeof schema === 'object' && schema.description ? [] : [`${tool.name}.${name}: ${field}`],
      )
    }),
  )
  const keys = renderDocs(tools)
    ['docs/configuration.md']!.split('\n')
    .filter((line) => line.endsWith('|  |'))
  expect([...inputs, ...keys]).toEqual([])
})
