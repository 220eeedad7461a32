// The systemd unit of a server. Hardened as far as the server allows: as root it mounts directories that the engine has to see,
// so nothing may give it a mount namespace of its own; Node needs memory that is writable and executable; and directories that
// containers enter need the default umask.
export type UnitOptions = {
  checkout: string
  home: string
  address: string | undefined
  /** Of a system unit; undefined is root. */
  account: string | undefined
  /** A unit of the service manager of one user. */
  is_user: boolean
  /** The time in which the server stops by itself. */
  stop_seconds: number
}

/** Beyond the time in which the server exits by itself, so that it is never killed while it closes its database. */
const marginSeconds = 20

/** A value of an assignment: `%` is a specifier and `$` a variable for systemd. */
const escaped = (text: string) => text.replaceAll('%', '%%').replaceAll('\\', '\\\\').replaceAll('"', '\\"')
const word = (text: string) => `"${escaped(text)}"`

/** These need neither privileges nor a mount namespace. */
const always = [
  'NoNewPrivileges=yes',
  'LockPersonality=yes',
  'RestrictRealtime=yes',
  'RestrictSUIDSGID=yes',
  'SystemCallArchitectures=native',
  'RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK',
]
/** For a server without root, which mounts nothing. */
const unprivileged = [
  'CapabilityBoundingSet=',
  'ProtectSystem=full',
  'ProtectKernelTunables=yes',
  'ProtectKernelModules=yes',
  'ProtectKernelLogs=yes',
  'ProtectControlGroups=yes',
  'ProtectClock=yes',
  'ProtectHostname=yes',
]

export function renderUnit(options: UnitOptions): string {
  const { checkout, home, address, account, is_user, stop_seconds } = options
  const isUnprivileged = !is_user && account !== undefined
  return `# Written by "./oubliette service install". Settings and secrets of the environment belong into the EnvironmentFile.
[Unit]
Description=Oubliette, a control plane for AI agents in containers
Wants=network-online.target
After=network-online.target${is_user ? '' : ' docker.service'}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
ExecStart=${word(`${checkout}/oubliette`).replaceAll('$', '$$$$')} serve
WorkingDirectory=${escaped(checkout)}
Environment=${word(`OUBLIETTE_HOME=${home}`)}
${address ? `Environment=${word(`OUBLIETTE_ADDRESS=${address}`)}\n` : ''}EnvironmentFile=-${is_user ? '%h/.config/oubliette/environment' : '/etc/oubliette/environment'}
${account ? `User=${account}\nSupplementaryGroups=docker\n` : ''}Restart=on-failure
RestartSec=2
# Only the server is signalled: containers and a database that survive it are used again by the next one.
KillMode=process
TimeoutStopSec=${stop_seconds + marginSeconds}
LimitNOFILE=65536
${[...always, ...(isUnprivileged ? unprivileged : [])].join('\n')}

[Install]
WantedBy=${is_user ? 'default.target' : 'multi-user.target'}
`
}
