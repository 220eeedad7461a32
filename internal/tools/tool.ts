// A tool is a value, declared once. From it come what `tools/list` shows to a scope, validation, the scope check,
// the tools inside containers, the command line's flags and help, docs/tools.md, the audit row and the
// permission suite. Nothing else in the program lists the tools. The types here are all that protocol code
// (`internal/mcp`, `internal/http`) knows of a tool; `door.ts` runs them.
import type { z } from 'zod'
import type { Caller } from '../auth/caller.ts'
import type { Need, Scope } from '../auth/scope.ts'
import type { AuditCall } from '../manager/access/audit.ts'
import type { Managers } from '../manager/managers.ts'

export type CallContext = {
  caller: Caller
  request_id: string
  via: 'http' | 'socket' | 'schedule'
  /** Aborted when the caller cancels the call or disconnects. */
  signal: AbortSignal
  progress(update: { progress: number; total?: number; message?: string }): void
  /** The body of the request, for an action that reads a stream. */
  body?: AsyncIterable<Uint8Array>
  /** `disabled_tools` of the project of the calling droid; unset for other callers. */
  disabled_tools?: readonly string[]
}

type JsonSchema = { type: 'object'; [key: string]: unknown }

/** As `tools/list` shows it. */
export type ListedTool = {
  name: string
  title?: string
  description: string
  inputSchema: JsonSchema
  outputSchema: JsonSchema
  annotations?: { readOnlyHint?: boolean; destructiveHint?: boolean; idempotentHint?: boolean }
}

/** `structured` is `{error: FaultShape}` when `is_error`; `text` is then a readable sentence, otherwise the same JSON. */
export type Outcome = { structured: Record<string, unknown>; text: string; is_error: boolean }

/** The door, as an action sees it that runs another one. */
export type InnerDoor = {
  listing(scope: Scope): readonly ListedTool[]
  /** As the same caller, with an audit row of its own; throws a fault. An action that was called in this way cannot. */
  call(tool: string, args: unknown): Promise<object>
}

export type RunContext = CallContext & {
  managers: Managers
  door: InnerDoor
  /** Settles when the intent of a change is committed to the audit, and rejects if it cannot be. */
  intent: Promise<void>
  /**
   * The audit row of this call, for an action whose own statement commits it with the outcome; the door then writes none.
   * Throws if the call has ended, because its row is written by then.
   */
  takeAuditRow(): AuditCall
  /**
   * Runs work that has an audit row of its own: a call of another server. `work` gets a promise of its committed intent, and
   * must await it before its first effect.
   */
  audited<T>(named: { tool: string; action: string }, work: (intent: Promise<void>) => Promise<T>): Promise<T>
}

type Declared<I extends z.ZodObject> = {
  needs: Need
  input: I
  /** The statement that makes the change commits an audit row with it, so the door commits no intent before. */
  commits_audit?: boolean
  /** It waits for `intent` itself, before its first change, and reads meanwhile. */
  awaits_intent?: boolean
}

/** What the door needs of an action in order to run it. */
export type Runnable<Result = unknown> = Required<Declared<z.ZodObject>> & {
  run(context: RunContext, input: never): Promise<Result>
}

export type Action = Runnable<object> & {
  about: string
  /** What `tools/list` shows instead of `about`, where that is longer than a prompt can afford. */
  brief?: string
  /** An input that shows its use, with ids of `exampleIds`: the help shows it, and tests call it. */
  example: Record<string, unknown>
  output: z.ZodObject
  /** Removes or overwrites something that cannot be restored. */
  destructive: boolean
  /** Repeating the same call changes nothing more. */
  idempotent: boolean
}

export type Tool = {
  name: string
  about: string
  /** As of an action. */
  brief?: string
  /** False for a standalone tool: it has one action, under its own name, and takes no `action`. */
  unified: boolean
  /** By input field: what `tools/list` shows instead of the description, without bounds and defaults, which are generated. */
  briefs: Record<string, string>
  /**
   * Input fields that are documented but not listed: other places for the value of a listed field, and options that programs
   * and people need more than models do.
   */
  unlisted: readonly string[]
  /** Input fields that only an admin may set freely; they are not listed to others. */
  admin_fields: readonly string[]
  actions: Record<string, Action>
}

type DeclaredAction<I extends z.ZodObject, O extends z.ZodObject> = Declared<I> & {
  about: string
  brief?: string
  example: z.input<I>
  output: O
  destructive?: boolean
  idempotent?: boolean
  run(context: RunContext, input: z.output<I>): Promise<z.output<O>>
}

const runnable = <D extends Declared<z.ZodObject>>(declared: D) => ({
  ...declared,
  input: declared.input.strict(),
  commits_audit: declared.commits_audit ?? false,
  awaits_intent: declared.awaits_intent ?? false,
})

export function action<I extends z.ZodObject, O extends z.ZodObject>(declared: DeclaredAction<I, O>): Action {
  return {
    ...runnable(declared),
    destructive: declared.destructive ?? false,
    idempotent: declared.idempotent ?? declared.needs.endsWith(':read'),
  }
}

type Listing = Pick<Tool, 'briefs' | 'unlisted' | 'admin_fields'>

export const tool = (declared: Omit<Tool, 'unified' | keyof Listing> & Partial<Listing>): Tool => ({
  briefs: {},
  unlisted: [],
  admin_fields: [],
  ...declared,
  unified: true,
})

export const standalone = (name: string, only: Action, briefs: Record<string, string> = {}): Tool => ({
  name,
  about: only.about,
  ...(only.brief === undefined ? {} : { brief: only.brief }),
  unified: false,
  briefs,
  unlisted: [],
  admin_fields: [],
  actions: { [name]: only },
})

/**
 * What only the server's own routes and socket methods call: it is not listed and has no name that a caller could use.
 * It passes the same door as an action, and its result need not be JSON: an event stream is one.
 */
export type InternalAction<Input, Result> = Runnable<Result> & {
  /** How the audit names it. */
  tool(input: Input): string
  action(input: Input): string
}

export function internal<I extends z.ZodObject, Result>(
  declared: Declared<I> & {
    tool: string | ((input: z.input<I>) => string)
    action(input: z.input<I>): string
    run(context: RunContext, input: z.output<I>): Promise<Result>
  },
): InternalAction<z.input<I>, Result> {
  const { tool } = declared
  return { ...runnable(declared), tool: typeof tool === 'string' ? () => tool : tool }
}
