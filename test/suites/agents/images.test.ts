// The images of real agents: which there are, and how a build reports its progress. Like `agents.test.ts`, for
// `./oubliette test --agents`, which builds them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { defaultDroids } from '../../../internal/config/default-droids.ts'
import { type Booted, boot } from '../../harness/booted.ts'

const enabled = process.env.OUBLIETTE_TEST_AGENTS === '1'
const minutes = (count: number) => count * 60_000
let booted: Booted

beforeAll(async () => {
  if (enabled) booted = await boot()
})
afterAll(() => booted?.stop())

type Type = { type: string; built: boolean; size_bytes: number | null }
const types = async (): Promise<Type[]> => (await booted.ok('project', { action: 'options' })).container_types

describe.runIf(enabled)('images', () => {
  test('each agent has its own, which options list as built, with their sizes', async () => {
    const listed = await types()
    for (const { image } of Object.values(defaultDroids)) {
      const found = listed.find(({ type }) => type === image)
      expect(found).toMatchObject({ built: true })
      expect(found?.size_bytes).toBeGreaterThan(100e6)
    }
    // Types that were not requested can be built, and are not.
    expect(listed.map(({ type }) => type)).toContain('dev')
  })

  test('a rebuild reports its progress', { timeout: minutes(8) }, async () => {
    const told: string[] = []
    let over = false
    const result = await booted.client().client.callTool(
      { name: 'image_rebuild', arguments: { container_type: 'gemini', no_cache: true } },
      {
        timeout: minutes(8),
        onprogress: ({ message }) => {
          if (!over) told.push(String(message))
        },
      },
    )
    over = true
    expect(result.isError).toBeFalsy()
    const answer = result.structuredContent as { reference: string; size_bytes: number; duration_ms: number }
    expect(answer.reference).toMatch(/^oubliette\/gemini:[0-9a-f]{16}$/)
    expect(answer.size_bytes).toBeGreaterThan(100e6)
    expect(told.join('\n')).toMatch(/Step 1\/\d+ : ARG BASE[\s\S]*npm install[\s\S]*Successfully built/)
    expect(await types()).toContainEqual(expect.objectContaining({ type: 'gemini', built: true }))
  })
})
