import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { checkTiming, dueTimes, nextTimes } from './cron.ts'

const at = (text: string) => Date.parse(text)
const times = (cron_expr: string, time_zone: string, after: string, count: number) =>
  nextTimes({ cron_expr, time_zone }, at(after), count).map((time) => time.slice(0, 19))

describe('times', () => {
  it.each([
    // In the gap of spring: when it ends. Twice in autumn: once.
    ['30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z', ['2026-03-29T01:00:00', '2026-03-30T00:30:00']],
    ['30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00:00Z', ['2026-10-25T00:30:00', '2026-10-26T01:30:00']],
    [
      '30 2 * * *',
      'America/New_York',
      '2026-03-07T12:00:00Z',
      ['2026-03-08T07:00:00', '2026-03-09T06:30:00'],
    ],
    [
      '30 1 * * *',
      'America/New_York',
      '2026-10-31T12:00:00Z',
      ['2026-11-01T05:30:00', '2026-11-02T06:30:00'],
    ],
    // Across a change, at the same time of the day.
    ['0 9 * * *', 'America/New_York', '2026-03-07T12:00:00Z', ['2026-03-07T14:00:00', '2026-03-08T13:00:00']],
    // Intervals go on evenly.
    [
      '*/30 * * * *',
      'Europe/Berlin',
      '2026-10-25T00:00:00Z',
      ['2026-10-25T00:30:00', '2026-10-25T01:00:00', '2026-10-25T01:30:00'],
    ],
    [
      '*/30 * * * *',
      'America/New_York',
      '2026-03-08T06:30:00Z',
      ['2026-03-08T07:00:00', '2026-03-08T07:30:00'],
    ],
    // Ends of months and leap days.
    ['0 0 31 * *', 'UTC', '2026-01-31T00:00:00Z', ['2026-03-31T00:00:00', '2026-05-31T00:00:00']],
    ['0 0 L * *', 'UTC', '2028-02-01T00:00:00Z', ['2028-02-29T00:00:00', '2028-03-31T00:00:00']],
    ['0 0 29 2 *', 'UTC', '2026-01-01T00:00:00Z', ['2028-02-29T00:00:00', '2032-02-29T00:00:00']],
    ['0 0 29 FEB *', 'UTC', '2096-03-01T00:00:00Z', ['2104-02-29T00:00:00']],
    // Names, nicknames, seconds.
    ['0 9 * * MON-FRI', 'UTC', '2026-01-16T10:00:00Z', ['2026-01-19T09:00:00']],
    ['@daily', 'Asia/Tokyo', '2026-01-16T10:00:00Z', ['2026-01-16T15:00:00']],
    ['@yearly', 'UTC', '2026-01-16T10:00:00Z', ['2027-01-01T00:00:00']],
    ['*/20 * * * * *', 'UTC', '2026-01-16T10:00:00Z', ['2026-01-16T10:00:20', '2026-01-16T10:00:40']],
  ])('of "%s" in %s after %s', (cron_expr, time_zone, after, expected) => {
    expect(times(cron_expr, time_zone, after, expected.length)).toEqual(expected)
  })
})

describe('what is refused', () => {
  it.each([
    ['', 'UTC', /five or six fields/],
    ['hello', 'UTC', /five or six fields/],
    ['* * *', 'UTC', /five or six fields/],
    ['* * * * * * 2030', 'UTC', /five or six fields/],
    ['2027-01-01T00:00:00', 'UTC', /five or six fields/],
    ['61 * * * *', 'UTC', /is invalid.*61/],
    ['@reboot', 'UTC', /is invalid/],
    ['@sometimes', 'UTC', /is invalid/],
    ['0 0 30 2 *', 'UTC', /no future occurrence/],
    ['0 0 31 4,6 *', 'UTC', /no future occurrence/],
    ['* * * * *', 'Mars/Base', /unknown time zone "Mars\/Base"/],
  ])('"%s" in %s', (cron_expr, time_zone, message) => {
    expect(() => checkTiming({ cron_expr, time_zone }, Date.now())).toThrow(message)
  })
})

describe('what is due', () => {
  const timing = { cron_expr: '* * * * * *', time_zone: 'UTC' }
  const now = at('2026-01-01T00:01:00Z')

  it('is every time of the last seconds, each once', async () => {
    const due = await dueTimes(timing, now - 2000, now, 10_000)
    expect(due).toEqual({ times: [now - 2000, now - 1000, now], missed: undefined, next: now + 1000 })
  })

  it('is separate from missed times', async () => {
    const due = await dueTimes(timing, now - 60_000, now, 10_000)
    expect(due.missed).toEqual({ first: now - 60_000, count: 50 })
    expect(due.times).toHaveLength(11)
  })

  it('does not count for ever', async () => {
    const due = await dueTimes(timing, now - 400 * 86_400_000, now, 10_000)
    expect(due.missed?.count).toBe(1000)
    expect(due.times).toHaveLength(11)
    expect(due.next).toBe(now + 1000)
  })

  it('goes forward only, whatever the expression', () => {
    const expressions = fc.constantFrom('* * * * *', '*/7 * * * * *', '0 0 31 * *', '30 2 * * *', '@hourly')
    const zones = fc.constantFrom('UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe')
    fc.assert(
      fc.property(
        expressions,
        zones,
        fc.integer({ min: 0, max: 400 * 86_400 }),
        (cron_expr, time_zone, after) => {
          const start = at('2026-01-01T00:00:00Z') + after * 1000
          const found = nextTimes({ cron_expr, time_zone }, start, 5).map(at)
          const all = [start, ...found]
          expect(all.every((time, i) => i === 0 || time > all[i - 1]!)).toBe(true)
        },
      ),
      { numRuns: 200 },
    )
  })
})
