/** Time to close the rooms after the running calls have ended, in addition to `shutdown_seconds`. */
export const closeSeconds = 10
