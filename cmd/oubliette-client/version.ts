// Reported by `--version` and in each hello.
import manifest from '../../package.json' with { type: 'json' }

export const version: string = manifest.version
