// OpenAI's chat completions, completions, embeddings and responses, and all that speak the same: OpenRouter and servers of
// one's own.
import { Fault } from '../../fault.ts'
import {
  checkTier,
  countAddress,
  countMedia,
  type Finding,
  keepTool,
  refused,
  refuseFields,
  requireAllowed,
  type ToolKind,
} from './finding.ts'
import { flagIn, isGiven, isObject, type Json, listOf, numberIn, objectsOf } from './json.ts'

const tools: [RegExp, ToolKind][] = [
  [/^(?:function|custom|namespace|local_shell|apply_patch|tool_search)$/, 'client'],
  // The client runs these; what it saw comes back in the next request.
  [/^computer(?:_use|_use_preview)?$/, 'client'],
  [/^web_search(?:_preview)?(?:_\d{4}_\d{2}_\d{2})?$/, 'web_search'],
  [/^openrouter:web_search$/, 'web_search'],
  [/^openrouter:web_fetch$/, 'web_fetch'],
  [/^openrouter:/, 'never'],
  [/^file_search$/, 'file_search'],
  [/^code_interpreter$/, 'code_execution'],
  [/^mcp$/, 'mcp'],
  [/^(?:openrouter:)?image_generation$/, 'image_generation'],
]

function toolKind(tool: Json): ToolKind {
  const type = String(tool.type)
  // Runs in a container of the provider, unless it is declared local.
  if (type === 'shell')
    return isObject(tool.environment) && tool.environment.type === 'local' ? 'client' : 'code_execution'
  return tools.find(([pattern]) => pattern.test(type))?.[1]
}

function keptTools(finding: Finding, given: unknown): Json[] {
  return objectsOf(given).filter((tool) => {
    if (!keepTool(finding, toolKind(tool), String(tool.type))) return false
    if (tool.type === 'namespace') tool.tools = keptTools(finding, tool.tools)
    return true
  })
}

function checkChoice(body: Json, finding: Finding, left: number): void {
  const choice = body.tool_choice
  const gone = (it: unknown) => isObject(it) && finding.removed.includes(String(it.type))
  if (left === 0) {
    delete body.tools
    delete body.tool_choice
    delete body.parallel_tool_calls
  } else if (gone(choice)) delete body.tool_choice
  else if (isObject(choice) && Array.isArray(choice.tools))
    choice.tools = choice.tools.filter((it) => !gone(it))
}

function checkTools(body: Json, finding: Finding): void {
  if (body.tools === undefined || body.tools === null) return
  const kept = keptTools(finding, body.tools)
  body.tools = kept
  checkChoice(body, finding, kept.length)
}

const addressOf = (value: unknown): unknown => (isObject(value) ? value.url : value)

function checkPart(finding: Finding, part: Json): void {
  countAddress(finding, 'images', addressOf(part.image_url), 'image by URL')
  countAddress(finding, 'files', addressOf(part.file_url), 'file by URL')
  countAddress(finding, 'files', addressOf(part.video_url), 'video by URL')
  countAddress(finding, 'files', addressOf(part.audio_url), 'audio by URL')
  const file = isObject(part.file) ? part.file : part
  if (file.file_id !== undefined && file.file_id !== null) {
    requireAllowed(finding, 'files', 'file by id')
    countMedia(finding, 'files', undefined)
  }
  if (typeof file.file_data === 'string')
    if (/^[A-Za-z0-9+/=\s]*$/.test(file.file_data.slice(0, 4096)))
      countMedia(finding, 'files', file.file_data)
    else countAddress(finding, 'files', file.file_data, 'file by URL')
  for (const media of [part.input_audio, part.input_video])
    if (isObject(media)) countMedia(finding, 'files', media.data)
}

function checkParts(finding: Finding, content: unknown): void {
  for (const part of objectsOf(content)) checkPart(finding, part)
}

/** What OpenRouter adds: other models, the web, and settings that are stored in the account. */
function checkRouting(body: Json, finding: Finding): void {
  if (typeof body.model !== 'string' || body.model === '')
    throw new Fault('invalid', 'the request names no model')
  if (/:online\b/i.test(body.model))
    requireAllowed(finding, 'web_search', `model "${body.model.slice(0, 100)}"`)
  if (/@preset/i.test(body.model)) throw refused(`model "${body.model.slice(0, 100)}"`)
  if (isGiven(body.plugins)) requireAllowed(finding, 'web_search', 'plugins')
  if (isGiven(body.web_search_options)) requireAllowed(finding, 'web_search', 'web_search_options')
  refuseFields(body, 'models', 'preset', 'route', 'fallbacks')
  // OpenRouter reports the cost unless the request disables it.
  if (body.usage !== undefined) body.usage = { include: true }
}

function checkOutput(body: Json, finding: Finding): void {
  const kinds = listOf(body.modalities).filter((it) => it !== 'text')
  if (kinds.length > 0)
    requireAllowed(finding, 'image_generation', `modality "${String(kinds[0]).slice(0, 50)}"`)
  checkTier(body, 'service_tier')
  refuseFields(body, 'prediction')
}

/** A stream reports its tokens only on request. */
function askForUsage(body: Json): void {
  if (!flagIn(body, 'stream')) return
  const given = isObject(body.stream_options) ? body.stream_options : {}
  body.stream_options = { ...given, include_usage: true }
}

export type Wanted = { output: number | undefined; answers: number }

const largest = (...values: (number | undefined)[]): number | undefined => {
  const given = values.filter((it) => it !== undefined)
  return given.length === 0 ? undefined : Math.max(...given)
}

export function checkChat(body: Json, finding: Finding): Wanted {
  checkRouting(body, finding)
  checkOutput(body, finding)
  checkTools(body, finding)
  for (const message of objectsOf(body.messages)) checkParts(finding, message.content)
  askForUsage(body)
  return {
    output: largest(numberIn(body, 'max_tokens'), numberIn(body, 'max_completion_tokens')),
    answers: Math.max(1, numberIn(body, 'n') ?? 1),
  }
}

export function checkCompletions(body: Json, finding: Finding): Wanted {
  checkRouting(body, finding)
  checkOutput(body, finding)
  askForUsage(body)
  // A list of texts, or of lists of tokens, is answered one by one; a list of numbers is one text.
  const prompts = listOf(body.prompt).filter((it) => typeof it !== 'number').length
  const each = Math.max(1, numberIn(body, 'n') ?? 1, numberIn(body, 'best_of') ?? 1)
  return { output: numberIn(body, 'max_tokens'), answers: Math.max(1, prompts) * each }
}

export function checkEmbeddings(body: Json, finding: Finding): Wanted {
  checkRouting(body, finding)
  checkTier(body, 'service_tier')
  for (const input of objectsOf(body.input)) checkParts(finding, input.content)
  checkParts(finding, body.input)
  return { output: 0, answers: 1 }
}

/** Content stored at the provider costs input that is not in this request, and may belong to another project. */
const stored = ['previous_response_id', 'conversation', 'prompt']

export function checkResponses(body: Json, finding: Finding): Wanted {
  checkRouting(body, finding)
  checkOutput(body, finding)
  refuseFields(body, 'background', ...stored)
  checkTools(body, finding)
  flagIn(body, 'stream')
  for (const item of objectsOf(body.input)) {
    if (item.type === 'item_reference') throw refused('item_reference')
    // An item without a type that is only an id is a reference, too.
    if (item.type === undefined && item.role === undefined && item.id !== undefined)
      throw refused('item by id')
    checkPart(finding, item)
    checkParts(finding, item.content)
    checkParts(finding, item.output)
    if (item.tools !== undefined) item.tools = keptTools(finding, item.tools)
  }
  return { output: numberIn(body, 'max_output_tokens'), answers: 1 }
}
