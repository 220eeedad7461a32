// Whether a value fits a JSON schema, by the validator that the MCP SDK brings along. Compiled schemas are remembered.
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv'
import type { SchemaCheck } from '../manager/caller-tools.ts'

const rememberAtMost = 1000

export function createSchemaCheck(): SchemaCheck {
  const ajv = new AjvJsonSchemaValidator()
  const compiled = new Map<string, (value: unknown) => string | undefined>()
  return (schema) => {
    const key = JSON.stringify(schema)
    const known = compiled.get(key)
    if (known) return known
    const validate = ajv.getValidator(schema as never)
    const check = (value: unknown) => {
      const { valid, errorMessage } = validate(value)
      return valid ? undefined : (errorMessage ?? 'the arguments do not fit its schema')
    }
    if (compiled.size >= rememberAtMost) compiled.delete(compiled.keys().next().value!)
    compiled.set(key, check)
    return check
  }
}
