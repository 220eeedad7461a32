import { expect, test } from 'vitest'
import { parseSkill } from './skills.ts'

test.each([
  ['---\nname: pdf\ndescription: Reads PDF files.\n---\n# Title', 'pdf', 'Reads PDF files.'],
  ['---\nname: "quoted"\ndescription: \'also: quoted\'\n---', 'quoted', 'also: quoted'],
  ['---\r\nname: crlf\r\ndescription: >\r\n  two\r\n  lines\r\n---', 'crlf', 'two lines'],
  ['---\nname: open\ndescription: no end', 'open', 'no end'],
  ['no front matter', 'dir', ''],
  ['', 'dir', ''],
  ['---\n__proto__: x\nconstructor: y\n---', 'dir', ''],
])('of %j the name is %s', (text, name, description) => {
  expect(parseSkill(text, 'dir')).toEqual({ name, description })
})

test('a long name and description are clipped', () => {
  const { name, description } = parseSkill(
    `---\nname: ${'n'.repeat(9999)}\ndescription: ${'d'.repeat(9999)}\n`,
    '',
  )
  expect([name.length, description.length]).toEqual([100, 500])
})
