#!/bin/sh
# Rehearses the installation of a release in a root of Debian. `cargo xtask dist --rehearse` starts it in mount, network
# and pid namespaces of its own: nothing it mounts, starts or writes is left, and no network can be reached.
#
# ROOT is the root, WORK an empty directory, RELEASE has the release, INDEX the Python packages that it needs, FILES the
# scripts and examples, PYTHON has pypiserver and twine, VERDACCIO is the program.
set -eu

ip link set lo up
mount -t tmpfs tmpfs "$WORK"
mkdir "$WORK/index" "$WORK/registry" "$WORK/upper" "$WORK/overlay" "$WORK/root"

echo "== registries on loopback"
cp "$INDEX"/* "$WORK/index/"
"$PYTHON" -m pypiserver run --interface 127.0.0.1 --port 8080 --disable-fallback \
    --authenticate . --passwords . "$WORK/index" 2>"$WORK/pypiserver.log" &
cp "$FILES/verdaccio.yaml" "$WORK/registry/"
node "$VERDACCIO" --config "$WORK/registry/verdaccio.yaml" --listen 127.0.0.1:4873 >"$WORK/verdaccio.log" 2>&1 &

# Waits at most 60 s until the port accepts connections.
await() {
    attempts=0
    until "$PYTHON" -c "import socket; socket.create_connection(('127.0.0.1', $1), 1)" 2>/dev/null; do
        attempts=$((attempts + 1))
        if [ "$attempts" -ge 120 ]; then
            cat "$WORK"/*.log >&2
            echo "no registry listens on port $1 after 60 s" >&2
            exit 1
        fi
        sleep 0.5
    done
}
await 8080
await 4873

echo "== upload to them"
"$PYTHON" -m twine upload --non-interactive --disable-progress-bar --repository-url http://127.0.0.1:8080/ \
    --username any --password any "$RELEASE"/*.whl "$RELEASE/sandtimer-$VERSION.tar.gz"
npm publish --loglevel=error --registry http://127.0.0.1:4873/ --//127.0.0.1:4873/:_authToken=any \
    "$RELEASE/sandtimer-$VERSION.tgz"

mount -t overlay overlay -o "lowerdir=$ROOT,upperdir=$WORK/upper,workdir=$WORK/overlay" "$WORK/root"
# The control groups are the host's, so the locks that say whose they are have to be its own, too: without them an engine
# in the root and one of the host would take each other for dead.
mkdir -p -m 700 /run/sandtimer "$WORK/root/run/sandtimer"
mount --bind /run/sandtimer "$WORK/root/run/sandtimer"
mkdir "$WORK/root/release"
cp "$RELEASE"/* "$WORK/root/release/"
cp -R "$FILES" "$WORK/root/rehearsal"

exec unshare --mount sh "$FILES/enter.sh" "$WORK/root" sh /rehearsal/operator.sh
