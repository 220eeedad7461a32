// Permission requests of a session, asked and answered in the terminal. A request that is decided elsewhere, or withdrawn
// with its turn, is closed here too.
import { createInterface, type Interface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault } from '../../../internal/fault.ts'
import { isFinal } from '../../../internal/protocol/session-status.ts'
import { callTool, type Endpoint } from '../client/call.ts'
import { readManifest } from '../tool-command/manifest.ts'
import type { RunEvent } from './events.ts'
import type { Screen } from './screen.ts'
import type { Renderer } from './transcript/renderer.ts'
import { createPaint, type Paint } from './transcript/style.ts'

export type Question = { request_id: string; always: boolean; event: RunEvent }
export type Answer = 'allow' | 'deny' | 'always'

const answers: Record<string, Answer> = {
  y: 'allow',
  yes: 'allow',
  n: 'deny',
  no: 'deny',
  a: 'always',
  always: 'always',
}
const drain_ms = 60
const retry_ms = 500

/** Whether this server can be told that a decision counts for later requests too. */
const knowsScope = (): boolean =>
  readManifest().approval?.actions.decide?.fields.some(
    ({ name, choices }) => name === 'scope' && choices.includes('always'),
  ) ?? false

/** Whether a person is asked: a request for permission, or for a tool. Elicitations and consents need more than yes or no. */
export const isQuestion = ({ type, kind }: RunEvent): boolean =>
  type === 'permission_request' ||
  (type === 'tool_approval_request' && kind !== 'elicitation' && kind !== 'consent')

/** `always` only for what the server remembers: the calls of a tool. */
export function questionOf(event: RunEvent, scoped = knowsScope()): Question {
  const always = scoped && event.type === 'tool_approval_request' && event.kind === 'tool'
  return { request_id: String(event.request_id), always, event }
}

export const parseAnswer = (line: string, { always }: Pick<Question, 'always'>): Answer | undefined => {
  const word = line.trim().toLowerCase()
  const answer = Object.hasOwn(answers, word) ? answers[word] : undefined
  return answer === 'always' && !always ? undefined : answer
}

export const choices = ({ always }: Pick<Question, 'always'>): string =>
  always ? '[y]es, [n]o, [a]lways' : '[y]es, [n]o'

export const questionPrompt = (question: Question, paint: Paint): string =>
  `${paint.yellow('?')} Allow? ${choices(question)}: `

/** The id of the approval of a request; undefined if it is not open. */
export async function approvalOf(
  where: Endpoint,
  session_id: string,
  request_id: string,
): Promise<string | undefined> {
  const { approvals } = await callTool(where, 'approval', {
    action: 'list',
    session_id,
    status: 'open',
    limit: 200,
  })
  const open = approvals as { approval_id: string; request_id: string }[]
  return open.find((one) => one.request_id === request_id)?.approval_id
}

/** Repeats a call while the server is not reachable: an answer that was given must not be lost in a restart. */
export async function persistently<T>(call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!(error instanceof Fault && error.kind === 'unavailable') || signal?.aborted) throw error
      await sleep(retry_ms, undefined, signal ? { signal } : {})
    }
  }
}

export async function decide(
  where: Endpoint,
  session_id: string,
  request_id: string,
  answer: Answer,
): Promise<void> {
  await persistently(async () => {
    const approval_id = await approvalOf(where, session_id, request_id)
    if (!approval_id) return
    await callTool(where, 'approval', {
      action: 'decide',
      approval_id,
      decision: answer === 'deny' ? 'deny' : 'allow',
      ...(answer === 'always' ? { scope: 'always' } : {}),
    }).catch((error: unknown) => {
      // It was decided elsewhere at the same time; the event tells how.
      if (!(error instanceof Fault && error.kind === 'conflict')) throw error
    })
  })
}

/** The open requests of a session, from its events. */
export function createOpenQuestions() {
  const open = new Map<string, Question>()
  return {
    /** The question that is asked now. */
    get first(): Question | undefined {
      return open.values().next().value
    },
    take(event: RunEvent): void {
      if (isQuestion(event)) {
        const question = questionOf(event)
        open.set(question.request_id, question)
      }
      if (event.type === 'tool_approval_decision') open.delete(String(event.request_id))
      // With their turn, requests are withdrawn.
      const is_over = event.type === 'status' && (event.status === 'idle' || isFinal(String(event.status)))
      if (is_over || event.type === 'completion') open.clear()
    },
    answered: (request_id: string) => void open.delete(request_id),
  }
}

/** What was typed before a question is shown is not an answer to it. */
async function dropTyped(stdin: NodeJS.ReadStream): Promise<void> {
  const drop = () => undefined
  stdin.setRawMode(true)
  stdin.on('data', drop).resume()
  await sleep(drain_ms)
  stdin.off('data', drop).pause()
}

/** Asks one question after the other, with a line editor that exists only while a question is open. */
export function createAsker(deps: {
  where: Endpoint
  session_id: string
  screen: Screen
  renderer: Renderer
  colours: boolean
  stdin: NodeJS.ReadStream
  /** Ctrl-C, which the terminal does not turn into a signal while a line is edited. */
  interrupt: () => void
  failed: (error: unknown) => void
}) {
  const { where, session_id, screen, stdin } = deps
  const paint = createPaint(deps.colours)
  const open = createOpenQuestions()
  let editor: Interface | undefined
  let asked: string | undefined
  let opening = false

  function close(): void {
    if (!editor) return
    screen.edit(undefined)
    editor.close()
    editor = undefined
    asked = undefined
  }

  function onLine(line: string): void {
    const question = open.first
    if (!editor || !question) return
    screen.submitted(editor.getPrompt(), line)
    const answer = parseAnswer(line, question)
    if (!answer) return void screen.lines([paint.dim(`  answer ${choices(question)}`)])
    open.answered(question.request_id)
    decide(where, session_id, question.request_id, answer).catch(deps.failed)
    refresh()
  }

  function refresh(): void {
    const question = open.first
    if (!question) return void close()
    if (asked === question.request_id || opening) return
    if (editor) return void prompt(editor, question)
    opening = true
    void dropTyped(stdin).then(() => {
      opening = false
      const current = open.first
      if (!current) return void stdin.setRawMode(false)
      editor = createInterface({ input: stdin, output: process.stderr, terminal: true, historySize: 0 })
      editor.on('line', onLine)
      editor.on('SIGINT', deps.interrupt)
      // Ctrl-D: the question stays open for an answer from elsewhere.
      editor.on('close', () => {
        if (editor) screen.edit(undefined)
        editor = undefined
      })
      prompt(editor, current)
    })
  }

  function prompt(on: Interface, question: Question): void {
    asked = question.request_id
    screen.lines(deps.renderer.question(question.event))
    on.setPrompt(questionPrompt(question, paint))
    screen.edit(on)
  }

  return {
    take(event: RunEvent): void {
      open.take(event)
      refresh()
    },
    close,
  }
}

/** Whether someone must answer it, here or elsewhere. */
export const asksPerson = ({ type }: RunEvent): boolean =>
  type === 'permission_request' || type === 'tool_approval_request'

/** For a run without a terminal: how to answer from another one. */
export async function explainQuestion(where: Endpoint, session_id: string, event: RunEvent): Promise<string> {
  const approval_id = await approvalOf(where, session_id, String(event.request_id))
  return `  answer with: ./oubliette approval decide ${approval_id ?? '$APPROVAL_ID'} allow|deny`
}
