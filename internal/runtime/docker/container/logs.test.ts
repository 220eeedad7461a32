import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createDemux, createLines, parseSince } from './logs.ts'

const at = '2026-01-02T03:04:05.123456789Z'
const later = '2026-01-02T03:04:06.000000000Z'

describe('log lines', () => {
  it('takes the time off each line', () => {
    const lines = createLines()
    expect(lines.push({ stream: 'stdout', data: Buffer.from(`${at} hello world\r\n`) })).toEqual([
      { stream: 'stdout', at, text: 'hello world' },
    ])
    expect(lines.push({ stream: 'stderr', data: Buffer.from(`${at} \n`) })).toEqual([
      { stream: 'stderr', at, text: '' },
    ])
  })

  it('joins a long line from its parts, each stream for itself', () => {
    const lines = createLines()
    expect(lines.push({ stream: 'stdout', data: Buffer.from(`${at} long `) })).toEqual([])
    expect(lines.push({ stream: 'stderr', data: Buffer.from(`${at} between\n`) })).toHaveLength(1)
    expect(lines.push({ stream: 'stdout', data: Buffer.from(`${later} line\n`) })).toEqual([
      { stream: 'stdout', at, text: 'long line' },
    ])
    expect(lines.rest()).toEqual([])
  })

  it('gives what never got its newline at the end', () => {
    const lines = createLines()
    lines.push({ stream: 'stdout', data: Buffer.from(`${at} prompt> `) })
    expect(lines.rest()).toEqual([{ stream: 'stdout', at, text: 'prompt> ' }])
  })
})

describe('since', () => {
  const now = new Date('2026-01-02T00:00:00Z')
  it.each([
    ['1767312000', '1767312000'],
    ['10m', '1767311400.000'],
    ['1h30m', '1767306600.000'],
    ['2026-01-02T00:00:00Z', '1767312000.000000000'],
    ['2026-01-02T00:00:00.123456789Z', '1767312000.123456789'],
  ])('reads %s', (since, seconds) => expect(parseSince(since, now)).toBe(seconds))

  it.each(['yesterday', '', '5 m', '2026-13-45'])('refuses "%s"', (since) =>
    expect(() => parseSince(since, now)).toThrow('is not a valid time'),
  )
})

const frame = (kind: number, data: string): Buffer => {
  const head = Buffer.alloc(8)
  head[0] = kind
  head.writeUInt32BE(Buffer.byteLength(data), 4)
  return Buffer.concat([head, Buffer.from(data)])
}

describe('demux', () => {
  it('gives the same frames however the bytes were cut', () => {
    const sent = [frame(1, 'out'), frame(2, 'err'), frame(1, ''), frame(2, 'ä€😀'.repeat(50))]
    const bytes = Buffer.concat(sent)
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 20 }), (cuts) => {
        const demux = createDemux()
        const places = [0, ...cuts.toSorted((a, b) => a - b), bytes.length]
        const frames = places.slice(1).flatMap((end, index) => demux(bytes.subarray(places[index], end)))
        expect(frames.map(({ stream, data }) => [stream, data.toString()])).toEqual([
          ['stdout', 'out'],
          ['stderr', 'err'],
          ['stdout', ''],
          ['stderr', 'ä€😀'.repeat(50)],
        ])
      }),
    )
  })

  it('holds a frame back until it is whole', () => {
    const demux = createDemux()
    expect(demux(frame(1, 'hello').subarray(0, 10))).toEqual([])
    expect(demux(frame(1, 'hello').subarray(10))).toHaveLength(1)
  })
})
