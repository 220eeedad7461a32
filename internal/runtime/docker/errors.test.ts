import { describe, expect, it } from 'vitest'
import { Fault } from '../../fault.ts'
import { engineFault } from './errors.ts'

const answer = (statusCode: number, reason: string) =>
  Object.assign(new Error(`(HTTP code ${statusCode}) unexpected - ${reason} `), { statusCode })

describe('engine errors', () => {
  it.each([
    [404, 'not_found'],
    [409, 'conflict'],
    [400, 'invalid'],
    [500, 'unavailable'],
  ])('status %i is %s, with what the engine said', (status, kind) => {
    expect(engineFault(answer(status, 'no such thing'), 'unix:///x')).toMatchObject({
      kind,
      message: 'the container engine returned an error: no such thing',
    })
  })

  it.each(['ECONNREFUSED', 'ENOENT', 'EACCES'])('%s names the address', (code) => {
    const thrown = Object.assign(new Error(`connect ${code}`), { code, syscall: 'connect' })
    expect(engineFault(thrown, 'unix:///x.sock')).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('unix:///x.sock'),
    })
  })

  it('leaves a file of ours that is missing, and any other bug, as they are', () => {
    const missing = Object.assign(new Error('open'), { code: 'ENOENT', syscall: 'open' })
    expect(engineFault(missing, 'x')).toBe(missing)
    const fault = new Fault('exhausted', 'full')
    expect(engineFault(fault, 'x')).toBe(fault)
  })
})
