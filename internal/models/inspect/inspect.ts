// Inspects a request before it is sent to a provider: its maximum cost, and what it makes the provider do. It is sent as it was
// parsed here, serialized again, so that the provider cannot interpret it differently.
import { createHash } from 'node:crypto'
import type { HostedTool } from '../../config/models.ts'
import { Fault } from '../../fault.ts'
import { checkMessages, messagesAnswers, messagesOutput } from './anthropic.ts'
import { checkConverse, checkInvoke } from './bedrock.ts'
import { createFinding, type Finding } from './finding.ts'
import { checkCount, checkEmbed, checkGenerate } from './gemini.ts'
import { isObject, type Json, parseObject } from './json.ts'
import { checkChat, checkCompletions, checkEmbeddings, checkResponses, type Wanted } from './openai.ts'

const endpoints = [
  'messages',
  'chat',
  'completions',
  'embeddings',
  'responses',
  'generate',
  'count',
  'embed',
  'converse',
  'invoke',
  'count_bedrock',
] as const
export type Endpoint = (typeof endpoints)[number]

export type Inspection = {
  body: Buffer
  /** As the body names it; some providers have it in the path. */
  model: string | undefined
  /** Bytes of text: no tokenizer makes more tokens than bytes. */
  text_bytes: number
  images: number
  files: number
  hosted: number
  /** It may write to a cache that is kept for an hour, which costs more. */
  long_cache: boolean
  /** Output tokens of one answer, if the request sets a maximum. */
  output: number | undefined
  answers: number
  removed: string[]
  sha256: string | undefined
}
export type Inspect = { endpoint: Endpoint; allowed: readonly HostedTool[]; hash: boolean }

const checks: Record<Endpoint, (body: Json, finding: Finding) => Wanted> = {
  messages: (body, finding) => {
    checkMessages(body, finding)
    return { output: messagesOutput(body), answers: messagesAnswers(body, finding) }
  },
  chat: checkChat,
  completions: checkCompletions,
  embeddings: checkEmbeddings,
  responses: checkResponses,
  generate: checkGenerate,
  count: checkCount,
  embed: checkEmbed,
  converse: checkConverse,
  invoke: checkInvoke,
  count_bedrock: (body, finding) => {
    const input = isObject(body.input) ? body.input : {}
    return checkConverse(isObject(input.converse) ? input.converse : {}, finding)
  },
}

/** It is looked up, logged and stored. */
function modelOf({ model }: Json): string | undefined {
  if (model === undefined || model === null) return undefined
  if (typeof model !== 'string' || !/^[\x20-\x7e]{1,300}$/.test(model))
    throw new Fault('invalid', 'model is not a valid model name')
  return model
}

/** Throws `invalid` for what cannot be understood and `forbidden` for what is not allowed. */
export function inspect(bytes: Buffer, { endpoint, allowed, hash }: Inspect): Inspection {
  const request = parseObject(bytes)
  const finding = createFinding(allowed)
  const { output, answers } = checks[endpoint](request, finding)
  const body = Buffer.from(JSON.stringify(request))
  return {
    body,
    model: modelOf(request),
    text_bytes: Math.max(0, body.length - finding.media_bytes),
    images: finding.images,
    files: finding.files,
    hosted: finding.hosted,
    // We wrote this text ourselves, so there is one spelling of it.
    long_cache: body.includes('"1h"'),
    output,
    answers,
    removed: finding.removed,
    sha256: hash ? createHash('sha256').update(body).digest('hex') : undefined,
  }
}
