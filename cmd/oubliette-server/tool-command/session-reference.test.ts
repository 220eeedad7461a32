import { expect, test } from 'vitest'
import { matchSession } from './session-reference.ts'

const session = (session_id: string) => ({ session_id, project_id: 'p', status: 'idle', droid: 'shell' })
const sessions = [session('gogol_aa11111111'), session('gogol_aa22222222'), session('gogol_bb')]

test('a unique prefix names a session, with or without its prefix of the kind', () => {
  expect(matchSession('gogol_aa1', sessions)).toBe('gogol_aa11111111')
  expect(matchSession('b', sessions)).toBe('gogol_bb')
})

test('an unknown prefix is not found, and the matches of an ambiguous one are listed', () => {
  expect(() => matchSession('zz', sessions)).toThrow('no session zz')
  expect(() => matchSession('gogol_a', sessions)).toThrow(
    expect.objectContaining({
      message: 'session prefix "gogol_a" is ambiguous',
      hint: 'matches: gogol_aa11111111 (shell, idle), gogol_aa22222222 (shell, idle)',
    }),
  )
})
