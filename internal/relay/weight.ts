// What a frame will cost once it is parsed, guessed before it is: an empty object is two characters of text and some fifty
// bytes of memory. Counting is quick beside parsing.
const perFrame = 64
const perThing = 56
const perPlace = 12

const comma = 0x2c
const bracket = 0x5b
const brace = 0x7b

export function weightOf(text: string): number {
  let things = 0
  let places = 0
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char === comma) places += 1
    else if (char === brace || char === bracket) things += 1
  }
  return text.length + perFrame + things * perThing + places * perPlace
}
