// What a frame will cost once it is parsed, guessed before it is: an empty object is two characters of text and some fifty
// bytes of memory. Counting is quick beside parsing.
import { jsonBounds, measureJson, problemOf } from '../event-loop/json-bounds.ts'

const perFrame = 64
const perThing = 56
const perPlace = 12

/** A supervisor says in its first message what it has of each of its sessions, and there may be thousands. */
const helloValues = 100_000
const isHello = (text: string) => text.slice(0, 200).includes('"method":"hello"')

/** `problem`, if it is not to be parsed at all. */
export type FrameCost = { weight: number; problem: string | undefined }

export function costOfFrame(text: string): FrameCost {
  const values = isHello(text) ? helloValues : jsonBounds.values
  const measured = measureJson(text, values)
  const weight = text.length + perFrame + measured.things * perThing + measured.commas * perPlace
  return { weight, problem: problemOf(measured, values) }
}
