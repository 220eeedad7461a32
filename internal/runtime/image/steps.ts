// How far a build is, from the lines that it prints. Pure.
import type { BuildReport } from '../runtime.ts'

const instruction =
  /^(ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR)\s/i

/** The builder adds a step for each label; see `build.ts`. */
const labels = 2

/** The steps of a Dockerfile as the builder counts them, for the time before it says so. */
export function stepsIn(dockerfile: string): number {
  const lines = dockerfile.split('\n').map((line) => line.trim())
  let continued = false
  let steps = labels
  for (const line of lines) {
    if (line === '' || line.startsWith('#')) continue
    if (!continued && instruction.test(line)) steps += 1
    continued = line.endsWith('\\')
  }
  return steps
}

/** `Step 4/9 : RUN …`, the line with which the builder begins a step. */
export function stepOf(line: string): { step: number; of: number } | undefined {
  const found = /^Step (\d{1,6})\/(\d{1,6}) : /.exec(line)
  return found ? { step: Number(found[1]), of: Number(found[2]) } : undefined
}

/** A root file system takes about as long as this many steps. */
const rootfsSteps = 10

type Phase = { begins: RegExp; name: string; done: number }
/** In order. mmdebstrap and debootstrap print these lines; `done` of `rootfsSteps`. */
const phases: Phase[] = [
  { begins: /^I: (running apt-get update|Retrieving (In)?Release)/, name: 'reading package lists', done: 1 },
  {
    begins: /^I: (downloading packages|Retrieving (?!(In)?Release))/,
    name: 'downloading packages',
    done: 2,
  },
  { begins: /^I: [Ee]xtracting /, name: 'extracting packages', done: 4 },
  { begins: /^I: (installing |Unpacking |Configuring )/, name: 'installing packages', done: 6 },
  { begins: /^I: (cleaning |creating tarball|Base system installed)/, name: 'creating the image', done: 9 },
]

/** Follows the lines of a base image: a pull, or a root file system that is built locally. */
export function createBaseSteps(reference: string): (line: string) => BuildReport {
  let at: { name: string; done: number } = { name: '', done: 0 }
  return (line) => {
    // A program may return to an earlier phase for some packages.
    const next = phases.find(({ begins, done }) => done > at.done && begins.test(line))
    if (next) at = next
    const step =
      at.name === '' ? `fetching base image ${reference}` : `building base image ${reference}: ${at.name}`
    return { line, step, done: at.done, total: rootfsSteps }
  }
}

/** 100 is left to the end of the build. */
export const percentOf = ({ done, total }: Pick<BuildReport, 'done' | 'total'>): number =>
  Math.max(0, Math.min(99, Math.floor((100 * done) / Math.max(1, total))))
