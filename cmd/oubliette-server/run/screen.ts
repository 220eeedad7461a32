// Writes a transcript: text of the droid to stdout, everything else to stderr. On a terminal, the bottom rows show what is
// under way and the line that is being edited; output goes above them, so that neither disturbs the other.
import type { Interface } from 'node:readline'
import { clip, widthOf, withoutControls } from '../tool-command/output/text.ts'
import type { Piece } from './transcript/renderer.ts'
import { createPaint, duration, wrapWords } from './transcript/style.ts'

export type Out = { write(text: string): unknown; isTTY?: boolean; columns?: number }
/** `prevRows` is not documented: the row of the cursor when the editor last drew itself. A test fails if Node changes it. */
type Editor = Pick<Interface, 'getCursorPos' | 'prompt'> & { prevRows?: number }
type Kind = 'stdout' | 'stderr' | 'thought'

const spinner = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']
const frame_ms = 120
/** Between two plain lines about progress. */
const plain_ms = 5_000
const gutter = '│ '
/** A line of the droid that begins like one of ours is indented. */
const imitation = /^(?=[●✓✗?!│☐☑▶›])/u

const eachLine = (text: string, at_start: boolean, change: (line: string) => string): string => {
  const lines = text.split('\n')
  return lines.map((line, at) => ((at === 0 && !at_start) || line === '' ? line : change(line))).join('\n')
}
const inGutter = (text: string, at_start: boolean) => eachLine(text, at_start, (line) => `${gutter}${line}`)

export type Screen = ReturnType<typeof createScreen>

export function createScreen(options: {
  out: Out
  err: Out
  columns: () => number
  colours: boolean
  quiet?: boolean
  now?: () => number
}) {
  const { out, err, columns, quiet = false, now = Date.now } = options
  const paint = createPaint(options.colours)
  const terminal = err.isTTY === true
  /** What a terminal shows of the two streams: the kind of its unfinished line. */
  let open: Kind | undefined
  let agent_open = false
  let err_open = false
  let live: { text: string; since: number; plain: boolean } | undefined
  let plain: { text: string; at: number } | undefined
  let editor: Editor | undefined
  /** With an editor: the unfinished line, which is drawn above it. */
  let partial: { kind: Kind; text: string } | undefined
  let drawn_rows = 0
  let drawn = false
  let timer: NodeJS.Timeout | undefined

  const isTerminal = (kind: Kind) => (kind === 'stdout' ? out : err).isTTY === true
  const styled = (kind: Kind, text: string) => (kind === 'thought' ? paint.dim(text) : text)
  const liveText = () => {
    if (!live) return ''
    const passed = now() - live.since
    const time = passed >= 1000 ? ` · ${duration(Math.floor(passed / 1000) * 1000).replace('.0s', 's')}` : ''
    const sign = spinner[Math.floor(now() / frame_ms) % spinner.length]
    return paint.dim(clip(`${sign} ${live.text}${time}`, columns() - 1))
  }

  function erased(): string {
    if (!drawn) return ''
    drawn = false
    if (!editor) return '\r\x1b[2K'
    const up = drawn_rows + editor.getCursorPos().rows
    return `${up > 0 ? `\x1b[${up}A` : ''}\r\x1b[J`
  }

  function draw(before = ''): void {
    if (!terminal) return
    if (!editor) {
      drawn = live !== undefined && open === undefined
      const text = `${before}${drawn ? liveText() : ''}`
      if (text !== '') err.write(text)
      return
    }
    const rows = [...(partial ? [styled(partial.kind, partial.text)] : []), ...(live ? [liveText()] : [])]
    drawn_rows = rows.length
    drawn = true
    err.write(`${before}${rows.map((row) => `${row}\n`).join('')}`)
    // Otherwise it moves up by so many rows before it draws itself.
    editor.prevRows = 0
    editor.prompt(true)
  }

  /** Whole lines above the bottom rows. */
  function above(text: string): void {
    const gone = erased()
    const ended = partial ? `${styled(partial.kind, partial.text)}\n` : open ? '\n' : ''
    partial = undefined
    open = undefined
    draw(`${gone}${ended}${text}`)
  }

  /** Text that the terminal shows, next to an editor: complete rows go above it, the rest is drawn with it. */
  function stream(kind: Kind, text: string): void {
    if (partial && partial.kind !== kind && (partial.kind === 'thought' || kind === 'thought')) above('')
    const all = `${partial?.text ?? ''}${text.replaceAll('\t', '    ')}`
    // A row that begins where a long line is broken must not look like one of ours either.
    const rows = all
      .split('\n')
      .flatMap((line) => wrapWords(line, columns() - 2))
      .map((row) => (kind === 'thought' ? row : row.replace(imitation, ' ')))
    const tail = rows.pop()!
    const gone = erased()
    partial = tail === '' ? undefined : { kind, text: tail }
    draw(`${gone}${rows.map((row) => `${styled(kind, row)}\n`).join('')}`)
  }

  /** Text of a droid as a terminal may receive it: no control characters, no imitation of our lines. */
  function safe(kind: Kind, text: string): string {
    const at_start = editor ? partial === undefined : open === undefined
    const plain_text = withoutControls(text)
    if (kind === 'thought') return inGutter(plain_text, at_start)
    return eachLine(plain_text, at_start, (line) => line.replace(imitation, ' '))
  }

  function put(kind: Kind, text: string): void {
    if (text === '') return
    const target = kind === 'stdout' ? out : err
    if (!isTerminal(kind)) {
      target.write(text)
      if (kind !== 'stdout') err_open = !text.endsWith('\n')
      return
    }
    if (!editor && open && open !== kind && (open === 'thought' || kind === 'thought')) above('')
    const shown = safe(kind, text)
    if (shown === '') return
    if (editor) return void stream(kind, shown)
    const gone = erased()
    if (gone) err.write(gone)
    target.write(styled(kind, shown))
    open = shown.endsWith('\n') ? undefined : kind
    draw()
  }

  function text({ stream: kind, text, agent }: Extract<Piece, { kind: 'text' }>): void {
    put(kind, text)
    if (kind === 'stdout') agent_open = agent && !text.endsWith('\n')
  }

  function thought(text: string): void {
    if (agent_open) breakLine()
    if (terminal) return void put('thought', text)
    put('stderr', inGutter(withoutControls(text), !err_open))
  }

  function lines(texts: string[]): void {
    const text = texts.map((one) => `${one}\n`).join('')
    if (terminal) return void above(text)
    err.write(`${err_open ? '\n' : ''}${text}`)
    err_open = false
  }

  /** The text of an agent ends: it gets a line feed, also in a file. */
  function breakLine(): void {
    // On a terminal, a line of ours may have ended it already.
    const is_ended = out.isTTY === true && open === undefined && partial === undefined
    if (agent_open && !is_ended) put('stdout', '\n')
    agent_open = false
    // Thoughts are lines of ours.
    if (open === 'thought' || partial?.kind === 'thought') above('')
  }

  function setLive(text: string | undefined, is_plain: boolean): void {
    if (!terminal) {
      if (!is_plain || text === undefined || text === plain?.text) return
      if (plain && now() - plain.at < plain_ms) return
      plain = { text, at: now() }
      return void lines([`… ${text}`])
    }
    // The steps of a preparation are one wait.
    const goes_on = live && (live.text === text || (live.plain && is_plain))
    live = text === undefined ? undefined : { text, since: goes_on ? live!.since : now(), plain: is_plain }
    const gone = erased()
    draw(gone)
    if (live && !timer) {
      timer = setInterval(() => draw(erased()), frame_ms)
      timer.unref()
    } else if (!live) stopTimer()
  }
  const stopTimer = () => {
    clearInterval(timer)
    timer = undefined
  }

  return {
    terminal,
    show(pieces: Piece[]): void {
      for (const piece of pieces) {
        if (piece.kind === 'text') text(piece)
        else if (piece.kind === 'break') breakLine()
        else if (piece.kind === 'lines' && (!quiet || piece.error)) lines(piece.lines)
        else if (piece.kind === 'thought' && !quiet) thought(piece.text)
        else if (piece.kind === 'live' && !quiet) setLive(piece.text, piece.plain === true)
      }
    },
    /** Lines of this program that are shown also with `--quiet`. */
    lines,
    /** The bottom row is a line that is being edited, until it is called with nothing. */
    edit(next: Editor | undefined): void {
      const gone = erased()
      if (partial && !next) err.write(`${gone}${styled(partial.kind, partial.text)}\n`)
      else if (open && next) err.write(`${gone}\n`)
      else err.write(gone)
      partial = undefined
      open = undefined
      editor = next
      draw()
    },
    /** After Enter: removes the line that was edited; what it says is shown as an event. */
    submitted(prompt: string, line: string): void {
      if (!editor) return
      const rows = Math.floor(widthOf(withoutControls(`${prompt}${line}`)) / columns()) + 1
      drawn = false
      draw(`\x1b[${rows + drawn_rows}A\r\x1b[J`)
    },
    end(): void {
      breakLine()
      live = undefined
      stopTimer()
      const gone = erased()
      if (gone) err.write(gone)
      if (open && terminal) err.write('\n')
      open = undefined
    },
  }
}
