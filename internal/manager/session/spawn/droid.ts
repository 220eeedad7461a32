// Which droid a session gets, and what is refused before anything is built or started for it: an unknown droid, a missing model
// key, a missing model, a setting that its agent does not support, a container type that does not contain it.
import { agentNames, setUpAgent } from '../../../agents/agents.ts'
import type { Config, Credential } from '../../../config/load.ts'
import type { DroidConfig } from '../../../config/models.ts'
import { Fault } from '../../../fault.ts'
import type { Runtime } from '../../../runtime/runtime.ts'
import type { ProjectWithContainer } from '../../../store/rows/projects.ts'
import { providerOf } from '../../model/model-use.ts'

type Settings = {
  model?: string | undefined
  reasoning_level?: string | undefined
  autonomy_level?: Config['default_autonomy'] | undefined
  tools_allowed?: string[] | undefined
  tools_disallowed?: string[] | undefined
}

export type DroidChoiceDeps = {
  config: Config
  credentials: ReadonlyMap<string, Credential>
  runtime: Pick<Runtime, 'basesOf'>
}

export function createDroidChoice(deps: DroidChoiceDeps) {
  const { config, runtime } = deps

  function droidOf(project: ProjectWithContainer, wanted: string | undefined): string {
    const name = wanted ?? project.droid ?? config.default_droid
    if (name !== 'shell' && !Object.hasOwn(config.droids, name))
      throw new Fault('invalid', `no droid "${name}"`, {
        hint: `droids are ${['shell', ...Object.keys(config.droids)].join(', ')}`,
      })
    return name
  }

  /** Throws the fault that the start of the agent would end with. */
  function requireSettings(project: ProjectWithContainer, droid: DroidConfig, name: string, given: Settings) {
    const provider = providerOf(deps, project, name)
    const model = given.model ?? project.model ?? undefined
    if (droid.agent === undefined) return
    setUpAgent(droid.agent, {
      ...(provider ? { provider: { name: provider, url: '', key: '' } } : {}),
      ...(model === undefined ? {} : { model }),
      ...(given.reasoning_level === undefined ? {} : { reasoning_level: given.reasoning_level }),
      tools_allowed: given.tools_allowed ?? [],
      tools_disallowed: given.tools_disallowed ?? [],
      autonomy: given.autonomy_level ?? config.default_autonomy,
      directory: '',
      home: '',
    })
  }

  /** Only what is known: other images and container types may contain any program. */
  async function requireType(project: ProjectWithContainer, { image }: DroidConfig, name: string) {
    const { container_type } = project
    if (image === undefined || project.image !== null || container_type === image) return
    const [of_droid, of_project] = await Promise.all([
      runtime.basesOf(image),
      runtime.basesOf(container_type),
    ])
    if (!of_droid || !of_project || of_project.includes(image)) return
    const has_another = (agentNames as string[]).includes(container_type)
    if (!of_droid.includes(container_type) && !has_another) return
    throw new Fault(
      'invalid',
      `container type "${container_type}" of project "${project.name}" does not contain droid "${name}"`,
      {
        hint: `set container_type "${image}" with project update, and run container start with recreate; or use a project that was created with droid "${name}"`,
      },
    )
  }

  return {
    droidOf,
    async require(project: ProjectWithContainer, name: string, given: Settings): Promise<void> {
      const droid = config.droids[name]
      if (!droid) return
      requireSettings(project, droid, name, given)
      await requireType(project, droid, name)
    },
  }
}
