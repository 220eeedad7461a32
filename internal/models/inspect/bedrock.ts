// Bedrock: `converse`, which is Amazon's own shape, and `invoke`, whose body is the model's own.
import { checkMessages, messagesAnswers, messagesOutput } from './anthropic.ts'
import { checkTier, countMedia, type Finding, keepTool, refused, requireAllowed } from './finding.ts'
import { isObject, type Json, numberIn, objectsOf } from './json.ts'
import type { Wanted } from './openai.ts'

const media = { image: 'images', document: 'files', video: 'files', audio: 'files' } as const

function checkBlocks(finding: Finding, content: unknown): void {
  for (const block of objectsOf(content)) {
    for (const [name, kind] of Object.entries(media)) {
      const one = block[name]
      if (!isObject(one) || !isObject(one.source)) continue
      if (one.source.s3Location !== undefined) requireAllowed(finding, 'files', `${name} by s3Location`)
      countMedia(finding, kind, one.source.bytes)
    }
    if (isObject(block.toolResult)) checkBlocks(finding, block.toolResult.content)
  }
}

function checkTools(body: Json, finding: Finding): void {
  const { toolConfig } = body
  if (!isObject(toolConfig)) return
  const kept = objectsOf(toolConfig.tools).filter((tool) => {
    const name = Object.keys(tool)[0] ?? ''
    if (name === 'systemTool') return keepTool(finding, 'web_search', name)
    return keepTool(finding, name === 'toolSpec' || name === 'cachePoint' ? 'client' : undefined, name)
  })
  toolConfig.tools = kept
  if (kept.length === 0) delete body.toolConfig
}

function checkAmazon(body: Json, finding: Finding): void {
  checkTools(body, finding)
  checkBlocks(finding, body.system)
  for (const message of objectsOf(body.messages)) checkBlocks(finding, message.content)
  const { performanceConfig, serviceTier } = body
  if (isObject(performanceConfig) && performanceConfig.latency !== 'standard')
    throw refused('performanceConfig')
  if (isObject(serviceTier)) checkTier(serviceTier, 'type')
  else checkTier(body, 'serviceTier')
}

export function checkConverse(body: Json, finding: Finding): Wanted {
  checkAmazon(body, finding)
  const more = isObject(body.additionalModelRequestFields) ? body.additionalModelRequestFields : {}
  checkMessages(more, finding)
  const config = isObject(body.inferenceConfig) ? body.inferenceConfig : {}
  const asked = numberIn(config, 'maxTokens')
  const thinking = isObject(more.thinking) ? (numberIn(more.thinking, 'budget_tokens') ?? 0) : 0
  const answers = messagesAnswers(more, finding)
  return { output: asked === undefined ? undefined : asked + thinking, answers }
}

export function checkInvoke(body: Json, finding: Finding): Wanted {
  checkMessages(body, finding)
  checkAmazon(body, finding)
  const config = isObject(body.inferenceConfig) ? body.inferenceConfig : {}
  const texts = isObject(body.textGenerationConfig) ? body.textGenerationConfig : {}
  const asked = [
    messagesOutput(body),
    numberIn(body, 'max_gen_len'),
    numberIn(config, 'maxTokens'),
    numberIn(config, 'max_new_tokens'),
    numberIn(texts, 'maxTokenCount'),
  ].filter((it) => it !== undefined)
  const several = Math.max(1, numberIn(body, 'num_generations') ?? 1, numberIn(body, 'numResults') ?? 1)
  const answers = several * messagesAnswers(body, finding)
  return { output: asked.length === 0 ? undefined : Math.max(...asked), answers }
}
