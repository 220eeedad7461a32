import { expect, test } from 'vitest'
import { configSchema } from '../../config/schema.ts'
import type { MemoryHolder } from '../../store/rows/session/memory.ts'
import { expectedMb, heldMb } from './expected.ts'

const config = configSchema.parse({
  droids: {
    mine: { kind: 'acp', command: 'mine' },
    sized: { kind: 'acp', command: 'sized', memory_mb: 77 },
    known: { kind: 'acp', command: 'known', agent: 'opencode' },
    script: { kind: 'shell' },
  },
})
const session = (droid: string, status: MemoryHolder['status']): MemoryHolder => ({
  id: 'gogol_1',
  project_id: 'p',
  droid,
  status,
  idle_since: null,
  hibernating: false,
})

test('a droid is expected to take what the config says, else what its agent takes', () => {
  const expected = ['mine', 'sized', 'known', 'script', 'shell', 'gone'].map((name) =>
    expectedMb(config, name),
  )
  expect(expected).toEqual([256, 77, 480, 8, 8, 256])
})

test('a shell holds memory during its turns only, an agent always', () => {
  expect(heldMb(config, session('shell', 'running'))).toBe(8)
  expect(heldMb(config, session('shell', 'idle'))).toBe(0)
  expect(heldMb(config, session('sized', 'idle'))).toBe(77)
})

test('what was measured counts if it is more', () => {
  expect(heldMb(config, session('sized', 'running'), 50)).toBe(77)
  expect(heldMb(config, session('sized', 'running'), 500)).toBe(500)
  expect(heldMb(config, session('shell', 'idle'), 30)).toBe(30)
})
