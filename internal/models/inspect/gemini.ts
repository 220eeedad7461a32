// Google's generateContent and embeddings. It takes every field in two spellings.
import { Fault } from '../../fault.ts'
import {
  checkTier,
  countMedia,
  type Finding,
  keepTool,
  refused,
  requireAllowed,
  type ToolKind,
} from './finding.ts'
import { isObject, type Json, listOf, numberIn, objectsOf } from './json.ts'
import type { Wanted } from './openai.ts'

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
const camel = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

/** In the one spelling or the other; both at once would mean different things to different readers. */
function field(holder: Json, name: string): unknown {
  const other = snake(name)
  if (other === name) return holder[name]
  if (holder[name] !== undefined && holder[other] !== undefined)
    throw new Fault('invalid', `${name} is given twice`)
  return holder[name] ?? holder[other]
}

const kinds: Record<string, ToolKind> = {
  functionDeclarations: 'client',
  computerUse: 'client',
  googleSearch: 'web_search',
  googleSearchRetrieval: 'web_search',
  enterpriseWebSearch: 'web_search',
  googleMaps: 'web_search',
  urlContext: 'web_fetch',
  codeExecution: 'code_execution',
  fileSearch: 'file_search',
  retrieval: 'file_search',
  mcpServers: 'mcp',
}

function checkTools(body: Json, finding: Finding): void {
  if (body.tools === undefined || body.tools === null) return
  const kept = objectsOf(body.tools).filter((tool) => {
    for (const name of Object.keys(tool)) {
      const kind = Object.hasOwn(kinds, camel(name)) ? kinds[camel(name)] : undefined
      if (!keepTool(finding, kind, name)) delete tool[name]
    }
    return Object.keys(tool).length > 0
  })
  body.tools = kept
  if (kept.length > 0) return
  delete body.tools
  delete body.toolConfig
  delete body.tool_config
}

function checkParts(finding: Finding, content: unknown): void {
  if (!isObject(content)) return
  for (const part of objectsOf(content.parts)) {
    const file = field(part, 'fileData')
    if (isObject(file)) {
      requireAllowed(finding, 'urls', 'fileData')
      countMedia(finding, 'files', undefined)
    }
    const inline = field(part, 'inlineData')
    if (isObject(inline)) {
      const type = String(field(inline, 'mimeType'))
      countMedia(finding, type.startsWith('image/') ? 'images' : 'files', inline.data)
    }
    // What a function answered is data, but may carry parts of its own.
    const answered = field(part, 'functionResponse')
    if (isObject(answered)) checkParts(finding, answered)
  }
}

function refuseStored(body: Json): void {
  if (field(body, 'cachedContent')) throw refused('cachedContent')
  // The model is the one of the path.
  if (body.model !== undefined) delete body.model
}

export function checkGenerate(body: Json, finding: Finding): Wanted {
  refuseStored(body)
  checkTools(body, finding)
  checkTier(body, 'serviceTier', 'service_tier')
  for (const content of objectsOf(body.contents)) checkParts(finding, content)
  checkParts(finding, field(body, 'systemInstruction'))
  const given = field(body, 'generationConfig')
  const config = isObject(given) ? given : {}
  const modalities = listOf(field(config, 'responseModalities')).filter((it) => it !== 'TEXT')
  if (modalities.length > 0)
    requireAllowed(finding, 'image_generation', `modality "${String(modalities[0]).slice(0, 50)}"`)
  const either = (name: string) => numberIn({ [name]: field(config, name) }, name)
  return { output: either('maxOutputTokens'), answers: Math.max(1, either('candidateCount') ?? 1) }
}

/** What it counts may be wrapped in a request of its own. */
export function checkCount(body: Json, finding: Finding): Wanted {
  const inner = field(body, 'generateContentRequest')
  if (isObject(inner)) checkGenerate({ ...inner }, finding)
  return checkGenerate(body, finding)
}

export function checkEmbed(body: Json, finding: Finding): Wanted {
  checkParts(finding, body.content)
  for (const request of objectsOf(body.requests)) checkParts(finding, request.content)
  return { output: 0, answers: 1 }
}
