import { expect, test } from 'vitest'
import { parseTasks } from './changes.ts'

test('check boxes become tasks, with their number and section', () => {
  const tasks = parseTasks(
    '# T\n\n## 1. Set-up\n- [ ] 1.1 Make it\n- [x] 1.2 Try it\n* [X] loose end\n\n## 2. Rest\nno task\n- [y] no task\n',
  )
  expect(tasks).toEqual([
    { number: '1.1', section: '1. Set-up', text: 'Make it', done: false },
    { number: '1.2', section: '1. Set-up', text: 'Try it', done: true },
    { number: null, section: '1. Set-up', text: 'loose end', done: true },
  ])
})
