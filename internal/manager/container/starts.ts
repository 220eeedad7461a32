// Starts of containers that are under way: what they are doing, who waits for them, and when the build of an image is
// cancelled. A build is cancelled when the last session that waited for it has left and no other caller waits.
import { Fault } from '../../fault.ts'

/** Steps that have no percentage. */
export const startingContainer = 'starting container'
export const cloningRepository = 'cloning repository'

/** What is done for a container before its sessions can start. */
export type Step = { step: string; percent?: number }
export type Progress = (step: Step) => void

export const stepText = ({ step, percent }: Step): string =>
  percent === undefined ? step : `${step} (${percent}%)`

/** Nothing failed: the start was not needed any more. */
export class Abandoned extends Fault {
  constructor() {
    super('conflict', 'the start was cancelled, because nothing waits for the container any more')
  }
}

/** Where the steps are written for the sessions that wait. */
export type SessionSteps = {
  report(project_id: string, step: Step): void
  /** Resolves when everything that was reported is written or dropped. */
  end(project_id: string): Promise<void>
}

export function createStarts(sessions: SessionSteps) {
  const running = new Set<string>()
  const latest = new Map<string, Step>()
  const followers = new Map<string, Set<Progress>>()
  const waiting = new Map<string, number>()
  const builds = new Map<string, AbortController>()
  let closed = false

  function follow(project_id: string, progress: Progress | undefined): () => void {
    if (!progress) return () => undefined
    const all = followers.get(project_id) ?? new Set()
    // Of its own: a caller may pass the same function twice.
    const mine: Progress = (step) => progress(step)
    followers.set(project_id, all.add(mine))
    const step = latest.get(project_id)
    if (step) mine(step)
    return () => {
      all.delete(mine)
      if (all.size === 0) followers.delete(project_id)
    }
  }

  return {
    /** Cancels all builds. Rows say what is wanted, so the next server builds on. */
    close(): void {
      closed = true
      for (const build of builds.values())
        build.abort(new Fault('unavailable', 'the server is stopping', { hint: 'try again' }))
    },
    isClosed: (): boolean => closed,
    isRunning: (project_id: string): boolean => running.has(project_id),
    isBuilding: (project_id: string): boolean => builds.has(project_id),
    begin: (project_id: string): void => void running.add(project_id),
    report(project_id: string, step: Step): void {
      latest.set(project_id, step)
      sessions.report(project_id, step)
      for (const follower of followers.get(project_id) ?? []) follower(step)
    },
    async end(project_id: string): Promise<void> {
      running.delete(project_id)
      latest.delete(project_id)
      await sessions.end(project_id)
    },
    /** Runs a build that is cancelled when nothing waits for the container any more. */
    async build<T>(
      project_id: string,
      signal: AbortSignal,
      work: (signal: AbortSignal) => Promise<T>,
    ): Promise<T> {
      const abandon = new AbortController()
      const either = AbortSignal.any([signal, abandon.signal])
      builds.set(project_id, abandon)
      try {
        return await work(either)
      } catch (error) {
        // The reason of the cancellation, not what it did to the build.
        either.throwIfAborted()
        throw error
      } finally {
        builds.delete(project_id)
      }
    },
    /**
     * Waits for a start. A caller whose signal is aborted leaves; if it was the last one, `abandoned` is called and a build is
     * cancelled.
     */
    async wait<T>(
      project_id: string,
      work: Promise<T>,
      options: { signal?: AbortSignal | undefined; progress?: Progress | undefined; abandoned: () => void },
    ): Promise<T> {
      const { signal } = options
      const left = Promise.withResolvers<never>()
      const leave = () => left.reject(signal!.reason)
      waiting.set(project_id, (waiting.get(project_id) ?? 0) + 1)
      const unfollow = follow(project_id, options.progress)
      signal?.addEventListener('abort', leave, { once: true })
      if (signal?.aborted) leave()
      try {
        return await Promise.race([work, left.promise])
      } finally {
        signal?.removeEventListener('abort', leave)
        unfollow()
        const others = waiting.get(project_id)! - 1
        if (others > 0) waiting.set(project_id, others)
        else waiting.delete(project_id)
        if (others === 0 && signal?.aborted) {
          options.abandoned()
          // Whoever runs it: the reconciler may have begun it before these callers came.
          builds.get(project_id)?.abort(new Abandoned())
        }
      }
    },
  }
}
