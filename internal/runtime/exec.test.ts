import { describe, expect, it } from 'vitest'
import { refusal } from './exec.ts'

const said = (reason: string) =>
  `OCI runtime exec failed: exec failed: unable to start container process: ${reason}\r\n`

describe('a command that the engine did not start', () => {
  it('is 127 when there is no such program and 126 when it cannot be run, as in a shell', () => {
    expect(refusal(126, said('exec: "x": executable file not found in $PATH: unknown'), '')).toMatchObject({
      exit_code: 127,
      text: expect.stringContaining('"x": executable file not found'),
    })
    expect(refusal(126, said('exec: "/x": stat /x: no such file or directory: unknown'), '')?.exit_code).toBe(
      127,
    )
    expect(refusal(126, said('exec: "/etc/passwd": permission denied: unknown'), '')?.exit_code).toBe(126)
  })

  it('is an invalid request when its directory does not exist', () => {
    const directory = refusal(
      126,
      said('chdir to cwd ("/nope") set in config.json failed: no such file or directory'),
      '',
    )
    expect(directory?.fault).toMatchObject({
      kind: 'invalid',
      message: expect.stringMatching(/^working_dir: .*\/nope/),
    })
  })

  it('is not one that ran and ended with the same code', () => {
    expect(refusal(126, 'permission denied', '')).toBeUndefined()
    expect(refusal(0, said('exec: "x": executable file not found'), '')).toBeUndefined()
    expect(refusal(127, '', 'bash: x: command not found')).toBeUndefined()
  })
})
