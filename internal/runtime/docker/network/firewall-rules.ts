// The rules that keep project networks away from the host, from private networks and from each other, as one script that
// can be run again at any time. No step leaves a moment without rules: chains are filled in one transaction each, and
// hooked up after they are filled.
//
//   INPUT           -i oub+      -j REJECT           no port of the host, by any of its addresses
//   DOCKER-USER     -i oub+      -j OUBLIETTE        in the table `filter`, where a refusal can be answered
//   FORWARD         -i oub+      -j OUBLIETTE        in the table `security`, where it can only be dropped
//
//   OUBLIETTE       -i oubo1234+ -g OUBLIETTE-1234   one for each server that has exceptions, by the names of its bridges
//                                -g OUBLIETTE-PRIVATE
//   OUBLIETTE-1234               exceptions, never for other bridges, RETURN to the caller of OUBLIETTE;
//                                -g OUBLIETTE-PRIVATE
//   OUBLIETTE-PRIVATE            from internal bridges and to other bridges everything is refused; DNS servers of the
//                                host RETURN; what is not the internet is refused
//
// Both tables, because the engine takes its jumps to DOCKER-USER and to its own isolation away for some milliseconds
// whenever it makes a network: a container that keeps trying gets through. It does not touch the table `security`, which
// comes after `filter`. No rule accepts: what passes here still meets the engine's own rules.

/** What is not the internet, by IANA's registry of special-purpose addresses. */
const privateRanges = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/4',
  '240.0.0.0/4',
]

export type Exceptions = {
  /** What the names of this server's open bridges begin with; see `docker/names.ts`. */
  open_bridges: string
  allowed_networks: string[]
  dns_servers: string[]
}

/** The last line that the script prints when all rules are set. */
export const rulesAreSet = 'rules-are-set'

export function ruleScript({ open_bridges, allowed_networks, dns_servers }: Exceptions): string {
  const own = `OUBLIETTE-${open_bridges.replace(/^oubo/, '')}`
  const exceptions = [
    ...allowed_networks.map((range) => `-A ${own} -d ${range} -j RETURN`),
    ...dns_servers.flatMap((address) =>
      ['udp', 'tcp'].map((protocol) => `-A ${own} -d ${address} -p ${protocol} --dport 53 -j RETURN`),
    ),
  ]
  const lenient = exceptions.length > 0
  return `
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# The two kinds of iptables keep separate tables: the right one is the one in which the engine made its chain.
tables=
for candidate in iptables iptables-nft iptables-legacy; do
  command -v "$candidate" >/dev/null 2>&1 || continue
  if "$candidate" -w 5 -n -L DOCKER-USER >/dev/null 2>&1; then tables=$candidate; break; fi
done
if [ -z "$tables" ]; then echo "no iptables here shows the engine's chain DOCKER-USER" >&2; exit 1; fi
set -e
quiet() { "$@" >/dev/null 2>&1; }
insert() { quiet "$1" -w 5 -t "$2" -C $3 || "$1" -w 5 -t "$2" -I $3; }
# Not every kernel has it. The other one comes before \`filter\`: the same is refused, without an answer.
second=security
quiet "$tables" -w 5 -t security -n -L FORWARD || second=mangle

# Containers on bridges ask the DNS servers of the engine's host from their own network. Those on loopback are asked by
# the engine itself, from the host.
resolvers=$(cat /etc/resolv.conf /run/systemd/resolve/resolv.conf 2>/dev/null |
  sed -n 's/^[[:space:]]*nameserver[[:space:]]\\{1,\\}\\([0-9.]\\{7,15\\}\\)\\([[:space:]].*\\)\\{0,1\\}$/\\1/p' |
  grep -v '^127\\.' | sort -u)

rules() {
  echo "*$1"
  echo ':OUBLIETTE-REJECT - [0:0]'
  echo ':OUBLIETTE-PRIVATE - [0:0]'
${lenient ? `  echo ':${own} - [0:0]'` : ''}
  if [ "$1" = filter ]; then
    # The kernel sends few ICMP errors per second, and who gets none waits.
    echo '-A OUBLIETTE-REJECT -p tcp -j REJECT --reject-with tcp-reset'
    echo '-A OUBLIETTE-REJECT -j REJECT'
  else
    echo '-A OUBLIETTE-REJECT -j DROP'
  fi
  # From one bridge to the same one: not routed, and seen here only where the kernel shows bridged packets.
  if [ -n "$2" ]; then echo '-A OUBLIETTE-PRIVATE -o oub+ -m physdev --physdev-is-bridged -j RETURN'; fi
  echo '-A OUBLIETTE-PRIVATE -i oubi+ -g OUBLIETTE-REJECT'
  echo '-A OUBLIETTE-PRIVATE -o oub+ -g OUBLIETTE-REJECT'
  for resolver in $resolvers; do
    for protocol in udp tcp; do
      echo "-A OUBLIETTE-PRIVATE -d $resolver -p $protocol --dport 53 -j RETURN"
    done
  done
  for range in ${privateRanges.join(' ')}; do
    echo "-A OUBLIETTE-PRIVATE -d $range -g OUBLIETTE-REJECT"
  done
  cat <<'EXCEPTIONS'
${lenient ? [`-A ${own} -o oub+ -g OUBLIETTE-PRIVATE`, ...exceptions, `-A ${own} -g OUBLIETTE-PRIVATE`].join('\n') : ''}
COMMIT
EXCEPTIONS
}

for table in filter $second; do
  rules "$table" bridged | quiet "$tables-restore" -w 5 --noflush || rules "$table" '' | "$tables-restore" -w 5 --noflush
  quiet "$tables" -w 5 -t "$table" -N OUBLIETTE || quiet "$tables" -w 5 -t "$table" -n -L OUBLIETTE
  quiet "$tables" -w 5 -t "$table" -C OUBLIETTE -g OUBLIETTE-PRIVATE ||
    "$tables" -w 5 -t "$table" -A OUBLIETTE -g OUBLIETTE-PRIVATE
${
  lenient
    ? `  insert "$tables" "$table" 'OUBLIETTE -i ${open_bridges}+ -g ${own}'`
    : `  while quiet "$tables" -w 5 -t "$table" -D OUBLIETTE -i ${open_bridges}+ -g ${own}; do :; done
  quiet "$tables" -w 5 -t "$table" -F ${own} && quiet "$tables" -w 5 -t "$table" -X ${own} || :`
}
done
insert "$tables" "$second" 'FORWARD -i oub+ -j OUBLIETTE'
insert "$tables" filter 'DOCKER-USER -i oub+ -j OUBLIETTE'
insert "$tables" filter 'INPUT -i oub+ -j REJECT'
insert "$tables" filter 'INPUT -i oub+ -p tcp -j REJECT --reject-with tcp-reset'
# A rule of an earlier release, which would come before the exceptions.
while quiet "$tables" -w 5 -D DOCKER-USER -i oub+ -d 169.254.0.0/16 -j REJECT; do :; done

# Project networks have no IPv6, but the host's end of a bridge has a link-local address.
six=ip6\${tables#ip}
if [ -e /proc/net/if_inet6 ] && quiet "$six" -w 5 -n -L INPUT; then
  insert "$six" filter 'INPUT -i oub+ -j REJECT'
  insert "$six" filter 'FORWARD -i oub+ -j REJECT'
fi
echo ${rulesAreSet}
`
}
