/** Whether this process runs as root: only then can it change owners, the firewall and quotas. */
export const isRoot = (): boolean => process.getuid?.() === 0
