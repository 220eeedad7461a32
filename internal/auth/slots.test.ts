import { expect, test } from 'vitest'
import { createSlots } from './slots.ts'

const caller = (token_id: string) => ({ kind: 'token' as const, id: token_id, token_id })

test('bounds what one holds and what all hold, and takes back what is given back', () => {
  const slots = createSlots({ what: 'streams', per_caller: 2, in_all: 3, setting: 'streams' })
  const first = slots.take(caller('a'))
  slots.take(caller('a'))
  expect(() => slots.take(caller('a'))).toThrow('this token has 2 open streams')
  slots.take(caller('b'))
  expect(() => slots.take(caller('c'))).toThrow('this server has 3 open streams')
  first()
  first()
  slots.take(caller('c'))
  expect(() => slots.take(caller('b'))).toThrow('this server')
})
