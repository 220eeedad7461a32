import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'

// What the suites called, for the gate that runs after them.
const env = { OUBLIETTE_TEST_CALLS: join(tmpdir(), `oub-calls-${process.pid}`) }
process.once('exit', () => rmSync(env.OUBLIETTE_TEST_CALLS, { force: true }))
const gate = 'test/suites/source/coverage.test.ts'
// These bound latencies of a busy server: a second file beside them would be measured too.
const latency = [
  'test/suites/session/fairness.test.ts',
  'test/suites/attacks/together.test.ts',
  'test/suites/gateway/sick-upstreams.test.ts',
]
const booting = {
  env,
  globalSetup: ['test/harness/setup/global-setup.ts'],
  testTimeout: 60_000,
  hookTimeout: 120_000,
}

export default defineConfig({
  test: {
    retry: 0,
    teardownTimeout: 30_000,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['{internal,cmd,images,packages}/**/*.test.ts'],
          setupFiles: ['test/harness/setup/property-seed.ts'],
          testTimeout: 10_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'suites',
          include: ['test/{suites,integration}/**/*.test.ts'],
          exclude: [gate, ...latency],
          ...booting,
          // Each file boots servers and containers; more at once measure the machine, not the product.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'latency',
          include: latency,
          ...booting,
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
      {
        test: {
          name: 'gate',
          include: [gate],
          env,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
})
