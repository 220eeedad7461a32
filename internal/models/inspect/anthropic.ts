// Anthropic's Messages, at Anthropic and inside Bedrock's `invoke`.
import {
  checkTier,
  countMedia,
  type Finding,
  keepTool,
  refused,
  refuseFields,
  requireAllowed,
  type ToolKind,
} from './finding.ts'
import { isGiven, isObject, type Json, numberIn, objectsOf } from './json.ts'

const tools: [RegExp, ToolKind][] = [
  [/^custom$/, 'client'],
  [/^(?:bash|text_editor|computer|memory)_\d+$/, 'client'],
  // Runs at the provider, over the definitions of this request only.
  [/^tool_search_tool_(?:regex|bm25)(?:_\d+)?$/, 'client'],
  [/^web_search_\d+$/, 'web_search'],
  [/^web_fetch_\d+$/, 'web_fetch'],
  [/^code_execution_\d+$/, 'code_execution'],
  [/^mcp_toolset$/, 'mcp'],
  // Asks another model.
  [/^advisor_\d+$/, 'never'],
]

function toolKind(tool: Json): ToolKind {
  const { type } = tool
  if (type === undefined || type === null) return 'client'
  return tools.find(([pattern]) => pattern.test(String(type)))?.[1]
}

function checkTools(body: Json, finding: Finding): void {
  if (body.tools === undefined || body.tools === null) return
  const removed = new Set<unknown>()
  const kept = objectsOf(body.tools).filter((tool) => {
    if (keepTool(finding, toolKind(tool), String(tool.type))) return true
    removed.add(tool.name)
    return false
  })
  body.tools = kept
  if (kept.length === 0) delete body.tools
  const choice = body.tool_choice
  if (isObject(choice) && (kept.length === 0 || removed.has(choice.name))) delete body.tool_choice
}

function checkSource(finding: Finding, block: Json): void {
  const { source, type } = block
  if (!isObject(source)) return
  const kind = type === 'image' ? 'images' : 'files'
  if (source.type === 'base64') countMedia(finding, kind, source.data)
  else if (source.type === 'url') {
    requireAllowed(finding, 'urls', `${String(type)} by URL`)
    countMedia(finding, kind, undefined)
  } else if (source.type === 'file') {
    requireAllowed(finding, 'files', `${String(type)} by file id`)
    countMedia(finding, kind, undefined)
  } else if (source.type === 'content') checkContent(finding, source.content)
  // Bedrock's own blocks have the bytes here and no type.
  else if (source.type !== 'text' && source.type !== undefined)
    throw refused(`source type ${JSON.stringify(source.type).slice(0, 100)}`)
}

export function checkContent(finding: Finding, content: unknown): void {
  for (const block of objectsOf(content)) {
    checkSource(finding, block)
    if (block.file_id !== undefined) {
      requireAllowed(finding, 'files', `${String(block.type)} by file id`)
      countMedia(finding, 'files', undefined)
    }
    // The arguments of a tool call are data; what a tool answered is content again.
    if (block.type !== 'tool_use') checkContent(finding, block.content)
  }
}

export function checkMessages(body: Json, finding: Finding): void {
  checkTools(body, finding)
  if (isGiven(body.mcp_servers)) requireAllowed(finding, 'mcp', 'mcp_servers')
  if (isGiven(body.container)) requireAllowed(finding, 'code_execution', 'container')
  checkContent(finding, body.system)
  for (const message of objectsOf(body.messages)) checkContent(finding, message.content)
  checkTier(body, 'service_tier')
  if (body.speed !== 'standard') refuseFields(body, 'speed')
  if (body.inference_geo !== 'global') refuseFields(body, 'inference_geo')
}

/** A summary of what came before is one more answer, and is read and written beside the one that was asked for. */
export function messagesAnswers(body: Json, finding: Finding): number {
  const { context_management } = body
  const edits = isObject(context_management) ? objectsOf(context_management.edits) : []
  if (!edits.some(({ type }) => String(type).startsWith('compact'))) return 1
  finding.hosted += 1
  return 2
}

/** Thinking may come on top of the answer. */
export function messagesOutput(body: Json): number | undefined {
  const asked = numberIn(body, 'max_tokens')
  const thinking = isObject(body.thinking) ? (numberIn(body.thinking, 'budget_tokens') ?? 0) : 0
  return asked === undefined ? undefined : asked + thinking
}
