// The thread that compiles schemas and checks values with ajv. Anything in here may take for ever: `check.ts` ends the
// thread then. Each schema has a validator of its own.
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv'
import { type Outcome, serveJobs } from '../../event-loop/worker-thread.ts'

/** Both are JSON text, which costs the sender less than a copy of the value. Without `value`: only whether the schema can be used. */
export type SchemaJob = { schema: string; value?: string }

type Validate = ReturnType<AjvJsonSchemaValidator['getValidator']>

const rememberCharacters = 2 * 1024 * 1024
const longestProblem = 1_000
const compiled = new Map<string, Validate>()
let characters = 0

function validatorOf(text: string): Validate {
  const known = compiled.get(text)
  if (known) return known
  const validate = new AjvJsonSchemaValidator().getValidator(JSON.parse(text))
  compiled.set(text, validate)
  characters += text.length
  for (const [oldest] of compiled) {
    if (characters <= rememberCharacters && compiled.size <= 200) break
    compiled.delete(oldest)
    characters -= oldest.length
  }
  return validate
}

function answer({ schema, value }: SchemaJob): Outcome {
  let validate: Validate
  try {
    validate = validatorOf(schema)
  } catch (error) {
    return { problem: (error as Error).message.slice(0, longestProblem) }
  }
  if (value === undefined) return { value: undefined }
  const { valid, errorMessage = 'the value does not match the schema' } = validate(JSON.parse(value))
  return { value: valid ? undefined : errorMessage.slice(0, longestProblem) }
}

serveJobs(answer)
