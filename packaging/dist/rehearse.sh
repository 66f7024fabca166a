#!/bin/sh
# Rehearses the installation of a release in a root of Debian. `cargo xtask dist --rehearse` starts it in mount, network
# and pid namespaces of its own: nothing that it mounts or starts is left, and no network can be
# reached. It makes /run/sandtimer, as every engine does.
#
# ROOT is the root, SCRATCH an empty directory, RELEASE has the release, INDEX the Python packages that it needs, FILES the
# scripts and examples, PYTHON has pypiserver and twine, VERDACCIO is the program.
set -eu

ip link set lo up
mount -t tmpfs tmpfs "$SCRATCH"
mkdir "$SCRATCH/index" "$SCRATCH/registry" "$SCRATCH/upper" "$SCRATCH/overlay" "$SCRATCH/debian"

echo "== registries on loopback"
cp "$INDEX"/* "$SCRATCH/index/"
"$PYTHON" -m pypiserver run --interface 127.0.0.1 --port 8080 --disable-fallback \
    --authenticate . --passwords . "$SCRATCH/index" 2>"$SCRATCH/pypiserver.log" &
cp "$FILES/verdaccio.yaml" "$SCRATCH/registry/"
node "$VERDACCIO" --config "$SCRATCH/registry/verdaccio.yaml" --listen 127.0.0.1:4873 >"$SCRATCH/verdaccio.log" 2>&1 &

# Waits at most 60 s until the port accepts connections.
await() {
    attempts=0
    until "$PYTHON" -c "import socket; socket.create_connection(('127.0.0.1', $1), 1)" 2>/dev/null; do
        attempts=$((attempts + 1))
        if [ "$attempts" -ge 120 ]; then
            cat "$SCRATCH"/*.log >&2
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

mount -t overlay overlay -o "lowerdir=$ROOT,upperdir=$SCRATCH/upper,workdir=$SCRATCH/overlay" "$SCRATCH/debian"
# The control groups are the host's, so the locks that say whose they are have to be its own, too: without them an engine
# in the root and one of the host would take each other for dead.
mkdir -p -m 700 /run/sandtimer "$SCRATCH/debian/run/sandtimer"
mount --bind /run/sandtimer "$SCRATCH/debian/run/sandtimer"
mkdir "$SCRATCH/debian/release"
cp "$RELEASE"/* "$SCRATCH/debian/release/"
cp -R "$FILES" "$SCRATCH/debian/rehearsal"

exec unshare --mount sh "$FILES/enter.sh" "$SCRATCH/debian" sh /rehearsal/operator.sh
