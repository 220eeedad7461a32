import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { Fault } from '../../internal/fault.ts'
import { bundleClient } from './bundle.ts'
import { asFailure, asToolResult } from './mcp/tools.ts'
import { fitFrame } from './supervise/supervise.ts'

test('the bundle is one file that runs by itself, and the same sources give the same name', async () => {
  const root = mkdtempSync(join(tmpdir(), 'bundle-'))
  try {
    const first = await bundleClient(root)
    const second = await bundleClient(root)
    expect(second).toEqual(first)
    const run = promisify(execFile)
    const { stdout } = await run(process.execPath, [first.file, '--version'], { cwd: root })
    expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
    const env = { PATH: process.env.PATH, OUBLIETTE_API_KEY: '' }
    const called = await run(process.execPath, [first.file, 'call', 'x'], { cwd: root, env }).catch(
      (error) => error,
    )
    expect([called.code, JSON.parse(called.stdout)]).toMatchObject([
      1,
      { error: { kind: 'unauthenticated' } },
    ])
  } finally {
    rmSync(root, { recursive: true })
  }
})

test('output that does not fit into a frame is cut and says so', () => {
  const base = { exit_code: 0, stderr: 'short', truncated: false, timed_out: false, duration_ms: 1 }
  expect(fitFrame({ ...base, stdout: 'fits' }, 1000)).toMatchObject({ stdout: 'fits', truncated: false })
  const cut = fitFrame({ ...base, stdout: '\u0001'.repeat(10_000) }, 1000)
  expect(cut).toMatchObject({ stderr: 'short', truncated: true })
  expect(JSON.stringify(cut).length).toBeLessThanOrEqual(1000)
})

test('answers of any shape become results of a tool', () => {
  const image = { content: [{ type: 'image', data: 'AA==', mimeType: 'image/png' }], isError: true }
  expect(asToolResult(image)).toBe(image)
  expect(asToolResult({ a: 1 })).toEqual({
    content: [{ type: 'text', text: '{"a":1}' }],
    structuredContent: { a: 1 },
  })
  expect(asToolResult('plain')).toEqual({ content: [{ type: 'text', text: 'plain' }] })
  expect(asToolResult(undefined)).toEqual({ content: [{ type: 'text', text: 'null' }] })
  expect(asToolResult([1])).toEqual({ content: [{ type: 'text', text: '[1]' }] })
  expect(asFailure(new Fault('timeout', 'too late', { hint: 'ask again' }))).toMatchObject({
    isError: true,
    content: [{ text: 'too late (ask again)' }],
    structuredContent: { error: { kind: 'timeout' } },
  })
})
