import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { autonomies, decide, type Override, type PolicyQuestion, type Verdict } from './policy.ts'

const verdicts = ['allow', 'ask', 'deny'] as const
const strictness = (verdict: Verdict) => verdicts.indexOf(verdict)
const settings = { ask_at_high: 'destructive' } as const

const question = (more: Partial<PolicyQuestion> = {}): PolicyQuestion => ({
  tool: { name: 'search' },
  server_id: 's1',
  project_id: 'p1',
  trusted: true,
  autonomy: 'high',
  ...more,
})

const anyTool = fc.record({
  name: fc.constantFrom('search', 'delete_all', 'run'),
  annotations: fc.constantFrom<Record<string, unknown> | undefined>(
    undefined,
    {},
    { readOnlyHint: true },
    { destructiveHint: true },
    { destructiveHint: false },
  ),
})
const anyQuestion = fc.record({
  tool: anyTool,
  server_id: fc.constantFrom('s1', 's2'),
  project_id: fc.constantFrom('p1', 'p2', null),
  trusted: fc.boolean(),
  autonomy: fc.constantFrom(...autonomies, null),
})
const anySettings = fc.record({ ask_at_high: fc.constantFrom('destructive', 'dangerous', 'none') })
const anyOverride = (set_by: fc.Arbitrary<Override['set_by']>) =>
  fc.record(
    {
      set_by,
      verdict: fc.constantFrom(...verdicts),
      project_id: fc.constantFrom('p1', 'p2'),
      server_id: fc.constantFrom('s1', 's2'),
      tool: fc.constantFrom('search', 'delete_all', 'run'),
    },
    { requiredKeys: ['set_by', 'verdict'] },
  )
const anyOverrides = fc.array(anyOverride(fc.constantFrom('admin', 'project')), { maxLength: 5 })

describe('without overrides', () => {
  const annotated = {
    read: { name: 'x', annotations: { readOnlyHint: true } },
    write: { name: 'x', annotations: { destructiveHint: false } },
    unstated: { name: 'x' },
    dangerous: { name: 'delete_x' },
  }
  const row = (level: (typeof autonomies)[number], ask_at_high: 'destructive' | 'dangerous' | 'none') =>
    Object.values(annotated).map(
      (tool) => decide(question({ tool, autonomy: level }), [], { ask_at_high }).verdict,
    )

  test('the verdicts are those of the table in docs/approvals.md', () => {
    expect(row('off', 'none')).toEqual(['ask', 'ask', 'ask', 'ask'])
    expect(row('low', 'none')).toEqual(['allow', 'ask', 'ask', 'ask'])
    expect(row('medium', 'none')).toEqual(['allow', 'ask', 'ask', 'ask'])
    expect(row('high', 'destructive')).toEqual(['allow', 'allow', 'ask', 'ask'])
    expect(row('high', 'dangerous')).toEqual(['allow', 'allow', 'allow', 'ask'])
    expect(row('high', 'none')).toEqual(['allow', 'allow', 'allow', 'allow'])
  })

  test('more autonomy is never asked more, and `allowed_at` is where it begins to be allowed', () => {
    fc.assert(
      fc.property(anyQuestion, anySettings, (given, set) => {
        const answers = autonomies.map((autonomy) => decide({ ...given, autonomy }, [], set))
        for (const [at, { verdict, allowed_at }] of answers.entries()) {
          expect(verdict === 'allow').toBe(allowed_at !== null && autonomies.indexOf(allowed_at) <= at)
          expect(verdict).not.toBe('deny')
        }
      }),
    )
  })
})

describe('overrides', () => {
  test('the most specific one applies: tool, then server, then project', () => {
    const by = (verdict: Verdict, more: Partial<Override>): Override => ({
      set_by: 'admin',
      verdict,
      ...more,
    })
    const all = [
      by('deny', {}),
      by('ask', { project_id: 'p1' }),
      by('allow', { server_id: 's1' }),
      by('deny', { server_id: 's1', project_id: 'p1' }),
      by('allow', { tool: 'search' }),
      by('ask', { tool: 'search', server_id: 's1' }),
      by('allow', { tool: 'search', server_id: 's1', project_id: 'p1' }),
    ]
    const verdicts = all.map((_, at) => decide(question(), all.slice(0, at + 1), settings).verdict)
    expect(verdicts).toEqual(all.map(({ verdict }) => verdict))
    expect(decide(question(), [...all].reverse(), settings).verdict).toBe('allow')
  })

  test('of equally specific ones the strictest applies, in any order', () => {
    fc.assert(
      fc.property(anyQuestion, anyOverrides, anySettings, fc.nat(), (given, overrides, set, turn) => {
        const at = overrides.length === 0 ? 0 : turn % overrides.length
        const turned = [...overrides.slice(at), ...overrides.slice(0, at)]
        expect(decide(given, turned, set)).toEqual(decide(given, overrides, set))
      }),
    )
  })

  test('a project never loosens what an admin set', () => {
    fc.assert(
      fc.property(
        anyQuestion,
        fc.array(anyOverride(fc.constant('admin')), { minLength: 1, maxLength: 4 }),
        fc.array(anyOverride(fc.constant('project')), { maxLength: 4 }),
        anySettings,
        (given, admins, projects, set) => {
          const alone = decide(given, admins, set)
          const both = decide(given, [...admins, ...projects], set)
          if (alone.because.startsWith('an admin'))
            expect(strictness(both.verdict)).toBeGreaterThanOrEqual(strictness(alone.verdict))
        },
      ),
    )
  })

  test('annotations of an untrusted server never lower a verdict', () => {
    fc.assert(
      fc.property(anyQuestion, anyOverrides, anySettings, (given, overrides, set) => {
        const untrusted = { ...given, trusted: false }
        const claimed = decide(untrusted, overrides, set).verdict
        const plain = decide({ ...untrusted, tool: { name: given.tool.name } }, overrides, set).verdict
        expect(strictness(claimed)).toBeGreaterThanOrEqual(strictness(plain))
      }),
    )
  })

  test('what is denied is denied at every autonomy and to tokens, and nothing else is denied', () => {
    fc.assert(
      fc.property(anyQuestion, anyOverrides, anySettings, (given, overrides, set) => {
        const denied = [...autonomies, null].map(
          (autonomy) => decide({ ...given, autonomy }, overrides, set).verdict === 'deny',
        )
        expect(new Set(denied).size).toBe(1)
        if (!overrides.some(({ verdict }) => verdict === 'deny')) expect(denied[0]).toBe(false)
      }),
    )
  })

  test('a token that belongs to no session is not asked', () => {
    const ask: Override = { set_by: 'admin', verdict: 'ask' }
    expect(decide(question({ autonomy: null }), [ask], settings).verdict).toBe('allow')
    expect(decide(question(), [ask], settings)).toMatchObject({
      verdict: 'ask',
      set_by_admin: true,
      allowed_at: null,
    })
  })
})
