# Runs as pid 1 on the guest's final root: mounts the cgroup hierarchies, then runs the tests.
v1() {
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in memory cpu cpuacct pids blkio freezer; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
    done
}

case @LAYOUT@ in
v2) mount -t cgroup2 cgroup2 /sys/fs/cgroup ;;
v1) v1 ;;
hybrid)
    v1
    mkdir /sys/fs/cgroup/unified
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
    ;;
esac
@COMMAND@ > /dev/ttyS1 2>&1 < /dev/null
echo "@MARK@$?" > /dev/ttyS1
/run/busybox poweroff -f
