#!/bin/sh
# Where the container may write its v2 control groups, the server goes into one below the top: a group that holds processes
# gives no limits to those below it (cgroups(7)), and runs would have none of memory and processes.
set -eu
groups=/sys/fs/cgroup
if [ -w "$groups/cgroup.procs" ] && mkdir -p "$groups/server" 2>/dev/null; then
    # Helpers of `docker exec` may be there too; one that is gone meanwhile cannot be moved.
    while read -r process; do
        echo "$process" >"$groups/server/cgroup.procs" 2>/dev/null || true
    done <"$groups/cgroup.procs"
fi
exec sandtimer serve "$@"
