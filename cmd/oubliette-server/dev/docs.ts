// `./oubliette docs`: writes the documents that are generated from declarations.
import { writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { renderDocs } from '../../../internal/tools/docs.ts'
import { type Command, checkout, options } from '../command.ts'
import { describeCommands, overviewFile } from '../commands.ts'
import { manifestFile } from '../tool-command/manifest.ts'
import { manifestText } from './manifest.ts'

/** One line per command, so that changes can be reviewed. Reads the manifest. */
export async function overviewText(): Promise<string> {
  const parts = Object.entries(await describeCommands()).map(
    ([name, entries]) =>
      `  ${JSON.stringify(name)}: [\n${entries.map((entry) => `    ${JSON.stringify(entry)}`).join(',\n')}\n  ]`,
  )
  return `{\n${parts.join(',\n')}\n}\n`
}

export const docs: Command = {
  about: 'Regenerate the documents and the files of the command line that come from declarations',
  usage: '',
  examples: ['./oubliette docs'],
  async run(args) {
    options(args, {})
    const files: Record<string, string> = {
      ...renderDocs(tools),
      [relative(checkout, manifestFile)]: manifestText(tools),
    }
    writeFileSync(manifestFile, files[relative(checkout, manifestFile)]!)
    files[relative(checkout, overviewFile)] = await overviewText()
    for (const [path, text] of Object.entries(files)) {
      writeFileSync(join(checkout, path), text)
      process.stdout.write(`${path}\n`)
    }
    return 0
  },
}
