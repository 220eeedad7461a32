// `./oubliette docs`: writes the documents that are generated from declarations.
import { writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { renderDocs } from '../../../internal/tools/docs.ts'
import { type Command, checkout, options } from '../command.ts'
import { manifestFile } from '../tool-command/manifest.ts'
import { manifestText } from './manifest.ts'

export const docs: Command = {
  about: 'Regenerate docs/tools.md, docs/configuration.md and the manifest of the command line',
  usage: '',
  examples: ['./oubliette docs'],
  async run(args) {
    options(args, {})
    const files = { ...renderDocs(tools), [relative(checkout, manifestFile)]: manifestText(tools) }
    for (const [path, text] of Object.entries(files)) {
      writeFileSync(join(checkout, path), text)
      process.stdout.write(`${path}\n`)
    }
    return 0
  },
}
