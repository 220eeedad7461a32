import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createDemux } from './demux.ts'

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
