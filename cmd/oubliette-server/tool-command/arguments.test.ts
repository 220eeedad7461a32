import { expect, test } from 'vitest'
import { z } from 'zod'
import { fieldsOf } from '../dev/manifest.ts'
import { parseArguments } from './arguments.ts'
import { readManifest } from './manifest.ts'

const fields = fieldsOf(
  z.strictObject({
    project_id: z.string(),
    command: z.union([z.string(), z.array(z.string())]),
    working_dir: z.string().optional(),
    timeout_seconds: z.number().default(60),
    init_git: z.boolean().default(true),
    protected_paths: z.array(z.string()).optional(),
    env: z.record(z.string(), z.string()).optional(),
    limits: z.strictObject({ memory_mb: z.int().optional(), cpus: z.number().optional() }).optional(),
    targets: z.array(z.strictObject({ id: z.string(), share: z.number().optional() })).optional(),
  }),
)
const positional = ['project_id', 'command']
const accepted = { fields, positional }
const parse = (...words: string[]) => parseArguments(words, accepted).args
const required = ['--project-id', 'p', '--command', 'c']

test('words without a flag fill the required fields in order, then optional text fields', () => {
  expect(parse('p1', 'ls -l')).toEqual({ project_id: 'p1', command: 'ls -l' })
  expect(parse('p1', 'ls', '/x')).toEqual({ project_id: 'p1', command: 'ls', working_dir: '/x' })
  expect(parse('--project-id', 'p1', 'ls')).toEqual({ project_id: 'p1', command: 'ls' })
})

test('words after -- fill one field, as a list if the field accepts one', () => {
  expect(parse('p1', '--', 'ls', '--json', '-l')).toEqual({
    project_id: 'p1',
    command: ['ls', '--json', '-l'],
  })
})

test('flags accept hyphens and underscores, and a value after = or a space', () => {
  expect(parse(...required, '--timeout_seconds=5', '--working-dir', '/x')).toMatchObject({
    timeout_seconds: 5,
    working_dir: '/x',
  })
})

test('boolean flags stand alone, have a value, or are negated', () => {
  expect(parse(...required, '--init-git').init_git).toBe(true)
  expect(parse(...required, '--init-git', 'false').init_git).toBe(false)
  expect(parse(...required, '--no-init-git').init_git).toBe(false)
})

test('lists are repeated flags or JSON', () => {
  expect(parse(...required, '--protected-paths', 'a', '--protected-paths', 'b').protected_paths).toEqual([
    'a',
    'b',
  ])
  expect(parse(...required, '--protected-paths', '["a"]').protected_paths).toEqual(['a'])
})

test('items of a list of objects are JSON or key=value pairs', () => {
  expect(parse(...required, '--targets', 'id=a', '--targets', 'id=b,share=2').targets).toEqual([
    { id: 'a' },
    { id: 'b', share: 2 },
  ])
  expect(parse(...required, '--targets', '{"id":"a"}').targets).toEqual([{ id: 'a' }])
  expect(parse(...required, '--targets', '[{"id":"a"}]').targets).toEqual([{ id: 'a' }])
  expect(parse(...required, '--targets', 'a', '--targets', 'b').targets).toEqual([{ id: 'a' }, { id: 'b' }])
})

test('objects are JSON or key=value, with numbers where the schema has numbers', () => {
  expect(parse(...required, '--limits', '{"memory_mb":512}').limits).toEqual({ memory_mb: 512 })
  expect(parse(...required, '--limits', 'memory_mb=512', '--limits', 'cpus=0.5').limits).toEqual({
    memory_mb: 512,
    cpus: 0.5,
  })
  expect(parse(...required, '--env', 'A=b=c').env).toEqual({ A: 'b=c' })
})

test('a usage error is reported in one sentence', () => {
  expect(() => parse('p1')).toThrow('missing required --command')
  expect(() => parse('p1', 'ls', '/x', 'extra')).toThrow('unexpected argument "extra"')
  expect(() => parse('p1', 'ls', '-l')).toThrow('unknown option -l')
  expect(() => parse(...required, '--timeout-seconds', 'soon')).toThrow(
    'invalid value "soon" for --timeout-seconds: expected a number',
  )
  expect(() => parse(...required, '--working-dir')).toThrow('option --working-dir requires a value')
  expect(() => parse(...required, '--project-id', 'q')).toThrow(
    'option --project-id was given more than once',
  )
  expect(() => parse(...required, '--limits', '{')).toThrow('invalid value "{" for --limits: expected JSON')
  expect(() => parse(...required, '--wrking-dir', 'x')).toThrow('unknown option --wrking-dir')
})

test('options for the output are not fields', () => {
  const format = (...words: string[]) => parseArguments([...required, ...words], accepted).format
  expect(format()).toBe('table')
  expect(format('--json')).toBe('json')
  expect(format('-o', 'wide')).toBe('wide')
  expect(format('-oyaml')).toBe('yaml')
  expect(format('--output=name')).toBe('name')
  expect(() => format('-o', 'xml')).toThrow('invalid value "xml" for -o: expected table, wide, json')
  expect(parseArguments([...required, '-q', '--all'], accepted)).toMatchObject({ quiet: true, all: true })
  expect(parseArguments(['--help'], accepted).help).toBe(true)
})

test('a message names its session first, unless the project is given', () => {
  const { message } = readManifest().session!.actions
  const sent = (...words: string[]) => parseArguments(words, message!).args
  expect(sent('gogol_1', 'hello')).toEqual({ session_id: 'gogol_1', message: 'hello' })
  expect(sent('--project-id', 'p', 'hello')).toEqual({ project_id: 'p', message: 'hello' })
  expect(sent('--message', 'hello', 'gogol_1')).toEqual({ session_id: 'gogol_1', message: 'hello' })
})
