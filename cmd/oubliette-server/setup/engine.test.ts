import { expect, test } from 'vitest'
import { Fault } from '../../../internal/fault.ts'
import { ensureEngine, isDebian } from './engine.ts'

const progress = { step: () => undefined, detail: () => undefined, end: () => undefined }

test('Debian, Ubuntu and their derivatives are recognised', () => {
  expect(isDebian('PRETTY_NAME="Debian"\nID=debian\n')).toBe(true)
  expect(isDebian('ID=linuxmint\nID_LIKE="ubuntu debian"\n')).toBe(true)
  expect(isDebian('ID="fedora"\nVARIANT_ID=debian\n')).toBe(false)
  expect(isDebian('')).toBe(false)
})

test('a reachable engine is used as it is', async () => {
  const engine = { ping: async () => ({ engine: 'docker', version: '1' }) }
  const where = { logs: '/nowhere', docker_host: undefined }
  expect(await ensureEngine(engine, where, progress)).toEqual({ engine: 'docker', version: '1' })
})

test('an unreachable DOCKER_HOST is named in the error, and nothing is installed', async () => {
  const engine = { ping: () => Promise.reject(new Fault('unavailable', 'connection refused')) }
  const where = { logs: '/nowhere', docker_host: 'tcp://127.0.0.1:1' }
  await expect(ensureEngine(engine, where, progress)).rejects.toThrow(
    'cannot connect to the Docker engine at DOCKER_HOST=tcp://127.0.0.1:1: connection refused',
  )
})
