// Tools that callers offer to the droids of a session. The name `{caller_id}_{name}` is unique in a session; schemas are checked
// when they are declared, arguments when the tool is called, before the caller gets the request.
import { Fault } from '../../fault.ts'
import type { Db, Store } from '../../store/open.ts'
import { type CallerRow, callersOf, saveCaller } from '../../store/rows/callers.ts'
import type { CallerTool } from '../../store/schema.ts'

/** Schemas come from tenants: their cost is bounded, and a project (`tenant`) only waits for its own checks. */
export type SchemaCheck = {
  /** Throws a fault if it is not a valid schema, or uses unsupported features. */
  declare(tenant: string, schema: Record<string, unknown>): Promise<void>
  /** Returns what is invalid in the value, or undefined. Throws a fault if the check exceeds its deadline. */
  validate(
    tenant: string,
    schema: Record<string, unknown>,
    value: unknown,
  ): string | undefined | Promise<string | undefined>
}

export type Declaration = { caller_id: string; tools: CallerTool[] }
export type Offered = { caller: CallerRow; tool: CallerTool; name: string }

const longestName = 64
/** Size as JSON of one declaration, and of all declarations of a session. The droid gets the list in one frame. */
const declarationBytes = 1024 * 1024
const sessionBytes = 4 * 1024 * 1024
const reserved = /^(oubliette|mcp)(_|$)/i
/** Names of the search in the tools of upstream servers. */
const searching = ['find_tools', 'call_tool']

export const nameOf = (caller_id: string, tool: string) => `${caller_id}_${tool}`

const bytesOf = (tools: CallerTool[]): number => Buffer.byteLength(JSON.stringify(tools))

/** Adds the position in the declaration to a fault of one schema. */
const placed = (at: number, error: unknown): unknown =>
  error instanceof Fault
    ? new Fault(error.kind, `caller_tools[${at}].inputSchema: ${error.message}`, {
        cause: error,
        ...(error.hint ? { hint: error.hint } : {}),
      })
    : error

/** Checks a declaration by itself. */
export async function checkDeclaration(
  { caller_id, tools }: Declaration,
  tenant: string,
  schema: SchemaCheck,
): Promise<void> {
  if (reserved.test(caller_id)) throw new Fault('invalid', `caller_id "${caller_id}" is reserved`)
  const seen = new Set<string>()
  for (const tool of tools) {
    const name = nameOf(caller_id, tool.name)
    if (seen.has(name)) throw new Fault('invalid', `caller_tools lists "${tool.name}" twice`)
    if (name.length > longestName)
      throw new Fault('invalid', `the tool name "${name}" is longer than ${longestName} characters`)
    if (name.startsWith('mcp__') || name.startsWith('oubliette_') || searching.includes(name))
      throw new Fault('invalid', `the tool name "${name}" is reserved for other tools`)
    seen.add(name)
  }
  if (bytesOf(tools) > declarationBytes)
    throw new Fault('invalid', `caller_tools is larger than ${declarationBytes} bytes`)
  for (const [at, tool] of tools.entries()) {
    if (tool.inputSchema.type !== 'object') throw placed(at, new Fault('invalid', 'must have type "object"'))
    try {
      await schema.declare(tenant, tool.inputSchema)
    } catch (error) {
      throw placed(at, error)
    }
  }
}

const offers = (caller: CallerRow): Offered[] =>
  caller.tools.map((tool) => ({ caller, tool, name: nameOf(caller.caller_id, tool.name) }))

const rememberAtMost = 10_000
const rememberMs = 5_000

export function createCallerTools(deps: { store: Store; schema: SchemaCheck }) {
  const { db } = deps.store
  // Cached for a few seconds: callers may declare tools through another server.
  const known = new Map<string, { callers: Promise<CallerRow[]>; until: number }>()

  function callers(session_id: string): Promise<CallerRow[]> {
    const remembered = known.get(session_id)
    if (remembered && remembered.until > Date.now()) return remembered.callers
    known.delete(session_id)
    if (known.size >= rememberAtMost) known.delete(known.keys().next().value!)
    const read = callersOf(db, session_id)
    known.set(session_id, { callers: read, until: Date.now() + rememberMs })
    read.catch(() => known.delete(session_id))
    return read
  }

  /** In the transaction of the call with the declaration. Replaces the caller's previous declaration. */
  async function declare(
    trx: Db,
    session_id: string,
    declared_by: string,
    declaration: Declaration,
  ): Promise<void> {
    const names = new Set(declaration.tools.map((tool) => nameOf(declaration.caller_id, tool.name)))
    let bytes = bytesOf(declaration.tools)
    for (const caller of await callersOf(trx, session_id)) {
      if (caller.caller_id === declaration.caller_id) {
        if (caller.declared_by !== declared_by)
          throw new Fault(
            'conflict',
            `caller_id "${caller.caller_id}" of this session was declared with another token`,
            { hint: 'choose another caller_id' },
          )
        continue
      }
      bytes += bytesOf(caller.tools)
      if (bytes > sessionBytes)
        throw new Fault(
          'exhausted',
          `the tools that callers offer to this session are larger than ${sessionBytes} bytes`,
          { hint: 'declare fewer tools, or tools with smaller schemas' },
        )
      // `a_b` with `c` and `a` with `b_c` are the same name.
      const clash = offers(caller).find(({ name }) => names.has(name))
      if (clash)
        throw new Fault(
          'conflict',
          `the tool name "${clash.name}" is already offered by caller "${caller.caller_id}"`,
        )
    }
    await saveCaller(trx, { session_id, declared_by, ...declaration })
  }

  async function offered(session_id: string): Promise<Offered[]> {
    return (await callers(session_id)).flatMap(offers)
  }

  /** By its full name, or by its name without the caller_id if that is unambiguous. */
  async function find(session_id: string, name: string): Promise<Offered> {
    const all = await offered(session_id)
    const exact = all.find((offer) => offer.name === name)
    const bare = all.filter((offer) => offer.tool.name === name)
    const found = exact ?? (bare.length === 1 ? bare[0] : undefined)
    if (found) return found
    throw new Fault('not_found', `no caller tool "${name}"`, {
      hint:
        all.length > 0
          ? `available tools: ${all.map((offer) => offer.name).join(', ')}`
          : 'no caller offers tools to this session',
    })
  }

  async function checkArguments(project_id: string, { tool, name }: Offered, args: unknown): Promise<void> {
    let wrong: string | undefined
    try {
      wrong = await deps.schema.validate(project_id, tool.inputSchema, args)
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      throw new Fault(error.kind, `inputSchema of ${name}: ${error.message}`, {
        cause: error,
        ...(error.hint ? { hint: error.hint } : {}),
      })
    }
    if (wrong) throw new Fault('invalid', `${name}: ${wrong}`)
  }

  return {
    check: (declaration: Declaration, project_id: string) =>
      checkDeclaration(declaration, project_id, deps.schema),
    declare,
    /** After the commit of a declaration. */
    changed: (session_id: string) => void known.delete(session_id),
    offered,
    find,
    /** Who answers the requests of a caller's tools: who declared them first in the session. */
    async declaredBy(session_id: string, caller_id: string): Promise<string | undefined> {
      return (await callers(session_id)).find((caller) => caller.caller_id === caller_id)?.declared_by
    },
    checkArguments,
  }
}
export type CallerTools = ReturnType<typeof createCallerTools>
