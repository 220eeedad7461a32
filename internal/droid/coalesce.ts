// Combines many small texts into few events. The first text after a pause is emitted at once, so that slow output appears
// immediately; under load, texts are buffered for a moment or up to a size. Order is kept across kinds: a text of another kind
// flushes the buffer first.
import type { DroidEvent } from './droid.ts'

const deltaChars = 16 * 1024
const intervalMs = 30

export interface Coalescer {
  /** Texts of different `kind` are not combined; `head` has the other fields of the event. */
  push(kind: string, head: DroidEvent, text: string): void
  flush(): void
}

/** Where to split: after a line if there is one, and never inside a character. */
function cut(text: string, limit: number): number {
  if (text.length <= limit) return text.length
  const line = text.lastIndexOf('\n', limit - 1)
  if (line >= 0) return line + 1
  const unit = text.charCodeAt(limit - 1)
  return unit >= 0xd800 && unit <= 0xdbff ? limit - 1 : limit
}

export function createCoalescer(
  emit: (event: DroidEvent) => void,
  { interval_ms = intervalMs, max_chars = deltaChars } = {},
): Coalescer {
  let kind: string | undefined
  let head: DroidEvent = { type: 'delta' }
  let parts: string[] = []
  let chars = 0
  let last_ms = Number.NEGATIVE_INFINITY
  let timer: NodeJS.Timeout | undefined
  let soon: NodeJS.Immediate | undefined

  const send = (keep_tail: boolean) => {
    let text = parts.join('')
    parts = []
    chars = 0
    while (text.length > 0) {
      if (keep_tail && text.length < max_chars) {
        parts = [text]
        chars = text.length
        return
      }
      const end = cut(text, max_chars)
      emit({ ...head, text: text.slice(0, end) })
      text = text.slice(end)
    }
  }
  const flush = () => {
    clearTimeout(timer)
    clearImmediate(soon)
    timer = undefined
    soon = undefined
    if (chars === 0) return
    last_ms = performance.now()
    send(false)
  }

  return {
    push(of, with_head, text) {
      if (text === '') return
      if (of !== kind) flush()
      kind = of
      head = with_head
      parts.push(text)
      chars += text.length
      if (chars >= max_chars) send(true)
      if (chars === 0 || timer || soon) return
      const left = interval_ms - (performance.now() - last_ms)
      if (left <= 0) soon = setImmediate(flush)
      else timer = setTimeout(flush, left)
    },
    flush,
  }
}
