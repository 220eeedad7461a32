// Writes the attachments of a prompt into the workspace before the turn begins. Their names are untrusted: every part that
// could lead to another directory is removed.
import { mkdirSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { DroidTurn } from '../../../../internal/droid/droid.ts'
import type { Turn } from '../../../../internal/protocol/messages.ts'

export function placeAttachments(turn: Turn, workspace_dir: string): DroidTurn['files'] {
  if (!turn.attachments?.length) return []
  const directory = join(workspace_dir, 'attachments', turn.turn_id.replaceAll(/[^\w-]/g, '_'))
  mkdirSync(directory, { recursive: true })
  return turn.attachments.map((it, index) => {
    const plain = basename(it.name).replaceAll(/[\0/]/g, '_')
    const path = join(directory, plain === '' || plain === '.' || plain === '..' ? `file-${index}` : plain)
    writeFileSync(path, Buffer.from(it.data, it.encoding))
    return { path, media_type: it.media_type }
  })
}
