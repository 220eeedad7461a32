// Ending a command and everything it started. The engine cannot do that: it forgets an exec's processes when its client
// goes. So each command carries a mark in its environment, which its children inherit wherever they move themselves,
// and a second exec looks for the mark.
import type Docker from 'dockerode'

export const mark = 'OUBLIETTE_EXEC'

// Only the shell's own words, because at the process limit nothing can be forked. All are stopped before any is killed,
// or a fork bomb would grow as fast as it is cut. A process without the mark still belongs if its parent or its session
// does. Twice nothing found is the end: in the middle of an exec a process has no environment.
const script = `
mark=$1 quiet=0 round=0 sessions=' '
while [ $quiet -lt 2 ]; do
  round=$((round + 1))
  if [ $round -gt 60 ]; then exit 1; fi
  victims=' ' moving= table=
  for dir in /proc/[0-9]*; do
    pid=\${dir#/proc/}
    if [ "$pid" = 1 ] || [ "$pid" = $$ ]; then continue; fi
    { read -r line < "$dir/stat"; } 2>/dev/null || continue
    set -- \${line##*) }
    state=$1 parent=$2 session=$4 found=
    case $state in Z | X) continue ;; esac
    case $sessions in *" $session "*) found=1 ;; esac
    if [ -z "$found" ]; then
      { while IFS= read -r line || [ -n "$line" ]; do
          case $line in *"$mark"*) found=1; break ;; esac
        done < "$dir/environ"; } 2>/dev/null
    fi
    if [ -n "$found" ]; then
      victims="$victims$pid "
      if [ "$session" -gt 1 ]; then sessions="$sessions$session "; fi
      case $state in T | t) ;; *) moving="$moving $pid" ;; esac
    else
      table="$table $pid:$parent:$state"
    fi
  done
  grown=1
  while [ -n "$grown" ]; do
    grown= left=
    for row in $table; do
      pid=\${row%%:*} rest=\${row#*:}
      case $victims in
        *" \${rest%%:*} "*)
          victims="$victims$pid " grown=1
          case \${rest#*:} in T | t) ;; *) moving="$moving $pid" ;; esac ;;
        *) left="$left $row" ;;
      esac
    done
    table=$left
  done
  if [ "$victims" = ' ' ]; then quiet=$((quiet + 1)); continue; fi
  quiet=0
  if [ -n "$moving" ] && [ $round -lt 40 ]; then kill -STOP $moving 2>/dev/null
  else kill -KILL $victims 2>/dev/null; fi
done
exit 0
`

const attempts = 3
const attempt_ms = 5_000

/** Whether nothing with this mark is left; false when the container would not even run the shell for it. */
export async function killMarked(container: Docker.Container, token: string): Promise<boolean> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    const exec = await container.exec({
      Cmd: ['/bin/sh', '-c', script, 'sh', `${mark}=${token}`],
      AttachStdout: true,
      AttachStderr: true,
    })
    const stream = await exec.start({ hijack: true })
    const ended = new Promise<void>((resolve) => {
      stream.once('close', () => resolve())
      stream.on('error', () => resolve())
    })
    stream.resume()
    const timer = setTimeout(() => stream.destroy(), attempt_ms)
    await ended
    clearTimeout(timer)
    if ((await exec.inspect()).ExitCode === 0) return true
  }
  return false
}
