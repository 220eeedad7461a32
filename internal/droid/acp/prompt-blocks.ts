// A turn as the agent is given it: the text, and each file as a link, or as an image where the agent takes images.
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { ContentBlock } from '@agentclientprotocol/sdk'
import type { DroidTurn } from '../droid.ts'

export function promptBlocks(turn: DroidTurn, images: boolean): ContentBlock[] {
  return [
    { type: 'text', text: turn.text },
    ...turn.files.map(({ path, media_type }): ContentBlock => {
      if (images && media_type?.startsWith('image/'))
        return { type: 'image', mimeType: media_type, data: readFileSync(path).toString('base64') }
      return {
        type: 'resource_link',
        name: basename(path),
        uri: pathToFileURL(path).href,
        ...(media_type ? { mimeType: media_type } : {}),
      }
    }),
  ]
}
