import { expect, test } from 'vitest'
import { candidates } from './completion.ts'
import { readManifest } from './tool-command/manifest.ts'

const names = () => ({
  projects: async () => ['site'],
  sessions: async () => ['gogol_1'],
  workspaces: async (project: string) => [`of ${project}`],
})
const after = (...words: string[]) =>
  candidates(words, { manifest: readManifest(), commands: ['up', 'ps', 'logs', 'run', 'completion'], names })

test('commands, tools, actions and options come from the manifest', async () => {
  expect(await after('')).toEqual(expect.arrayContaining(['up', 'ps', 'project', 'image-rebuild']))
  expect(await after('project', 'l')).toContain('list')
  expect(await after('project', 'list', '--')).toEqual(expect.arrayContaining(['--limit', '--output']))
  expect(await after('project', 'list', '-o', '')).toContain('yaml')
  expect(await after('completion', '')).toEqual(['bash', 'zsh', 'fish'])
  expect(await after('nothing', '')).toEqual([])
})

test('projects, sessions and choices complete arguments and options', async () => {
  expect(await after('project', 'get', '')).toEqual(['site'])
  expect(await after('session', 'list', '--project-id', '')).toEqual(['site'])
  expect(await after('session', 'list', '--status', '')).toContain('running')
  expect(await after('session', 'message', '')).toEqual(['gogol_1'])
  expect(await after('session', 'message', '--wait-seconds', '5', 'gogol_1', '')).toEqual([])
  expect(await after('logs', '')).toEqual(['gogol_1'])
  expect(await after('run', '--project', '')).toEqual(['site'])
  expect(await after('workspace', 'delete', 'site', '')).toEqual(['of site'])
  expect(await after('session', 'spawn', 'site', '--workspace-id', '')).toEqual(['of site'])
  expect(await after('workspace', 'read-file', '--project-id', 'x', '--workspace-id', '')).toEqual(['of x'])
  expect(await after('up', '--')).toEqual(['--help', '--detach', '--user'])
})
