import { expect, test } from 'vitest'
import { withGit } from './git.ts'

const environment = { models_url: 'http://127.0.0.1:4141', remote_url: 'https://git.example/a.git' }

test('git is told its remote and its key, after what it was told before', () => {
  const before = { GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: 'user.name', GIT_CONFIG_VALUE_0: 'x' }
  expect(withGit(before, environment, 'oubs_1')).toEqual({
    GIT_CONFIG_COUNT: '4',
    GIT_CONFIG_KEY_0: 'user.name',
    GIT_CONFIG_VALUE_0: 'x',
    GIT_CONFIG_KEY_1: 'url.http://127.0.0.1:4141/git/remote.insteadOf',
    GIT_CONFIG_VALUE_1: 'https://git.example/a.git',
    GIT_CONFIG_KEY_2: 'http.http://127.0.0.1:4141/git/remote.extraHeader',
    GIT_CONFIG_VALUE_2: 'Authorization: Bearer oubs_1',
    GIT_CONFIG_KEY_3: 'http.http://127.0.0.1:4141/git/remote.proxy',
    GIT_CONFIG_VALUE_3: '',
  })
})

test('without a remote or a key nothing is changed', () => {
  const env = { A: 'b' }
  expect(withGit(env, { models_url: environment.models_url }, 'oubs_1')).toEqual(env)
  expect(withGit(env, environment, undefined)).toEqual(env)
})
