// Sets up git in new workspaces, in the container itself: clones the remote into the default one, runs `git init` in others.
import { Fault, messageOf } from '../../fault.ts'
import { defaultWorkspace } from '../../ids.ts'
import type { Log } from '../../log.ts'
import type { Store } from '../../store/open.ts'
import type { ProjectWithContainer } from '../../store/rows/projects.ts'
import * as rows from '../../store/rows/workspaces.ts'
import { cloningRepository, type Progress } from '../container/starts.ts'
import type { SupervisorOf } from '../exec/supervised.ts'
import { containerPaths } from './layout.ts'

const initSeconds = 60

type Deps = {
  store: Store
  /** Projects whose remote is not cloned yet: no droid starts in them before. */
  preparing: Set<string>
  supervisorOf: SupervisorOf
  /** Clones the remote in the project's container; returns the error message, or null. */
  clone: (project_id: string, remote_url: string, signal: AbortSignal | undefined) => Promise<string | null>
  log: Log
}

export function createPreparation({ store, preparing, supervisorOf, clone, log }: Deps) {
  const { db } = store

  /** An image without git (exit code 127) is not an error. */
  async function init(
    project_id: string,
    id: string,
    signal: AbortSignal | undefined,
  ): Promise<string | null> {
    const link = await supervisorOf(project_id, signal)
    const command = {
      command: ['git', 'init', '--quiet', '--initial-branch=main'],
      working_dir: `${containerPaths.workspaces}/${id}`,
      timeout_seconds: initSeconds,
      output_bytes: 16_384,
    }
    const { exit_code, stderr } = await link.send('exec', command, { signal })
    if (exit_code === 0 || exit_code === 127) return null
    return `git: ${stderr.trim().split('\n').at(-1) ?? `exit code ${exit_code}`}`
  }

  async function prepareOne(
    project: ProjectWithContainer,
    id: string,
    progress: Progress,
    signal: AbortSignal | undefined,
  ): Promise<string | null> {
    if (id === defaultWorkspace && project.remote_url) {
      progress({ step: cloningRepository })
      return await clone(project.id, project.remote_url, signal)
    }
    return project.init_git ? await init(project.id, id, signal) : null
  }

  /**
   * Sets up git in every workspace that is not prepared yet. A failure is written to the row and retried at the next start;
   * an interruption because the server or the container ends is thrown, and the row stays `preparing`.
   */
  async function prepare(
    project: ProjectWithContainer,
    progress: Progress,
    signal?: AbortSignal,
  ): Promise<void> {
    for (const { id } of await rows.unpreparedWorkspaces(db, project.id)) {
      signal?.throwIfAborted()
      if (id === defaultWorkspace && project.remote_url) preparing.add(project.id)
      await rows.saveState(db, project.id, id, { state: 'preparing' })
      const error = await prepareOne(project, id, progress, signal).catch((thrown: unknown) => {
        if (thrown instanceof Fault && thrown.kind === 'unavailable') throw thrown
        signal?.throwIfAborted()
        return messageOf(thrown)
      })
      if (error) log.warn('failed to prepare workspace', { project_id: project.id, workspace_id: id, error })
      await rows.saveState(db, project.id, id, error ? { state: 'failed', error } : { state: 'ready' })
    }
    preparing.delete(project.id)
  }

  /** Its workspaces will not be prepared: the container cannot be started, or was stopped on request. */
  async function unprepared(project_id: string, error?: string): Promise<void> {
    await rows.endPreparing(
      db,
      project_id,
      error === undefined ? { state: 'pending' } : { state: 'failed', error },
    )
    preparing.delete(project_id)
  }

  return { prepare, unprepared }
}
