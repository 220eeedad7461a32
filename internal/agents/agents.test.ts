import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { AgentRequest } from './agent.ts'
import { agentNames, setUpAgent } from './agents.ts'

const request: AgentRequest = {
  provider: { name: 'anthropic', url: 'http://127.0.0.1:1/anthropic', key: 'oubs_key' },
  model: 'm',
  reasoning_level: 'high',
  tools_allowed: ['Read', 'mcp__oubliette__x'],
  tools_disallowed: ['Bash'],
  autonomy: 'medium',
  directory: '/scratch',
  home: '/home/droid',
}
const provider = (name: string) => ({ ...request, provider: { ...request.provider!, name } })
const free = { tools_allowed: [], tools_disallowed: [] }
const config = (text: string | undefined) => JSON.parse(text ?? '') as Record<string, unknown>

test('claude', () => {
  const { env, meta, options } = setUpAgent('claude', request)
  expect(env).toEqual({
    ANTHROPIC_BASE_URL: request.provider!.url,
    ANTHROPIC_API_KEY: 'oubs_key',
    ANTHROPIC_MODEL: 'm',
  })
  expect(meta).toEqual({
    claudeCode: {
      options: { tools: ['Read'], allowedTools: request.tools_allowed, disallowedTools: ['Bash'] },
    },
  })
  expect(options).toEqual({ thought_level: 'high' })
  expect(setUpAgent('claude', provider('bedrock')).env).toMatchObject({
    CLAUDE_CODE_USE_BEDROCK: '1',
    AWS_BEARER_TOKEN_BEDROCK: 'oubs_key',
  })
})

test('codex', () => {
  const { env } = setUpAgent('codex', { ...provider('openai'), ...free })
  expect(env).toMatchObject({ INITIAL_AGENT_MODE: 'agent', MODEL_PROVIDER: 'oubliette' })
  expect(config(env?.CODEX_CONFIG)).toMatchObject({
    model: 'm',
    model_reasoning_effort: 'high',
    model_providers: { oubliette: { env_key: 'OUBLIETTE_API_KEY', wire_api: 'responses' } },
  })
  // The key itself is not in what may be logged as a config.
  expect(env?.CODEX_CONFIG).not.toContain('oubs_key')
})

test('gemini', () => {
  const { reasoning_level: _, ...without_level } = provider('gemini')
  const { env, args, files, authenticate } = setUpAgent('gemini', without_level)
  expect(env).toMatchObject({ GEMINI_MODEL: 'm', GEMINI_API_KEY: 'oubs_key' })
  expect(args).toEqual(['--policy', '/scratch/gemini-policy.toml'])
  expect(files?.['gemini-policy.toml']).toContain('toolName = "Bash"\ndecision = "deny"')
  expect(authenticate).toBe('gemini-api-key')
  expect(setUpAgent('gemini', { ...without_level, ...free }).args).toBeUndefined()
  expect(() => setUpAgent('gemini', request)).toThrow('does not support reasoning levels')
})

test('opencode', () => {
  const { env } = setUpAgent('opencode', request)
  expect(config(env?.OPENCODE_CONFIG_CONTENT)).toMatchObject({
    model: 'anthropic/m',
    permission: { bash: 'ask' },
    tools: { '*': false, Read: true, Bash: false },
    provider: { anthropic: { options: { baseURL: `${request.provider!.url}/v1` } } },
  })
  const { model: _, ...without } = provider('openai-compatible')
  expect(() => setUpAgent('opencode', without)).toThrow('needs the name of a model')
})

test('droid', () => {
  const { args, options, files } = setUpAgent('droid', { ...request, ...free })
  expect(args).toEqual(['--settings', '/scratch/droid-settings.json'])
  expect(options).toEqual({ model: 'custom:oubliette', thought_level: 'high' })
  expect(config(files?.['droid-settings.json'])).toMatchObject({
    customModels: [{ model: 'm', provider: 'anthropic' }],
  })
  const { model: _, ...without } = { ...request, ...free }
  expect(() => setUpAgent('droid', without)).toThrow('needs the name of a model')
})

test.each(['codex', 'droid'])('%s refuses settings that it would ignore', (name) => {
  expect(() => setUpAgent(name, request)).toThrow('does not support tool lists')
})

test('an agent of no known kind gets its model by ACP only', () => {
  expect(setUpAgent(undefined, request)).toEqual({ options: { model: 'm', thought_level: 'high' } })
})

test.each(['constructor', 'another'])('a name that is not in the list, as "%s", is refused', (name) => {
  expect(() => setUpAgent(name, request)).toThrow('does not know the agent')
})

test.each(agentNames)('%s has a container type of its own', (name) => {
  expect(existsSync(join(import.meta.dirname, '../../images', name, 'Dockerfile'))).toBe(true)
})
