// Projects: create, list, update, delete. A project is a row; its directories are created with it, its container when it is
// needed. A delete marks the row first and can be repeated from any point, so that the sweep finishes it after a crash.
import { createHash } from 'node:crypto'
import { rm } from 'node:fs/promises'
import type { Caller } from '../../auth/caller.ts'
import { formatScope } from '../../auth/scope.ts'
import type { Limits } from '../../config/limits.ts'
import type { Config, Credential } from '../../config/load.ts'
import { requireSet } from '../../config/models.ts'
import { Fault, unknown } from '../../fault.ts'
import { defaultWorkspace, newProjectId } from '../../ids.ts'
import type { KeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import { brokenRule } from '../../store/errors.ts'
import type { Db, Store } from '../../store/open.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import * as rows from '../../store/rows/projects.ts'
import { projectUsage, sessionById, treeUsage } from '../../store/rows/session/sessions.ts'
import { insertWorkspace } from '../../store/rows/workspaces.ts'
import { shownDisk } from '../disk/limit.ts'
import type { Directories } from '../workspace/directories.ts'
import type { Layout } from '../workspace/layout.ts'
import {
  changeableBy,
  type ProjectChange,
  parseGrant,
  requireMayChange,
  requireMayGrant,
} from './boundaries.ts'
import { checkRemote } from './git-use.ts'
import type { ProjectNames } from './names.ts'
import { requireProject } from './require.ts'

export type ProjectFields = Partial<ProjectChange> & {
  name: string
  remote_url?: string | null
  init_git?: boolean
}

export type ProjectsDeps = {
  store: Store
  runtime: Runtime
  config: Config
  credentials: ReadonlyMap<string, Credential>
  layout: Layout
  directories: Directories
  serial: KeyedQueue
  log: Log
  projectNames: Pick<ProjectNames, 'forget'>
  /** Writes a change of the grant if sessions and schedules allow it. */
  regrant: (project_id: string, grant: string | null, write: (trx: Db) => Promise<void>) => Promise<void>
  /** Projects whose remote is not cloned yet. */
  preparing: Set<string>
  /** Called after a change of what bounds a project or its droids. */
  onUpdate: (project_id: string) => Promise<void>
  /** Called before a project is removed. */
  beforeDelete: ((project_id: string) => Promise<void>)[]
  afterDelete: (() => void)[]
}

export const effectiveLimits = (config: Config, project: { limits: Partial<Limits> }): Limits => ({
  ...config.limits,
  ...project.limits,
})

const nameTaken = (name: string, hint: string, cause: unknown) =>
  new Fault('conflict', `a project named "${name}" already exists`, { hint, cause })

export function createProjects(deps: ProjectsDeps) {
  const { store, config, layout, runtime } = deps
  const { db } = store

  function shown(row: rows.ProjectWithContainer) {
    return {
      project_id: row.id,
      name: row.name,
      description: row.description,
      container_type: row.container_type,
      image: row.image,
      droid: row.droid ?? config.default_droid,
      model: row.model,
      remote_url: row.remote_url,
      init_git: row.init_git,
      workspace_isolation: row.workspace_isolation,
      protected_paths: row.protected_paths,
      network: row.network,
      limits: effectiveLimits(config, row),
      disabled_tools: row.disabled_tools,
      mcp_servers: row.mcp_servers,
      credential_refs: row.credential_refs,
      api_scope_grant: row.api_scope_grant,
      default_workspace_id: defaultWorkspace,
      default_workspace: { state: row.workspace_state, prepare_error: row.workspace_error },
      container: {
        wanted: row.wanted,
        status: row.container_status,
        reason: row.container_reason,
        container_id: row.container_id,
      },
      disk: shownDisk(config, row),
      created_at: row.created_at,
      created_by: row.created_by,
      updated_at: row.updated_at,
    }
  }

  const require = (project_id: string) => requireProject(db, project_id)

  async function check(fields: Partial<ProjectFields>): Promise<void> {
    if (fields.droid && fields.droid !== 'shell' && !Object.hasOwn(config.droids, fields.droid))
      throw new Fault('invalid', `no droid "${fields.droid}"`, {
        hint: `droids are ${['shell', ...Object.keys(config.droids)].join(', ')}`,
      })
    for (const name of fields.credential_refs ?? []) {
      const credential = deps.credentials.get(name)
      if (!credential)
        throw new Fault('invalid', `no credential "${name}"`, {
          hint: 'credentials are defined in the config of the server',
        })
      requireSet(name, credential)
    }
    if (fields.container_type !== undefined) {
      const types = (await runtime.images()).map((image) => image.type)
      if (!types.includes(fields.container_type))
        throw new Fault('invalid', `no container type "${fields.container_type}"`, {
          hint: `types are ${types.join(', ')}`,
        })
    }
    if (fields.remote_url)
      checkRemote(
        {
          remote_url: fields.remote_url,
          network: fields.network ?? 'open',
          credential_refs: fields.credential_refs ?? [],
        },
        deps.credentials,
      )
  }

  /** The grant as it is stored. */
  async function grantIn(
    grant: string | null | undefined,
    project_id?: string,
  ): Promise<string | null | undefined> {
    if (typeof grant !== 'string') return grant
    const scope = parseGrant(grant, project_id)
    if (scope.kind === 'project') await require(scope.project_id)
    return formatScope(scope)
  }

  /** The container type that has the droid, or the default one. */
  async function typeFor(droid: string): Promise<string> {
    const wanted = config.droids[droid]?.image
    const known = wanted !== undefined && (await runtime.images()).some(({ type }) => type === wanted)
    return known ? wanted : config.default_container_type
  }

  async function create(caller: Caller, fields: ProjectFields & { idempotency_key?: string }) {
    const { idempotency_key = null, ...rest } = fields
    const hash = createHash('sha256')
      .update(JSON.stringify(Object.entries(rest).sort()))
      .digest('hex')
    if (idempotency_key !== null) {
      const before = await rows.projectByIdempotencyKey(db, caller.id, idempotency_key)
      if (before && !before.deleting_at) return repeat(before, hash)
    }
    const settled = {
      ...fields,
      network: fields.network ?? 'open',
      container_type: fields.container_type ?? (await typeFor(fields.droid ?? config.default_droid)),
    }
    await check(settled)
    requireMayGrant(caller, null, fields.api_scope_grant)
    const api_scope_grant = (await grantIn(fields.api_scope_grant)) ?? null
    const id = newProjectId()
    const at = new Date().toISOString()
    try {
      await store.transact(async (trx) => {
        await rows.insertProject(
          trx,
          {
            id,
            name: fields.name,
            description: fields.description ?? '',
            container_type: settled.container_type,
            image: fields.image ?? null,
            droid: fields.droid ?? null,
            model: fields.model ?? null,
            remote_url: fields.remote_url ?? null,
            init_git: fields.init_git ?? true,
            workspace_isolation: fields.workspace_isolation ?? false,
            protected_paths: JSON.stringify(fields.protected_paths ?? []),
            network: settled.network,
            limits: JSON.stringify(fields.limits ?? {}),
            disabled_tools: JSON.stringify(fields.disabled_tools ?? []),
            mcp_servers: JSON.stringify(fields.mcp_servers ?? []),
            credential_refs: JSON.stringify(fields.credential_refs ?? []),
            api_scope_grant,
            created_by: caller.id,
            idempotency_key,
            idempotency_hash: idempotency_key === null ? null : hash,
            created_at: at,
            updated_at: at,
          },
          // The clone needs the container; after a crash the reconciler starts it.
          fields.remote_url ? 'running' : 'stopped',
        )
        await insertWorkspace(trx, {
          project_id: id,
          id: defaultWorkspace,
          is_default: true,
          created_by: caller.id,
          state: fields.remote_url ? 'preparing' : 'pending',
        })
      })
      if (fields.remote_url) deps.preparing.add(id)
    } catch (error) {
      const before =
        idempotency_key === null
          ? undefined
          : await rows.projectByIdempotencyKey(db, caller.id, idempotency_key)
      if (before && !before.deleting_at) return repeat(before, hash)
      if (error instanceof Fault && error.kind === 'conflict')
        throw nameTaken(fields.name, 'use it by its name, or choose another name', error)
      throw error
    }
    // After the row: a directory without a row would be moved aside as an orphan.
    await deps.serial(id, async () => {
      await require(id)
      await deps.directories.ensureProject(id)
      await deps.directories.ensureWorkspace(id, defaultWorkspace)
    })
    return shown(await require(id))
  }

  function repeat(before: rows.ProjectWithContainer, hash: string) {
    if (before.idempotency_hash === hash) return shown(before)
    throw new Fault('conflict', 'this idempotency_key was already used for a different request', {
      hint: 'use a new key for a new request',
    })
  }

  async function update(caller: Caller, project_id: string, given: Partial<ProjectChange>) {
    const row = await require(project_id)
    const change = { ...given, api_scope_grant: await grantIn(given.api_scope_grant, project_id) }
    const checked = {
      ...change,
      network: change.network ?? row.network,
      // Only if the change could make them contradict each other.
      ...(change.network !== undefined || change.credential_refs !== undefined
        ? { remote_url: row.remote_url, credential_refs: change.credential_refs ?? row.credential_refs }
        : {}),
    }
    const { protected_paths, limits, disabled_tools, mcp_servers, credential_refs, ...plain } = change
    const permit = (before: rows.ProjectRow) =>
      requireMayChange(caller, { ...before, limits: effectiveLimits(config, before) }, change)
    permit(row)
    await check(checked)
    const write = async (trx: Db) => {
      const before = await rows.lockProject(trx, project_id)
      if (!before || before.deleting_at) throw unknown('project', project_id)
      // Again: the row may have changed since the first check.
      permit(before)
      await rows.updateProject(trx, project_id, {
        ...plain,
        ...(protected_paths && { protected_paths: JSON.stringify(protected_paths) }),
        ...(limits && { limits: JSON.stringify({ ...before.limits, ...limits }) }),
        ...(disabled_tools && { disabled_tools: JSON.stringify(disabled_tools) }),
        ...(mcp_servers && { mcp_servers: JSON.stringify(mcp_servers) }),
        ...(credential_refs && { credential_refs: JSON.stringify(credential_refs) }),
      })
    }
    const grant = change.api_scope_grant
    try {
      if (grant !== undefined && grant !== row.api_scope_grant) await deps.regrant(project_id, grant, write)
      else await store.transact(write)
    } catch (error) {
      if (error instanceof Fault && error.kind === 'conflict' && brokenRule(error) === 'projects_name')
        throw nameTaken(change.name!, 'choose another name', error)
      throw error
    } finally {
      if (change.name !== undefined) deps.projectNames.forget(project_id)
    }
    if (change.network ?? disabled_tools ?? mcp_servers) await deps.onUpdate(project_id)
    return shown(await require(project_id))
  }

  /** Safe to repeat from any point; what is already removed is not an error. */
  async function remove(
    project_id: string,
  ): Promise<{ project_id: string; deleted: true; existed: boolean }> {
    const row = await rows.projectById(db, project_id)
    if (row) await rows.markDeleting(db, project_id)
    // A start may be cloning for minutes, which is of no use now.
    deps.serial.interrupt(project_id, new Fault('conflict', `project ${project_id} is being deleted`))
    return await deps.serial(project_id, async () => {
      for (const hook of deps.beforeDelete) await hook(project_id)
      await runtime.remove(project_id)
      await rm(layout.socketDir(project_id), { recursive: true, force: true })
      await deps.directories.discardProject(project_id)
      // With all events of its sessions.
      await store.transact(async (trx) => await rows.deleteProjectRows(trx, project_id), { long: true })
      deps.preparing.delete(project_id)
      deps.projectNames.forget(project_id)
      for (const hook of deps.afterDelete) hook()
      return { project_id, deleted: true, existed: row !== undefined }
    })
  }

  /** The effective limits of a project, and how much of them it and the tree of a session use. */
  async function limits(project_id: string, session_id?: string) {
    const effective = effectiveLimits(config, await require(project_id))
    const { sessions, active, spawned_last_minute, ...tokens } = await projectUsage(db, project_id)
    const used = { sessions, active_sessions: active, spawns_last_minute: spawned_last_minute, ...tokens }
    const shared = { project_id, limits: effective, used, changeable: changeableBy() }
    if (!session_id) return { ...shared, session: null }
    const row = await sessionById(db, session_id)
    if (row?.project_id !== project_id) throw unknown('session', session_id)
    const tree = await treeUsage(db, row.root_session_id)
    return {
      ...shared,
      session: { session_id, depth: row.depth, root_session_id: row.root_session_id, tree },
    }
  }

  async function list(filter: { name_contains?: string; only_id?: string } & PageRequest) {
    const { items, next_cursor } = await rows.listProjects(db, filter)
    return { projects: items.map(shown), next_cursor }
  }

  return {
    create,
    list,
    limits,
    update,
    remove,
    require,
    get: async (project_id: string) => shown(await require(project_id)),
    grantOf: async (project_id: string) => await rows.grantOf(db, project_id),
  }
}
export type Projects = ReturnType<typeof createProjects>
