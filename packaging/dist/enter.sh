#!/bin/sh
# enter.sh ROOT COMMAND...: executes the command with ROOT as the root of this mount namespace. With chroot the command
# could not make user namespaces.
set -eu
root=$1
shift
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
cd "$root"
pivot_root . mnt
cd /
umount -l /mnt
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
