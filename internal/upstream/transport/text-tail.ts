// Keeps the end of a text, whatever its length.

export type TextTail = { push(text: string): void; lines(): string[] }

const maxChars = 8 * 1024
const maxLines = 20
const maxLineChars = 500

export function createTextTail(): TextTail {
  let kept = ''
  return {
    push(text) {
      kept = (kept + text.slice(-maxChars)).slice(-maxChars)
    },
    lines: () =>
      kept
        .split('\n')
        .map((line) => line.trimEnd().slice(0, maxLineChars))
        .filter((line) => line !== '')
        .slice(-maxLines),
  }
}
