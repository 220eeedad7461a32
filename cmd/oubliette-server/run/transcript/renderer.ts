// Events of a session in, what a person sees out. Knows neither streams nor cursors: `screen.ts` writes what it returns.
// Everything in its lines that a droid chose is made visible and clipped; the text of the droid is passed on as it is.
import { isFinal } from '../../../../internal/protocol/session-status.ts'
import { shortId, widthOf } from '../../tool-command/output/text.ts'
import type { RunEvent } from '../events.ts'
import { block, createPaint, duration, inline } from './style.ts'
import {
  createCall,
  endedLines,
  isKnown,
  questionLines,
  runningText,
  startedLine,
  type ToolCall,
  unendedLine,
  updateCall,
} from './tool-call.ts'
import { createTally, usageText } from './usage.ts'

export type Piece =
  /** Text of the droid. */
  | { kind: 'text'; stream: 'stdout' | 'stderr'; text: string; agent: boolean }
  /** The text of an agent ends here; it gets a line feed if it has none. */
  | { kind: 'break' }
  | { kind: 'thought'; text: string }
  /** Lines of this program. Errors are shown also with `--quiet`. */
  | { kind: 'lines'; lines: string[]; error?: boolean }
  /** What is under way; replaces the previous one. `plain`: worth a line where nothing can be replaced. */
  | { kind: 'live'; text: string | undefined; plain?: boolean }

export type RendererOptions = {
  columns: () => number
  colours: boolean
  /** Running calls are shown by the live line, and get a line when they end. */
  live: boolean
  /** Also show the messages of the user. */
  messages?: boolean
}

export type Started = {
  droid: string
  model?: string | null | undefined
  project: string
  workspace: string
  session_id: string
}

const most_calls = 1000
/** Of calls that did not end before their turn did. */
const unended_rows = 10
const plan_rows = 20
const finished = ['completed', 'failed']
const string = (value: unknown): string => (typeof value === 'string' ? value : '')
const timeOf = (event: RunEvent): number => Date.parse(string(event.at)) || 0

/** The call that a `tool_approval_request` asks for. */
const upstreamCall = ({ kind, server, tool, arguments: input, detail }: RunEvent) => ({
  title: [kind === 'tool' ? '' : string(kind), string(server), string(tool)].filter(Boolean).join(': '),
  input: kind === 'tool' ? input : detail,
})

export type Renderer = ReturnType<typeof createRenderer>

export function createRenderer(options: RendererOptions) {
  const paint = createPaint(options.colours)
  const look = () => ({ columns: options.columns(), paint })
  const tally = createTally()
  const calls = new Map<string, ToolCall>()
  const plan = new Map<string, string>()
  let droid = 'the droid'
  let began_ms: number | undefined
  let last_error = ''

  const width = () => options.columns()
  const lines = (...texts: string[]): Piece[] => (texts.length === 0 ? [] : [{ kind: 'lines', lines: texts }])
  const working = (): Piece => {
    const running = [...calls.values()].filter((call) => call.title !== undefined || isKnown(call)).at(-1)
    const others = calls.size > 1 ? ` (and ${calls.size - 1} more)` : ''
    return { kind: 'live', text: running ? `${runningText(running, width() - 24)}${others}` : 'working' }
  }

  function onCall(event: RunEvent): Piece[] {
    const id = string(event.tool_call_id)
    const known = calls.get(id)
    // An update of a call that has ended.
    if (!known && event.partial) return []
    const call = known ?? createCall(timeOf(event))
    updateCall(call, event)
    calls.set(id, call)
    if (calls.size > most_calls) calls.delete(calls.keys().next().value!)
    if (finished.includes(string(event.status))) return onCallEnd(event)
    const announce = !options.live && !call.shown && (isKnown(call) || event.status === 'in_progress')
    if (announce) call.shown = true
    return [{ kind: 'break' }, ...(announce ? lines(startedLine(call, look())) : []), working()]
  }

  function onCallEnd(event: RunEvent): Piece[] {
    const id = string(event.tool_call_id)
    const call = calls.get(id) ?? createCall(timeOf(event))
    calls.delete(id)
    updateCall(call, event)
    const ended = endedLines(call, event.status === 'failed', timeOf(event), look())
    return [{ kind: 'break' }, ...lines(...ended), working()]
  }

  /** The whole plan first, then only what changed. */
  function onPlan(event: RunEvent): Piece[] {
    const entries = (Array.isArray(event.entries) ? event.entries : [])
      .filter((entry) => typeof entry === 'object' && entry !== null)
      .map((entry: { content?: unknown; status?: unknown }) => ({
        text: inline(entry.content, width() - 4),
        status: string(entry.status),
      }))
    const changed = entries.filter(({ text, status }) => plan.get(text) !== status)
    plan.clear()
    for (const { text, status } of entries) plan.set(text, status)
    const shown = changed.slice(0, plan_rows).map(({ text, status }) => {
      if (status === 'completed') return `  ${paint.green('☑')} ${paint.dim(text)}`
      return status === 'in_progress' ? `  ${paint.cyan('▶')} ${text}` : `  ☐ ${text}`
    })
    if (shown.length === 0) return []
    const done = entries.filter(({ status }) => status === 'completed').length
    const more = changed.length > plan_rows ? [paint.dim(`  … ${changed.length - plan_rows} more`)] : []
    const head = `${paint.cyan('●')} Plan ${paint.dim(`${done} of ${entries.length} done`)}`
    return [{ kind: 'break' }, ...lines(head, ...shown, ...more)]
  }

  function onStatus(event: RunEvent): Piece[] {
    const reason = string(event.reason)
    switch (event.status) {
      case 'preparing': {
        const percent = typeof event.percent === 'number' ? ` · ${Math.round(event.percent)}%` : ''
        const step = inline(string(event.step) || 'preparing', width() - 24)
        return [{ kind: 'live', text: `${step}${percent}`, plain: true }]
      }
      case 'queued': {
        const place = typeof event.queue_position === 'number' ? ` at position ${event.queue_position}` : ''
        const text = inline(`queued${place}${reason ? `: ${reason}` : ''}`, width() - 16)
        return [{ kind: 'live', text, plain: true }]
      }
      case 'starting':
        return [{ kind: 'live', text: inline(string(event.step) || `starting ${droid}`, width() - 16) }]
      case 'running':
        return [working()]
      case 'waiting':
        return [{ kind: 'live', text: 'waiting for an answer' }]
      case 'idle':
        // Says why a conversation could not be resumed, or that a command ran out of memory.
        return [
          { kind: 'live', text: undefined },
          ...(reason ? lines(paint.yellow(`! ${inline(reason, width() - 2)}`)) : []),
        ]
      default:
        return isFinal(string(event.status)) ? onEnd(event, reason) : []
    }
  }

  function onEnd(event: RunEvent, reason: string): Piece[] {
    calls.clear()
    const live: Piece = { kind: 'live', text: undefined }
    if (event.status === 'failed') {
      if (reason !== '' && reason === last_error) return [live]
      return [{ kind: 'break' }, live, ...failure(`failed: ${reason || 'unknown reason'}`)]
    }
    if (!options.messages) return [live]
    return [
      live,
      ...lines(paint.dim(`● session ${event.status}${reason ? `: ${inline(reason, width() - 24)}` : ''}`)),
    ]
  }

  /** An error can have several lines, such as the last lines of a build. */
  function failure(text: string): Piece[] {
    const { lines: rows, more } = block(text, width() - 2, 15)
    const shown = rows.map((row, at) => `${at === 0 ? paint.red('✗') : ' '} ${paint.red(row)}`)
    const rest = more > 0 ? [paint.dim(`  … ${more} more lines`)] : []
    return [{ kind: 'lines', lines: [...shown, ...rest], error: true }]
  }

  function outcome(event: RunEvent, ms: number): string {
    const time = duration(ms)
    const error = string(event.error)
    if (event.stop_reason === 'cancelled') return `${paint.yellow('✗')} cancelled after ${time}`
    if (event.stop_reason === 'not_run') return `${paint.red('✗')} the prompt was not run`
    if (typeof event.exit_code === 'number' && event.exit_code !== 0) {
      const told = /^the script failed with exit code/.test(error) ? '' : error
      const why = told ? `: ${inline(told, width() - 40)}` : ''
      return `${paint.red('✗')} exit code ${event.exit_code} after ${time}${why}`
    }
    if (event.stop_reason === 'end_turn') return `${paint.green('✓')} done in ${time}`
    const why = inline(string(event.stop_reason) || 'error', Math.max(8, width() - 32))
    return `${paint.red('✗')} stopped after ${time}${why === 'error' ? '' : `: ${why}`}`
  }

  function onCompletion(event: RunEvent): Piece[] {
    const open = [...calls.values()].filter(({ shown }) => shown || options.live).slice(-unended_rows)
    calls.clear()
    if (typeof event.usage === 'object' && event.usage !== null)
      tally.add(event.usage as Record<string, unknown>)
    const used = usageText(tally.total())
    const at = timeOf(event)
    const error = event.exit_code === undefined ? string(event.error) : ''
    const repeated = error !== '' && error === last_error
    last_error = error || last_error
    const summary = `${outcome(event, at - (began_ms ?? at))}${used ? paint.dim(` · ${used}`) : ''}`
    began_ms = undefined
    return [
      { kind: 'break' },
      { kind: 'live', text: undefined },
      ...open.flatMap((call) => lines(unendedLine(call, event.stop_reason !== 'end_turn', at, look()))),
      ...(error && !repeated ? failure(error) : []),
      ...lines(summary),
    ]
  }

  function onMessage(event: RunEvent): Piece[] {
    if (event.role === 'assistant') return [{ kind: 'break' }]
    if (event.role !== 'user') return []
    if (began_ms === undefined) {
      began_ms = timeOf(event)
      tally.begin()
    }
    if (!options.messages) return []
    const { lines: rows, more } = block(string(event.text), width() - 2, 20)
    return [
      { kind: 'break' },
      ...lines(
        ...rows.map((row, at) => paint.bold(`${at === 0 ? '›' : ' '} ${row}`)),
        ...(more > 0 ? [paint.dim(`  … ${more} more lines`)] : []),
      ),
    ]
  }

  return {
    /** The first line: what runs where. */
    starting({ model, project, workspace, session_id, ...started }: Started): Piece[] {
      droid = inline(started.droid, 32)
      const id = shortId(session_id)
      const rest = Math.max(16, width() - 2 - widthOf(droid) - widthOf(id) - 9)
      const named = model ? inline(model, Math.floor(rest / 2)) : ''
      const words = [
        paint.bold(droid),
        ...(named ? [named] : []),
        inline(`${project}/${workspace}`, rest - widthOf(named)),
        paint.dim(id),
      ]
      return lines(`${paint.cyan('●')} ${words.join(paint.dim(' · '))}`)
    },
    /** The lines above a permission question. */
    question(event: RunEvent): string[] {
      const call = createCall(timeOf(event))
      const asked = (event.tool_call ?? upstreamCall(event)) as Record<string, unknown>
      const known = calls.get(string(asked.toolCallId))
      if (known) Object.assign(call, known)
      updateCall(call, asked)
      if (known) Object.assign(known, call, { diff_shown: true })
      return questionLines(call, `${droid} asks for permission`, look())
    },
    take(event: RunEvent): Piece[] {
      switch (event.type) {
        case 'delta': {
          const stream = event.stream === 'stderr' ? 'stderr' : 'stdout'
          return [{ kind: 'text', stream, text: string(event.text), agent: event.stream === undefined }]
        }
        case 'thought':
          return [{ kind: 'thought', text: string(event.text) }]
        case 'message':
          return onMessage(event)
        case 'tool_call':
          return onCall(event)
        case 'tool_result':
          return onCallEnd(event)
        case 'plan':
          return onPlan(event)
        case 'usage':
          tally.add(event)
          return []
        case 'status':
          return onStatus(event)
        case 'completion':
          return onCompletion(event)
        case 'error':
          last_error = string(event.message)
          return [{ kind: 'break' }, { kind: 'live', text: undefined }, ...failure(last_error)]
        case 'warning': {
          const text = inline(event.message ?? event.reason, width() - 2)
          return text ? [{ kind: 'break' }, ...lines(paint.yellow(`! ${text}`))] : []
        }
        case 'tool_approval_decision':
          return [
            { kind: 'break' },
            ...lines(event.decision === 'allow' ? `${paint.green('✓')} allowed` : `${paint.red('✗')} denied`),
          ]
        case 'caller_tool_request':
          return [
            { kind: 'break' },
            ...lines(
              `${paint.yellow('?')} ${inline(`${string(event.tool)} ${JSON.stringify(event.arguments ?? {})}`, width() - 26)} ${paint.dim('waits for its caller')}`,
            ),
          ]
        default:
          return []
      }
    },
  }
}
