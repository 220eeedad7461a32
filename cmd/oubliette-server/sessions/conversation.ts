// A chat in a terminal. The line editor is always the last row; events are shown above it. What is typed is shown when its
// event arrives, so the order on the screen is that of the session, also with several people in it.
import { randomUUID } from 'node:crypto'
import { createInterface } from 'node:readline'
import { Fault, messageOf } from '../../../internal/fault.ts'
import { nearest } from '../../../internal/lib/nearest.ts'
import { callTool } from '../client/call.ts'
import { type RunEvent, readEvents } from '../run/events.ts'
import {
  choices,
  createOpenQuestions,
  decide,
  parseAnswer,
  persistently,
  questionPrompt,
} from '../run/questions.ts'
import { createPaint, inline } from '../run/transcript/style.ts'
import { usageText } from '../run/transcript/usage.ts'
import { columnsOf } from '../tool-command/output/text.ts'
import { appendHistory, history_lines, readHistory } from './input-history.ts'
import { type Chat, lastEvents, openScreen } from './transcript.ts'

/** Lines that arrive within this time were pasted, and are one message. */
const paste_ms = 25
/** Two presses of Ctrl-C within this time leave the chat. */
const twice_ms = 2_000
const busy = ['queued', 'preparing', 'starting', 'running', 'waiting']

const commands: Record<string, string> = {
  '/cancel': 'stop the running turn',
  '/end': 'end the session for good, and leave',
  '/status': 'show the state of the session',
  '/help': 'show this list',
  '/quit': 'leave; the session goes on (Ctrl-D)',
}

export async function chatWith({ where, base, home, session, project, lines }: Chat): Promise<number> {
  const session_id = String(session.session_id)
  const { screen, renderer, colours } = openScreen()
  const paint = createPaint(colours)
  const open = createOpenQuestions()
  const left = Promise.withResolvers<void>()
  const stop = new AbortController()
  let status = String(session.status)
  let asked: string | undefined
  let draft = ''
  let pasted: string[] = []
  let outcome = 'left'
  let pressed_ms = Number.NEGATIVE_INFINITY

  const call = (action: string, more: object = {}) =>
    callTool(where, 'session', { action, session_id, ...more }, { signal: stop.signal })
  const note = (text: string) => screen.lines([paint.dim(`  ${text}`)])
  const complain = (error: unknown) => {
    if (stop.signal.aborted) return
    const hint = error instanceof Fault && error.hint ? [`  ${error.hint}`] : []
    screen.lines([`${paint.red('✗')} ${messageOf(error)}`, ...hint])
  }

  const prompt = `${paint.cyan('>')} `
  const editor = createInterface({
    input: process.stdin,
    output: process.stderr,
    terminal: true,
    prompt,
    history: readHistory(home),
    historySize: history_lines,
    removeHistoryDuplicates: true,
    completer: (line: string) => [
      line.startsWith('/') ? Object.keys(commands).filter((name) => name.startsWith(line)) : [],
      line,
    ],
  })

  const clearInput = () => {
    editor.write(null, { ctrl: true, name: 'e' })
    editor.write(null, { ctrl: true, name: 'u' })
  }

  /** A question takes the place of the input: what was being typed is kept for later, so it cannot become the answer. */
  function askNext(): void {
    const question = open.first
    if (question?.request_id === asked) return
    if (question) {
      screen.lines(renderer.question(question.event))
      if (asked === undefined) draft = editor.line
      clearInput()
      editor.setPrompt(questionPrompt(question, paint))
    } else {
      clearInput()
      editor.setPrompt(prompt)
      editor.write(draft)
      draft = ''
    }
    asked = question?.request_id
    editor.prompt(true)
  }

  function show(event: RunEvent): void {
    if (event.type === 'status') status = String(event.status)
    open.take(event)
    screen.show(renderer.take(event))
  }

  async function send(text: string): Promise<void> {
    const idempotency_key = randomUUID()
    try {
      await persistently(() => call('message', { message: text, idempotency_key }), stop.signal)
    } catch (error) {
      complain(error)
      // It is not lost: it can be changed and sent again.
      if (editor.line === '' && asked === undefined && !text.includes('\n')) editor.write(text)
    }
  }

  async function showStatus(): Promise<void> {
    const now = await call('get')
    const usage = usageText(now.usage as never)
    const facts: [string, unknown][] = [
      ['session', session_id],
      ['status', `${now.status}${now.reason ? `: ${now.reason}` : ''}`],
      ['droid', `${now.droid}${now.model ? ` (${now.model})` : ''}, autonomy ${now.autonomy_level}`],
      ['place', `${project}/${now.workspace_id}`],
      ['turns', `${now.turns}${usage ? ` · ${usage}` : ''}`],
    ]
    const width = columnsOf(process.stderr) - 11
    screen.lines(facts.map(([name, value]) => `  ${paint.dim(name.padEnd(8))} ${inline(value, width)}`))
  }

  async function command(word: string): Promise<void> {
    if (word === '/quit') return void left.resolve()
    if (word === '/help')
      return void screen.lines(
        Object.entries(commands).map(([name, about]) => `  ${name.padEnd(9)}${paint.dim(about)}`),
      )
    if (word === '/status') return await showStatus()
    if (word === '/cancel') {
      if (!busy.includes(status)) return void note('no turn is running')
      await call('cancel')
      return
    }
    if (word === '/end') {
      await call('end', { wait_seconds: 5 })
      outcome = 'ended'
      return void left.resolve()
    }
    const [near] = nearest(word, Object.keys(commands))
    note(`unknown command ${inline(word, 40)}${near ? `; did you mean ${near}?` : '; see /help'}`)
  }

  function answer(line: string): void {
    const question = open.first!
    if (/^\/[a-z]+$/.test(line.trim())) return void command(line.trim()).catch(complain)
    const given = parseAnswer(line, question)
    if (!given) return void note(`answer ${choices(question)}`)
    open.answered(question.request_id)
    askNext()
    decide(where, session_id, question.request_id, given).catch(complain)
  }

  function flushPasted(): void {
    const text = pasted.join('\n').trim()
    pasted = []
    if (text === '') return
    if (/^\/[a-z]+$/.test(text)) return void command(text).catch(complain)
    appendHistory(home, text)
    void send(text.startsWith('//') ? text.slice(1) : text)
  }

  editor.on('line', (line) => {
    screen.submitted(editor.getPrompt(), line)
    pressed_ms = Number.NEGATIVE_INFINITY
    if (asked !== undefined && open.first) return void answer(line)
    if (pasted.length === 0) setTimeout(flushPasted, paste_ms)
    pasted.push(line)
  })

  editor.on('SIGINT', () => {
    const now = performance.now()
    if (now - pressed_ms < twice_ms) return void left.resolve()
    pressed_ms = now
    if (busy.includes(status)) {
      note('cancelling the turn; press Ctrl-C again to leave')
      return void call('cancel').catch(complain)
    }
    if (editor.line !== '') clearInput()
    note('press Ctrl-C again to leave; the session goes on')
  })
  editor.on('close', () => left.resolve())
  const leave = () => left.resolve()
  process.once('SIGTERM', leave)
  process.once('SIGHUP', leave)

  async function follow(since: number): Promise<void> {
    const following = {
      signal: stop.signal,
      give_up_ms: Number.POSITIVE_INFINITY,
      onConnection: (connected: boolean) =>
        screen.show([{ kind: 'live', text: connected ? undefined : 'server unreachable, retrying' }]),
    }
    for await (const event of readEvents(base, where.token, session_id, since, following)) {
      show(event)
      askNext()
    }
  }

  let failure: unknown
  try {
    screen.show(
      renderer.starting({
        droid: String(session.droid),
        model: session.model as string | null,
        project,
        workspace: String(session.workspace_id),
        session_id,
      }),
    )
    const { events, earlier, last_index } = await lastEvents(where, session, lines)
    if (earlier) note(`earlier events: ./oubliette logs ${session_id}`)
    for (const event of events) show(event)
    note('type a message, /help for commands, Ctrl-D to leave')
    screen.edit(editor)
    askNext()
    await Promise.race([left.promise, follow(last_index)])
  } catch (error) {
    failure = error
  } finally {
    stop.abort()
    screen.edit(undefined)
    editor.close()
    screen.end()
    process.off('SIGTERM', leave)
    process.off('SIGHUP', leave)
  }
  if (failure) throw failure
  process.stderr.write(paint.dim(`  ${outcome} ${session_id}\n`))
  return 0
}
