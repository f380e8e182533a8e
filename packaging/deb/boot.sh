#!/bin/sh
# Becomes the systemd of the Debian in the folder $1, in namespaces that the caller has made: mounts, processes, network, cgroups.
set -eu

cd "$1"
mount --make-rprivate /
mount --bind . .
cd "$1"
# What these set of the kernel is of the whole machine, and no namespace keeps it from there.
for unit in systemd-sysctl systemd-binfmt systemd-modules-load systemd-udevd; do
	ln -sf /dev/null "etc/systemd/system/$unit.service"
done
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net # of this network namespace alone
mount -o remount,bind,ro proc/sys
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/net dev/pts dev/shm
for name in null zero random urandom full tty net/tun; do
	touch "dev/$name"
	mount --bind "/dev/$name" "dev/$name"
done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir -p mnt/old
[ -s etc/machine-id ] || echo 0123456789abcdef0123456789abcdef >etc/machine-id
pivot_root . mnt/old
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	sh -c 'umount -l /mnt/old; exec /lib/systemd/systemd --log-target=journal multi-user.target' </dev/null >/dev/null 2>&1
