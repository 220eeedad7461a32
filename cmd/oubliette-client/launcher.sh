#!/bin/sh
# So that a shell finds the client by name: it stands next to the bundle and, in mounted containers, next to a node. A
# droid's MCP server is the bridge, if the supervisor serves MCP and there is a bash.
case $0 in
*/*) here=${0%/*} ;;
*) here=. ;;
esac
if [ "$1" = mcp ] && [ -n "$OUBLIETTE_MCP_PORT" ]; then
  for bash in /bin/bash /usr/bin/bash; do
    if [ -x "$bash" ]; then exec "$bash" -p "$here/mcp-bridge"; fi
  done
fi
node=node
if [ -x "$here/node" ]; then node="$here/node"; fi
exec "$node" "$here/client.mjs" "$@"
