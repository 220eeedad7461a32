// `./oubliette docs`: writes the documents that are generated from declarations.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { renderDocs } from '../../../internal/tools/docs.ts'
import { type Command, checkout, options } from '../command.ts'

export const docs: Command = {
  about: 'Regenerate docs/tools.md and docs/configuration.md',
  usage: '',
  examples: ['./oubliette docs'],
  async run(args) {
    options(args, {})
    for (const [path, text] of Object.entries(renderDocs(tools))) {
      writeFileSync(join(checkout, path), text)
      process.stdout.write(`${path}\n`)
    }
    return 0
  },
}
