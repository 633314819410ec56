#!/bin/busybox sh
# Pid 1 of the guest: the host's root filesystem, read-only by 9p, under a writable layer in memory.
set -e
busybox=/bin/busybox
$busybox mount -t proc proc /proc
$busybox mount -t devtmpfs dev /dev
while read -r module; do
    $busybox insmod "/modules/$module"
done < /modules/order

$busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=1048576 host /host
$busybox mount -t tmpfs -o size=1g tmpfs /writable
$busybox mkdir /writable/upper /writable/work
$busybox mount -t overlay -o lowerdir=/host,upperdir=/writable/upper,workdir=/writable/work overlay /root

$busybox mount -t proc proc /root/proc
$busybox mount -t sysfs sysfs /root/sys
$busybox mount -t devtmpfs dev /root/dev
$busybox mkdir -p /root/dev/pts /root/dev/shm
$busybox mount -t devpts devpts /root/dev/pts
$busybox mount -t tmpfs tmpfs /root/dev/shm
$busybox mount -t tmpfs tmpfs /root/run
$busybox ip link set lo up
$busybox hostname vm

# A disk of its own, scheduled by bfq so that io weights mean something, for what the tests write.
echo bfq > /root/sys/block/vda/queue/scheduler
$busybox chroot /root /sbin/mkfs.ext4 -q /dev/vda
$busybox mkdir /root/scratch
$busybox mount -t ext4 /dev/vda /root/scratch
$busybox chmod 1777 /root/scratch

$busybox cp $busybox /job /root/run
exec $busybox switch_root /root /bin/sh /run/job
