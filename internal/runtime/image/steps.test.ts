import { expect, test } from 'vitest'
import { createBaseSteps, percentOf, stepOf, stepsIn } from './steps.ts'

test('the steps of a Dockerfile are its instructions in all stages and one for each label', () => {
  const dockerfile = `# a comment
ARG BASE=oubliette/base
FROM \${BASE} AS fetch

USER root
RUN apt-get update \\
 # a comment between
 && RUN=1 apt-get install -y \\
      npm
FROM \${BASE}
copy --from=fetch /opt /opt
`
  expect(stepsIn(dockerfile)).toBe(8)
})

test('a line of the builder names its step', () => {
  expect(stepOf('Step 4/9 : RUN npm install')).toEqual({ step: 4, of: 9 })
  expect(stepOf('npm says Step 4/9 : RUN')).toBeUndefined()
})

test('a base image that is built locally goes through its phases, and never back', () => {
  const report = createBaseSteps('debian:bookworm-slim')
  expect(report('bookworm-slim: Pulling from library/debian')).toMatchObject({
    step: 'fetching base image debian:bookworm-slim',
    done: 0,
  })
  const lines = [
    'I: running apt-get update...',
    'I: downloading packages with apt...',
    'Get:1 http://mirror.example/debian bookworm/main',
    'I: extracting archives...',
    'I: installing essential packages...',
    'I: extracting archives...',
    'I: creating tarball...',
  ]
  expect(lines.map((line) => report(line).done)).toEqual([1, 2, 2, 4, 6, 6, 9])
  expect(report('I: done').step).toBe('building base image debian:bookworm-slim: creating the image')
})

test('the percentage stays below 100 until the build has ended', () => {
  expect(percentOf({ done: 0, total: 9 })).toBe(0)
  expect(percentOf({ done: 3, total: 9 })).toBe(33)
  expect(percentOf({ done: 9, total: 9 })).toBe(99)
  expect(percentOf({ done: 0, total: 0 })).toBe(0)
})
