import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { createLog } from '../../../../internal/log.ts'
import type { Peer, RawJson } from '../../../../internal/protocol/peer.ts'
import { openJournal } from '../../../../internal/supervisor/journal.ts'
import { createSender } from './sender.ts'
import { createUplinkShare } from './uplink-share.ts'

type Asked = { seqs: number[]; answer(committed_seq: number): Promise<void>; fail(): Promise<void> }

function prepare() {
  const directory = mkdtempSync(join(tmpdir(), 'oub-sender-'))
  onTestFinished(() => rmSync(directory, { recursive: true }))
  const journal = openJournal({ directory, on_append: () => sender.kick() })
  const sender = createSender({
    session_id: 'gogol_1',
    journal,
    share: createUplinkShare(),
    log: createLog({ level: 'error', write: () => undefined }),
    on_unknown: () => undefined,
    on_committed: () => undefined,
    on_disconnected: () => undefined,
  })
  let current = { open: false }
  const connect = (committed_seq: number) => {
    const asked: Asked[] = []
    current.open = false
    const request = (_method: string, params: unknown) => {
      const { promise, resolve, reject } = Promise.withResolvers<unknown>()
      const { events } = JSON.parse((params as RawJson).text) as { events: { seq: number }[] }
      asked.push({
        seqs: events.map(({ seq }) => seq),
        answer: async (committed_seq) => {
          resolve({ committed_seq })
          await setImmediate()
        },
        fail: async () => {
          reject(new Error('the connection ended'))
          await setImmediate()
        },
      })
      return promise
    }
    const peer = { request, open: true, closed: new Promise(() => undefined) }
    current = peer
    sender.attach(peer as unknown as Peer, committed_seq)
    return asked
  }
  const says = async (text: string) => {
    journal.append({ type: 'delta', text })
    await setImmediate()
  }
  return { journal, sender, connect, says }
}
const seqs = (asked: Asked[]) => asked.map((it) => it.seqs)

test('a line is sent while the one before it is not committed', async () => {
  const { connect, says, sender } = prepare()
  const asked = connect(-1)
  for (const text of ['a', 'b', 'c']) await says(text)
  expect(seqs(asked)).toEqual([[0], [1], [2]])
  for (const [at, it] of asked.entries()) await it.answer(at)
  expect(sender.all_committed).toBe(true)
  expect(asked.length).toBe(3)
})

test('what was passed over because of a gap is sent again', async () => {
  const { connect, says, sender } = prepare()
  const asked = connect(-1)
  for (const text of ['a', 'b', 'c']) await says(text)
  await asked[1]!.answer(-1)
  expect(seqs(asked.slice(3))).toEqual([[0, 1, 2]])
  await asked[0]!.answer(0)
  await asked[2]!.answer(0)
  await asked[3]!.answer(2)
  expect(sender.all_committed).toBe(true)
  await says('d')
  expect(asked.at(-1)!.seqs).toEqual([3])
})

test('a new connection begins after what is committed, whatever was under way on the old one', async () => {
  const { connect, says } = prepare()
  const old = connect(-1)
  for (const text of ['a', 'b', 'c']) await says(text)
  const asked = connect(0)
  expect(seqs(asked)).toEqual([[1, 2]])
  // Their failure says nothing about this connection.
  await old[1]!.fail()
  await says('d')
  expect(seqs(asked)).toEqual([[1, 2], [3]])
})
