#!/bin/sh
# In the root, as root: the part of a newcomer, who is an ordinary user, then the archive for /usr/local.
set -eu

for tool in cc gcc clang rustc cargo make; do
    if command -v "$tool"; then
        echo "this root has a compiler or its tools: $tool" >&2
        exit 1
    fi
done
useradd --create-home newcomer
runuser -u newcomer -- env -i PATH="$PATH" HOME=/home/newcomer LANG="$LANG" sh /rehearsal/newcomer.sh

echo "== the archive, as root"
set -x
cd /release
sha256sum --check SHA256SUMS
tar -xzf sandtimer-*-x86_64-linux.tar.gz -C /usr/local --strip-components 1
test -s /usr/local/share/man/man1/sandtimer.1
sandtimer doctor
cd /usr/local/share/doc/sandtimer
status=0
sh -x /rehearsal/first.sh || status=$?
test "$status" = 124
