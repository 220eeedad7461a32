// Checks the answer of a person against what was asked: which scope a kind can be remembered for, and the content of an
// elicitation against the schema that its server requested.
import { Fault } from '../../fault.ts'
import type { ApprovalRow } from '../../store/rows/approvals.ts'
import type { SchemaCheck } from '../caller/tools.ts'
import type { Answer } from './approval.ts'

const contentBytes = 64 * 1024

/** Checks of one schema wait only for those of the same project. */
export const tenantOf = ({ project_id }: { project_id: string | null }): string => project_id ?? 'global'

export async function checkAnswer(schema: SchemaCheck, asked: ApprovalRow, answer: Answer): Promise<void> {
  const { decision, content, scope = 'once' } = answer
  if (scope !== 'once' && asked.kind !== 'tool')
    throw new Fault(
      'invalid',
      `scope "${scope}" applies to approvals of kind tool; this one is of kind ${asked.kind}`,
    )
  if (content !== undefined && (asked.kind !== 'elicitation' || decision === 'deny'))
    throw new Fault('invalid', 'content is the answer to an elicitation that is allowed')
  if (decision === 'deny') return
  if (asked.kind === 'consent')
    throw new Fault('conflict', `approval ${asked.id} is allowed by giving the consent at its URL`, {
      hint: `open ${String(asked.detail.url)}; deny it to decline`,
    })
  if (asked.kind === 'elicitation') await checkContent(schema, asked, content)
}

async function checkContent(
  schema: SchemaCheck,
  asked: ApprovalRow,
  content: Record<string, unknown> | undefined,
): Promise<void> {
  if (asked.detail.mode === 'url') {
    if (content === undefined) return
    throw new Fault('invalid', `approval ${asked.id} is answered at its URL and takes no content`)
  }
  const hint = `the schema is ${JSON.stringify(asked.detail.requested_schema).slice(0, 2_000)}`
  if (content === undefined)
    throw new Fault('invalid', `approval ${asked.id} needs content: the server asks for input`, { hint })
  if (JSON.stringify(content).length > contentBytes)
    throw new Fault('invalid', `content is larger than ${contentBytes} bytes`)
  const wrong = await schema.validate(
    tenantOf(asked),
    asked.detail.requested_schema as Record<string, unknown>,
    content,
  )
  if (wrong) throw new Fault('invalid', `content: ${wrong}`, { hint })
}
