// Agents on the machine of a developer, each from its npm package, use the server with their own MCP client. Slow, and
// more than a gigabyte of packages: `./oubliette test --clients`.
import { afterAll, describe } from 'vitest'
import { agentClients, model_key } from '../../fixtures/clients/agents.ts'
import { installClients } from '../../fixtures/clients/packages.ts'
import { scenario, thorough } from '../../fixtures/clients/scenario.ts'
import { type ScriptedModel, startScriptedModel } from '../../models/scripted-model.ts'

let model: ScriptedModel
const only = process.env.OUBLIETTE_TEST_CLIENT
const cases = agentClients(() => model).filter(({ name }) => only === undefined || name.includes(only))

describe.runIf(thorough)('agents', () => {
  afterAll(async () => await model?.[Symbol.asyncDispose]())
  scenario(cases, async () => {
    await installClients('all')
    model = await startScriptedModel(model_key)
  })
})
