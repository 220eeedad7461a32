import { expect, test } from 'vitest'
import { countTests } from './run-tests.ts'

test('a file that fails to load counts as a failure', () => {
  const report = {
    numPassedTests: 3,
    testResults: [
      { status: 'passed', assertionResults: [{ status: 'passed' }] },
      {
        status: 'failed',
        assertionResults: [{ status: 'failed' }, { status: 'passed' }, { status: 'failed' }],
      },
      { status: 'failed', assertionResults: [] },
    ],
  }
  expect(countTests(report)).toEqual({ passed: 3, failed: 3 })
})
