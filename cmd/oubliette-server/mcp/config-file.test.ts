import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parse } from 'jsonc-parser'
import { afterAll, expect, test } from 'vitest'
import { changed, changeJson, changeToml, replaceFile } from './config-file.ts'

const folder = mkdtempSync(join(tmpdir(), 'oub-config-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('an entry is added to an empty file and removed again', () => {
  const text = changeJson('', ['mcpServers'], { url: 'http://x' })
  expect(JSON.parse(text)).toEqual({ mcpServers: { oubliette: { url: 'http://x' } } })
  expect(JSON.parse(changeJson(text, ['mcpServers'], undefined))).toEqual({ mcpServers: {} })
})

test('comments, other entries and the indentation stay', () => {
  const text = '{\n\t// mine\n\t"theme": "dark",\n\t"mcp": {\n\t\t"other": { "url": "y" },\n\t},\n}\n'
  const after = changeJson(text, ['mcp'], { url: 'http://x' })
  expect(after).toContain('// mine')
  expect(parse(after)).toEqual({
    theme: 'dark',
    mcp: { other: { url: 'y' }, oubliette: { url: 'http://x' } },
  })
  expect(after).toContain('\n\t\t"oubliette": {')
  expect(changeJson(changeJson(after, ['mcp'], { url: 'z' }), ['mcp'], { url: 'http://x' })).toBe(after)
})

test('removing from a file without the entry changes nothing', () => {
  const text = '{ "a": 1 }\n'
  expect(changeJson(text, ['mcpServers'], undefined)).toBe(text)
})

test('a TOML table is added once, replaced with its sub-tables, and removed', () => {
  const rest = 'model = "m"\n\n[mcp_servers.other]\ncommand = "x"\n'
  const once = changeToml(rest, { url: 'http://x', http_headers: { Authorization: 'Bearer "t"' } })
  expect(once).toBe(
    `${rest}\n[mcp_servers.oubliette]\nurl = "http://x"\nhttp_headers = { "Authorization" = "Bearer \\"t\\"" }\n`,
  )
  const nested = `${rest}\n[mcp_servers.oubliette]\nurl = "old"\n[mcp_servers."oubliette".env]\nA = "1"\n\n[tools]\nx = true\n`
  const after = changeToml(nested, { url: 'http://x' })
  expect(after).toContain('[tools]\nx = true\n')
  expect(after.match(/oubliette/g)).toHaveLength(1)
  expect(after).not.toContain('old')
  expect(changeToml(once, undefined)).toBe(rest)
})

test.each(['{ "a": ', '[1]', '"x"'])('a file that is no JSON object is refused: %s', (text) => {
  expect(() => changed('/some/file.json', text, ['mcpServers'], {})).toThrow(/^\/some\/file\.json: /)
})

test('a new file is private, an existing one keeps its mode, and a link stays a link', () => {
  const file = join(folder, 'deep', 'new.json')
  replaceFile(file, '{}')
  expect(statSync(file).mode & 0o777).toBe(0o600)
  chmodSync(file, 0o640)
  replaceFile(file, '{"a":1}')
  expect(statSync(file).mode & 0o777).toBe(0o640)
  const real = join(folder, 'real.json')
  writeFileSync(real, '{}')
  symlinkSync(real, join(folder, 'link.json'))
  replaceFile(join(folder, 'link.json'), '{"b":1}')
  expect(readFileSync(real, 'utf8')).toBe('{"b":1}')
})
