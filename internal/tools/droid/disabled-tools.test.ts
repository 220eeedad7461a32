import { expect, test } from 'vitest'
import type { ListedTool } from '../tool.ts'
import { createDisabled } from './disabled-tools.ts'

const tool = (name: string, actions?: string[]): ListedTool => ({
  name,
  description: '',
  inputSchema: {
    type: 'object',
    properties: actions ? { action: { type: 'string', enum: actions }, other: {} } : {},
  },
  outputSchema: { type: 'object' },
  annotations: { readOnlyHint: true },
})
const listed = [tool('token', ['create', 'list']), tool('session', ['spawn', 'get']), tool('config_limits')]
const left = (names: string[]) =>
  createDisabled(names)
    .without(listed)
    .map(({ name, inputSchema }) => {
      const { action } = inputSchema.properties as { action?: { enum: string[] } }
      return [name, ...(action?.enum ?? [])].join(' ')
    })

test.each([
  [[], ['token create list', 'session spawn get', 'config_limits']],
  [['token'], ['session spawn get', 'config_limits']],
  [['oubliette_token', 'config_limits'], ['session spawn get']],
  [['session.spawn'], ['token create list', 'session get', 'config_limits']],
  [
    ['oubliette_session_spawn', 'session.get'],
    ['token create list', 'config_limits'],
  ],
  [
    ['app_greet', 'spawn'],
    ['token create list', 'session spawn get', 'config_limits'],
  ],
])('without %j there is %j', (names, wanted) => {
  expect(left(names)).toEqual(wanted)
})

test('what is not listed cannot be called', () => {
  const disabled = createDisabled(['session.spawn', 'token', 'app_greet'])
  expect([disabled.has('session', 'spawn'), disabled.has('session', 'get')]).toEqual([true, false])
  expect([disabled.has('token', 'list'), disabled.has('token')]).toEqual([true, true])
  expect([disabled.hasCallers('app_greet'), disabled.hasCallers('app_other')]).toEqual([true, false])
})
