#!/bin/bash
# The peer of `webserv-rt bench reset wordpress --strategy cold`: the same reset by the tools that every
# system has. Per round: kill the running copy, lay a new one (overlay, reflink copy of the database,
# new namespaces), start the same three services together, wait for the first 200 of `/`.
#
# usage: cold-reset.sh BASE WORK ROUNDS
#   BASE    the root filesystem as `setup.sh` left it
#   WORK    a directory on the same reflink filesystem as BASE; made if missing
# Prints one JSON object per round: {"ready_ms": milliseconds from the kill to the first 200}.
#
# What can be taken off the timed path is: the mounts live in the instance's own mount namespace and go
# with it, the overlay is volatile (no sync at unmount), and the old layers are deleted after the clock stops.
set -euo pipefail

services() {
    cd /
    setpriv --reuid=mysql --regid=mysql --clear-groups \
        /usr/sbin/mariadbd --defaults-file=/etc/mysql/site.cnf &
    /usr/local/sbin/php-fpm --nodaemonize --force-stderr --fpm-config /etc/php/site-fpm.conf &
    /usr/sbin/nginx -e stderr -c /etc/nginx/site.conf &
    wait
}

# Runs as pid 1 of the new namespaces.
inside() {
    local base=$1 layers=$2 merged=$2/merged
    mount -t overlay overlay -o "lowerdir=$base,upperdir=$layers/upper,workdir=$layers/work,volatile" "$merged"
    mount --bind "$layers/mysql" "$merged/var/lib/mysql"
    mount --bind /dev "$merged/dev"
    mount -t proc proc "$merged/proc"
    ip link set lo up
    hostname wordpress
    cd "$merged"
    pivot_root . mnt
    exec chroot . /bin/bash -c "umount -l /mnt; $(declare -f services); services"
}

# Runs in the network namespace of the instance.
poll() {
    local status
    while true; do
        if { exec 3<>/dev/tcp/127.0.0.1/80; } 2>/dev/null; then
            printf 'GET / HTTP/1.0\r\nHost: wordpress.test\r\n\r\n' >&3
            read -r _ status _ <&3 || status=
            exec 3>&-
            [ "$status" != 200 ] || return 0
        fi
        sleep 0.002
    done
}

# Killing pid 1 of the namespace kills all of it; unshare(1) returns once the last process is gone.
end_instance() {
    [ -n "$unshare_pid" ] || return 0
    kill -KILL "$first_pid" 2>/dev/null || true
    wait "$unshare_pid" 2>/dev/null || true
    unshare_pid=
}

# One reset; sets `ready_us`, and `unshare_pid` and `first_pid` for end_instance.
reset() {
    local base=$1 layers=$2 begin
    begin=${EPOCHREALTIME/./}
    end_instance
    mkdir -p "$layers/upper" "$layers/work" "$layers/merged"
    cp -a --reflink=always "$base/var/lib/mysql" "$layers/mysql"
    unshare --mount --pid --net --ipc --uts --fork --kill-child \
        "$self" inside "$base" "$layers" >"$layers/log" 2>&1 &
    unshare_pid=$!
    first_pid=
    until [ -n "$first_pid" ]; do
        kill -0 "$unshare_pid" || return 1
        read -r first_pid _ 2>/dev/null <"/proc/$unshare_pid/task/$unshare_pid/children" || true
    done
    if ! timeout 60 nsenter --target "$first_pid" --net "$self" poll; then
        tail -n 20 "$layers/log" >&2
        return 1
    fi
    ready_us=$((${EPOCHREALTIME/./} - begin))
}

main() {
    local base work rounds=$3 round
    base=$(realpath "$1")
    mkdir -p "$2"
    work=$(realpath "$2")
    unshare_pid=
    trap end_instance EXIT
    for ((round = 0; round <= rounds; round++)); do
        rm -rf --one-file-system "${work:?}/$round"
        reset "$base" "$work/$round"
        # round 0 has nothing to kill and fills the page cache
        [ "$round" -eq 0 ] || printf '{"ready_ms": %d.%03d}\n' $((ready_us / 1000)) $((ready_us % 1000))
        rm -rf --one-file-system "$work/$((round - 1))"
    done
    end_instance
    rm -rf --one-file-system "${work:?}/$rounds"
}

self=$(realpath "$0")
case ${1-} in
inside) inside "$2" "$3" ;;
poll) poll ;;
*)
    [ $# -eq 3 ] || { echo "usage: $0 BASE WORK ROUNDS" >&2; exit 2; }
    main "$@"
    ;;
esac
