// A tool is a value, declared once. From it come what `tools/list` shows to a scope, validation, the scope check,
// the tools inside containers, the command line's flags and help, docs/tools.md, the audit line and the
// permission suite. Nothing else in the program lists the tools.
import type { z } from 'zod'
import type { Need } from '../auth/scope.ts'
import type { Managers } from '../manager/managers.ts'
import type { CallContext } from './call-types.ts'

/** `intent`: settles when the intent of a change is committed to the audit, and rejects if it cannot be. */
export type RunContext = CallContext & { managers: Managers; intent: Promise<void> }

export type Action = {
  about: string
  needs: Need
  input: z.ZodObject
  output: z.ZodObject
  /** Removes or overwrites something that cannot be had back. */
  destructive: boolean
  /** The same call a second time changes nothing more. */
  idempotent: boolean
  /** The statement that makes the change commits an audit row with it, so the door commits no intent before. */
  commits_audit: boolean
  /** It waits for `intent` itself, before its first change, and reads meanwhile. */
  awaits_intent: boolean
  run(context: RunContext, input: never): Promise<object>
}

export type Tool = {
  name: string
  about: string
  /** False for a standalone tool: it has one action, under its own name, and takes no `action`. */
  unified: boolean
  actions: Record<string, Action>
}

type Declared<I extends z.ZodObject, O extends z.ZodObject> = {
  about: string
  needs: Need
  input: I
  output: O
  destructive?: boolean
  idempotent?: boolean
  commits_audit?: boolean
  awaits_intent?: boolean
  run(context: RunContext, input: z.output<I>): Promise<z.output<O>>
}

export function action<I extends z.ZodObject, O extends z.ZodObject>(declared: Declared<I, O>): Action {
  const reads = declared.needs.endsWith(':read')
  return {
    ...declared,
    input: declared.input.strict(),
    destructive: declared.destructive ?? false,
    idempotent: declared.idempotent ?? reads,
    commits_audit: declared.commits_audit ?? false,
    awaits_intent: declared.awaits_intent ?? false,
  }
}

export const tool = (declared: Omit<Tool, 'unified'>): Tool => ({ ...declared, unified: true })

export const standalone = (name: string, only: Action): Tool => ({
  name,
  about: only.about,
  unified: false,
  actions: { [name]: only },
})
