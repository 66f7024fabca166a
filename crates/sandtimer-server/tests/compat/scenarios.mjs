// What users of the package do, by its own classes.
import assert from "node:assert/strict";

import { paths } from "./paths.mjs";
import { api, client, eventually, overSocket, post, sandbox, sockets } from "./sandbox.mjs";

/** Whether an error has this code. Of streams that a socket refuses the package keeps the words only. */
const is = (code) => (error) => error.code === code || (overSocket && error.message.includes(`"code":"${code}"`));

export const scenarios = {
  ...paths,

  async exec() {
    const box = sandbox("exec");
    const hello = await box.exec("echo hello; echo there >&2");
    assert.deepEqual(
      [hello.success, hello.exitCode, hello.stdout, hello.stderr, hello.command],
      [true, 0, "hello", "there", "echo hello; echo there >&2"],
    );
    const missing = await box.exec("nosuchcommand");
    assert.equal(missing.exitCode, 127);
    assert.equal(missing.success, false);
    assert.match(missing.stderr, /nosuchcommand: command not found/);
    // The default session is one shell.
    await box.exec("cd /tmp && export GREETING=hi && f() { echo \"f $1\"; }");
    assert.equal((await box.exec("pwd; echo $GREETING; f 1")).stdout, "/tmp\nhi\nf 1");
    const own = await box.exec("pwd; echo $GREETING $MORE", { cwd: "/usr", env: { GREETING: "it's", MORE: "$HOME" } });
    assert.equal(own.stdout, "/usr\nit's $HOME");
    assert.equal((await box.exec("pwd; echo \"$GREETING $MORE\"; declare -p GREETING")).stdout,
      "/tmp\nhi \ndeclare -x GREETING=\"hi\"");
    const nowhere = await box.exec("echo never", { cwd: "/nope" });
    assert.deepEqual([nowhere.exitCode, nowhere.stdout], [1, ""]);
    assert.match(nowhere.stderr, /Failed to change directory to '\/nope'/);
    assert.equal((await box.exec("exit_code() { return 3; }; exit_code", { cwd: "/" })).exitCode, 3);
    assert.equal((await box.exec("")).exitCode, 0);
    assert.equal((await box.exec("cat <<'END'\n'\"$x\nEND")).stdout, "'\"$x");
  },

  async streams() {
    const box = sandbox("streams");
    const seen = [];
    const done = await box.exec("echo a; sleep 0.1; echo b >&2; echo ä😀; exit 4", {
      stream: true,
      onOutput: (stream, data) => seen.push([stream, data]),
    });
    assert.deepEqual([done.exitCode, done.success, done.stdout, done.stderr], [4, false, "a\nä😀\n", "b\n"]);
    assert.ok(seen.length >= 2);
    const kinds = [];
    for await (const event of api.parseSSEStream(await box.execStream("echo one; false"))) kinds.push(event);
    assert.deepEqual(kinds.map((event) => event.type), ["start", "stdout", "complete"]);
    assert.deepEqual([kinds[0].command, kinds[1].data, kinds[2].exitCode], ["echo one; false", "one\n", 1]);
    // What leaves the shell ends all the same.
    for (const [command, code] of [["exit 5", 5], ["set -e; false", 1], ["exec true", 0]]) {
      const result = await box.exec(command, { stream: true, onOutput() {} });
      assert.equal(result.exitCode, code, command);
    }
    await assert.rejects(() => box.execStream("  "), is("INVALID_COMMAND"));
  },

  async nothing_is_lost_in_streams() {
    const box = sandbox("lines");
    const wanted = Array.from({ length: 200_000 }, (_, index) => `${index + 1}\n`).join("");
    for (let round = 0; round < 3; round++) {
      const done = await box.exec("seq 1 200000", { stream: true, onOutput() {} });
      assert.equal(done.exitCode, 0);
      assert.ok(done.stdout === wanted, `${done.stdout.length} of ${wanted.length}`);
    }
    const line = await box.exec("head -c 300000 /dev/zero | tr '\\0' x; echo; echo last >&2", { stream: true, onOutput() {} });
    assert.deepEqual([line.stdout.length, line.stderr], [300_001, "last\n"]);
    const short = await Promise.all(Array.from({ length: 100 }, async (_, index) => {
      const done = await sandbox(`short-${index % 4}`).exec("echo a; echo b >&2; echo c", { stream: true, onOutput() {} });
      return `${done.stdout}|${done.stderr}|${done.exitCode}`;
    }));
    assert.deepEqual(new Set(short), new Set(["a\nc\n|b\n|0"]));
    const whole = await box.exec("seq 1 200000");
    assert.ok(`${whole.stdout}\n` === wanted);
  },

  async sessions() {
    const box = sandbox("sessions");
    const one = await box.createSession({ id: "one", cwd: "/usr", env: { WHO: "one" } });
    const two = await box.createSession({ id: "two", env: { WHO: "two" } });
    assert.equal((await one.exec("pwd; echo $WHO")).stdout, "/usr\none");
    assert.equal((await two.exec("pwd; echo $WHO")).stdout, "/workspace\ntwo");
    await two.setEnvVars({ MORE: "it's more", WHO: undefined });
    assert.equal((await two.exec("echo \"$WHO|$MORE\"")).stdout, "|it's more");
    assert.equal((await (await box.getSession("one")).exec("echo $WHO")).stdout, "one");
    await assert.rejects(() => box.createSession({ id: "one" }),
      (error) => error.name === "SessionAlreadyExistsError" && error.sessionId === "one");
    const ended = await one.exec("echo said; exit 3").then(() => null, (error) => error);
    assert.equal(ended?.name, "SessionTerminatedError");
    assert.deepEqual([ended.sessionId, ended.exitCode, ended.context.stdout], ["one", 3, "said\n"]);
    assert.equal((await one.exec("echo again")).stdout, "again");
    const running = one.exec("sleep 60");
    running.catch(() => {});
    const listed = async () => (await (await post("/api/execute", { command: "true", sessionId: "x" })).json()).success;
    assert.ok(await listed());
    await new Promise((wake) => setTimeout(wake, 200));
    assert.equal((await box.deleteSession("one")).sessionId, "one");
    await assert.rejects(() => running, (error) => error.name === "SessionDestroyedError");
    await assert.rejects(() => box.deleteSession("one"), (error) => error.code === "SESSION_NOT_FOUND");
    // Another sandbox has sessions of its own.
    assert.equal((await sandbox("others").createSession({ id: "two" })).id, "two");
  },

  async timeouts() {
    const box = sandbox("timeouts");
    const session = await box.createSession({ id: "s" });
    await session.exec("cd /tmp; x=1; marker=$(mktemp -u)", { timeout: 20_000 });
    for (const command of ["echo so far; sleep 60", "while :; do :; done", "trap '' TERM; sleep 60 & wait"]) {
      const error = await session.exec(command, { timeout: 300 }).then(() => null, (error) => error);
      assert.equal(error?.code, "COMMAND_EXECUTION_ERROR", command);
      assert.equal(error.httpStatus, 500);
      assert.match(error.message, /timeout/i);
      assert.match(error.context.stderr, /Command timeout after 300ms/);
      if (command.startsWith("echo")) assert.equal(error.context.stdout, "so far\n");
      // The session answers, is where it was, and no earlier limit has become its own.
      const after = await session.exec("pwd; echo $x; sleep 0.5");
      assert.deepEqual([after.exitCode, after.stdout], [0, "/tmp\n1"]);
    }
    assert.equal((await session.exec("sleep 0.3; echo done", { timeout: 0 })).stdout, "done");
    const stream = await session.exec("echo so far; setsid sleep 60", { timeout: 300, stream: true, onOutput() {} });
    assert.deepEqual([stream.exitCode, stream.success, stream.stdout], [124, false, "so far\n"]);
    assert.match(stream.stderr, /Command timeout after 300ms/);
    const limited = await box.createSession({ id: "limited", commandTimeoutMs: 300 });
    await assert.rejects(() => limited.exec("sleep 60"), /timeout/i);
    assert.equal((await limited.exec("sleep 0.5; echo own", { timeout: 20_000 })).stdout, "own");
    assert.equal((await limited.exec("sleep 0.5; echo none", { timeout: 0 })).stdout, "none");
    const proc = await box.startProcess("echo so far; (setsid sleep 60 &); sleep 60", { timeout: 300 });
    assert.equal((await proc.waitForExit(20_000)).exitCode, 124);
    assert.equal(await proc.getStatus(), "failed");
    const logs = await proc.getLogs();
    assert.equal(logs.stdout, "so far\n");
    assert.match(logs.stderr, /\nCommand timed out after 300ms\n$/);
    const followed = [];
    for await (const event of api.parseSSEStream(await box.streamProcessLogs(proc.id))) followed.push(event);
    assert.match(followed.at(-2).data, /\nCommand timed out after 300ms\n$/);
    assert.deepEqual([followed.at(-1).type, followed.at(-1).exitCode], ["exit", 124]);
    const refused = await post("/api/execute", { command: "true", timeoutMs: -5 });
    const body = await refused.json();
    assert.deepEqual([refused.status, body.code], [400, "VALIDATION_FAILED"]);
    assert.match(body.message, /timeoutMs.*-5/);
  },

  async what_times_out_is_dead() {
    const box = sandbox("dead");
    const session = await box.createSession({ id: "s" });
    const touch = "while :; do echo alive >> /workspace/marks; sleep 0.05; done";
    const command = `(trap '' TERM; setsid bash -c '${touch}' & disown); sleep 60`;
    await assert.rejects(() => session.exec(command, { timeout: 500 }), /timeout/i);
    const count = async () => Number((await session.exec("wc -l < /workspace/marks")).stdout);
    const first = await count();
    assert.ok(first > 0);
    await session.exec("sleep 0.5");
    assert.equal(await count(), first);
  },

  async without_sessions() {
    const direct = client();
    const run = (command, options) => direct.commands.execute(command, "__DISABLE_SESSION__", options);
    await run("x=1; cd /tmp");
    const own = await run("echo \"$x$A\"; pwd", { env: { A: "a'" }, cwd: "/usr" });
    assert.deepEqual([own.exitCode, own.stdout], [0, "a'\n/usr"]);
    assert.equal((await run("exit 7")).exitCode, 7);
    const late = await run("echo so far; setsid sleep 60 & sleep 60", { timeoutMs: 300 });
    assert.deepEqual([late.success, late.exitCode, late.stdout], [false, 124, "so far"]);
    assert.match(late.stderr, /wall limit of 300 ms[^\n]*\nCommand timed out after 300ms$/);
    // Behind what the command has written, on a line of its own.
    const written = await run("printf half >&2; sleep 60", { timeoutMs: 300 });
    assert.match(written.stderr, /^half\n[^]*\nCommand timed out after 300ms$/);
    const events = [];
    const stream = await direct.commands.executeStream("printf half >&2; sleep 60", "__DISABLE_SESSION__", { timeoutMs: 300 });
    for await (const event of api.parseSSEStream(stream)) events.push(event);
    assert.match(events.filter(({ type }) => type === "stderr").map(({ data }) => data).join(""),
      /^half\n[^]*\nCommand timed out after 300ms\n$/);
    assert.deepEqual([events.at(-1).type, events.at(-1).exitCode], ["complete", 124]);
  },

  async temporary_directory() {
    const box = sandbox("temporary");
    assert.equal((await box.exec("stat -c %a /tmp; echo $HOME; echo one > /tmp/a; echo two > ~/b; mkdir /tmp/d")).stdout, "1777\n/tmp");
    // Sessions, commands without one, processes and code have the same.
    const session = await box.createSession({ id: "s" });
    assert.equal((await session.exec("cat /tmp/a ~/b")).stdout, "one\ntwo");
    const run = (command) => client("temporary").commands.execute(command, "__DISABLE_SESSION__");
    assert.equal((await run("cat /tmp/a; echo three > /tmp/d/c")).stdout, "one");
    const proc = await box.startProcess("cat ~/a; echo four > /tmp/e; sleep 60");
    assert.equal((await proc.waitForLog("one", 20_000)).line, "one");
    await eventually("its file", async () => (await box.exists("/tmp/e")).exists);
    for (const language of ["python", "javascript"]) {
      const context = await box.createCodeContext({ language });
      const read = language === "python" ? "open('/tmp/d/c').read()" : "require('fs').readFileSync('/tmp/d/c', 'utf8')";
      assert.match((await box.runCode(read, { context })).results[0].text, /three/);
    }
    await proc.kill();
    // What the documentation does with files there.
    assert.equal((await box.readFile("/tmp/a")).content, "one\n");
    await box.writeFile("/tmp/new/image.bin", "AP8B", { encoding: "base64" });
    assert.equal((await box.readFile("/tmp/new/image.bin", { encoding: "base64" })).content, "AP8B");
    assert.equal((await box.exec("od -An -tx1 < /tmp/new/image.bin")).stdout.trim(), "00 ff 01");
    await box.writeFile("/tmp/download.txt", "loaded");
    await box.moveFile("/tmp/download.txt", "/workspace/data/../data.txt").then(() => assert.fail(), (error) => error);
    await box.moveFile("/tmp/download.txt", "/workspace/data.txt");
    assert.equal((await box.exec("cat data.txt; ls /tmp/download.txt")).stdout, "loaded");
    await box.renameFile("/workspace/data.txt", "/tmp/back.txt");
    assert.equal((await box.exists("/workspace/data.txt")).exists, false);
    await box.mkdir("/tmp/deep/er", { recursive: true });
    const listed = await box.listFiles("/tmp", { recursive: true });
    assert.deepEqual(listed.files.map((file) => file.absolutePath),
      ["/tmp/a", "/tmp/b", "/tmp/back.txt", "/tmp/d", "/tmp/d/c", "/tmp/deep", "/tmp/deep/er", "/tmp/e", "/tmp/new", "/tmp/new/image.bin"]);
    assert.equal((await api.collectFile(await box.readFileStream("/tmp/back.txt"))).content, "loaded");
    await box.deleteFile("/tmp/back.txt");
    await assert.rejects(() => box.deleteFile("/tmp/deep"), (error) => error.code === "IS_DIRECTORY");
    // Another sandbox has its own.
    await assert.rejects(() => box.readFile("/tmp/../etc/passwd"), (error) => error.code === "PERMISSION_DENIED");
    assert.equal((await sandbox("others").exec("ls -A /tmp")).stdout, "");
    assert.equal((await sandbox("others").exists("/tmp/a")).exists, false);
  },

  async relative_paths() {
    const box = sandbox("relative");
    await box.exec("mkdir sub 'with space' && cd sub && echo here > f");
    assert.equal((await box.readFile("f")).content, "here\n");
    assert.deepEqual((await box.listFiles(".")).files.map((file) => file.absolutePath), ["/workspace/sub/f"]);
    await box.writeFile("deep/g", "made");
    assert.equal((await box.exec("cat deep/g")).stdout, "made");
    await box.exec("cd '/workspace/with space'");
    await box.writeFile("h", "spaced");
    await box.exec("cd /tmp");
    await box.writeFile("i", "temporary");
    assert.deepEqual([(await box.exec("cat '/workspace/with space/h' /tmp/i")).stdout], ["spacedtemporary"]);
    // Another session is elsewhere; without one it is the workspace.
    const session = await box.createSession({ id: "s", cwd: "/workspace/sub" });
    assert.equal((await session.readFile("f")).content, "here\n");
    const direct = client("relative");
    assert.equal((await direct.files.readFile("sub/f", "__DISABLE_SESSION__")).content, "here\n");
    await box.exec("cd /etc");
    assert.match((await box.readFile("passwd")).content, /^user:/m);
  },

  async commands_of_one_session_queue() {
    const box = sandbox("queue");
    const session = await box.createSession({ id: "s" });
    const results = await Promise.all(Array.from({ length: 12 }, (_, index) =>
      session.exec(`n=$((n + 1)); echo ${index} $n`)));
    assert.deepEqual(results.map((result) => Number(result.stdout.split(" ")[1])).sort((a, b) => a - b),
      Array.from({ length: 12 }, (_, index) => index + 1));
    // Each has the answer to its own question.
    results.forEach((result, index) => assert.equal(result.stdout.split(" ")[0], String(index)));
  },

  async one_socket_has_it_all() {
    const box = sandbox("socket");
    const other = await box.createSession({ id: "other" });
    const waiting = other.exec("sleep 1; echo late");
    const started = performance.now();
    assert.equal((await box.exec("echo early")).stdout, "early");
    assert.ok(performance.now() - started < 900, "one request does not wait for another");
    assert.equal((await waiting).stdout, "late");
    assert.equal(sockets.length, 1);
    // A stream that is left is cancelled.
    const reader = (await box.execStream("while :; do echo more; sleep 0.05; done")).getReader();
    await reader.read();
    await reader.cancel();
    await eventually("the session is free again", async () => (await box.exec("echo free")).stdout === "free");
    // The package takes the end of the old socket for that of a new one that it opens meanwhile.
    const closed = new Promise((wake) => sockets[0].addEventListener("close", wake));
    sockets[0].close();
    assert.notEqual((await closed).code, 1006, "the end of a socket is confirmed");
    assert.equal((await box.exec("echo again")).stdout, "again");
  },

  async clients_that_go_away() {
    const box = sandbox("away");
    const session = await box.createSession({ id: "s" });
    const headers = { "X-Sandbox-Id": "away" };
    for (const path of ["/api/execute", "/api/execute/stream"]) {
      const leaving = new AbortController();
      const command = `while :; do echo ${path} >> /workspace/marks; sleep 0.05; done`;
      const asked = post(path, { command, sessionId: "s" }, { headers, signal: leaving.signal });
      asked.catch(() => {});
      if (path.endsWith("stream")) (await asked).body.getReader().read().catch(() => {});
      else await new Promise((wake) => setTimeout(wake, 500));
      leaving.abort();
      // It was cancelled: the session answers, and nothing goes on.
      const before = (await session.exec("cat /workspace/marks 2>/dev/null | wc -l; sleep 0.3")).stdout;
      assert.equal((await session.exec("cat /workspace/marks 2>/dev/null | wc -l")).stdout, before);
    }
    const proc = await session.startProcess("sleep 0.5; echo went on");
    assert.equal((await proc.waitForExit(20_000)).exitCode, 0);
    assert.equal((await proc.getLogs()).stdout, "went on\n");
  },

  async processes() {
    const box = sandbox("processes");
    const other = sandbox("statuses");
    await box.exec("cd /usr; export FROM=session; greet() { echo \"greet $1\"; }");
    const proc = await box.startProcess("pwd; greet $FROM$OWN; echo oops >&2; echo ready; sleep 60", {
      processId: "mine", env: { OWN: "+own" },
    });
    assert.equal(proc.id, "mine");
    assert.equal((await proc.waitForLog("ready", 20_000)).line, "ready");
    assert.deepEqual((await proc.waitForLog(/greet (\S+)/, 20_000)).match.slice(1), ["session+own"]);
    // Two pipes, of which one may be read before the other.
    await eventually("its stderr", async () => (await proc.getLogs()).stderr !== "");
    assert.deepEqual(await proc.getLogs(), { stdout: "/usr\ngreet session+own\nready\n", stderr: "oops\n" });
    assert.equal((await box.getProcess("mine")).status, "running");
    assert.equal(await box.getProcess("nobody"), null);
    await assert.rejects(() => proc.waitForLog("never", 200), (error) => error.name === "ProcessReadyTimeoutError");
    await assert.rejects(() => box.startProcess("true", { processId: "mine" }), (error) => error.code === "PROCESS_ERROR");
    await proc.kill();
    assert.equal(await proc.getStatus(), "killed");
    assert.equal((await proc.waitForExit(20_000)).exitCode, 143);
    await proc.kill();
    const codes = [];
    const failing = await box.startProcess("echo out; exit 9", {
      cwd: "/tmp",
      onOutput: (stream, data) => codes.push([stream, data]),
      onExit: (code) => codes.push(code),
    });
    assert.equal((await failing.waitForExit(20_000)).exitCode, 9);
    await eventually("the callbacks", () => codes.length === 2);
    assert.deepEqual(codes, [["stdout", "out\n"], 9]);
    assert.equal(await failing.getStatus(), "failed");
    await assert.rejects(() => failing.waitForLog("ready", 20_000),
      (error) => error.name === "ProcessExitedBeforeReadyError" && error.exitCode === 9);
    // Whatever its code is: only what was killed is that.
    for (const [command, code, status] of [
      ["exit 1", 1, "failed"], ["exit 137", 137, "failed"], ["exit 143", 143, "failed"], ["nosuchcommand", 127, "failed"],
      ["kill -SEGV $$", 139, "failed"], ["kill -KILL $$", 137, "killed"], ["true", 0, "completed"],
    ]) {
      const ended = await other.startProcess(command);
      assert.deepEqual([(await ended.waitForExit(20_000)).exitCode, await ended.getStatus()], [code, status], command);
    }
    const listed = await box.listProcesses();
    assert.deepEqual(listed.map((one) => [one.command.slice(0, 3), one.status]), [["pwd", "killed"], ["ech", "failed"]]);
    await box.startProcess("sleep 60");
    await box.startProcess("trap '' TERM; (setsid sleep 60 &); sleep 60");
    assert.equal(await box.killAllProcesses(), 2);
    assert.equal((await box.listProcesses()).filter((one) => one.status === "running").length, 0);
    assert.equal((await sandbox("others").listProcesses()).length, 0);
    // A process outlives its session.
    const brief = await box.createSession({ id: "brief" });
    const staying = await brief.startProcess("sleep 60");
    await box.deleteSession("brief");
    assert.equal((await box.getProcess(staying.id)).status, "running");
    await assert.rejects(() => staying.waitForPort(8080, { timeout: 500 }),
      (error) => error.name === "ProcessReadyTimeoutError");
    await staying.kill();
    // Each process has a loopback of its own.
    const serving = await box.startProcess("python3 -m http.server 8080");
    await serving.waitForPort(8080, { timeout: 20_000 });
    await serving.waitForPort(8080, { mode: "tcp", timeout: 20_000 });
    await serving.waitForPort(8080, { path: "/nothing", status: 404, timeout: 20_000 });
    await assert.rejects(() => serving.waitForPort(8080, { path: "/nothing", timeout: 1500, interval: 100 }),
      (error) => error.name === "ProcessReadyTimeoutError");
    await serving.kill();
    // It listens for a while before it answers as one waits for.
    const warming = await box.startProcess(`python3 -c "
import http.server, time
begun = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if time.monotonic() - begun > 1.5 else 503)
        self.end_headers()
http.server.HTTPServer(('127.0.0.1', 8081), Handler).serve_forever()"`);
    const asked = Date.now();
    await warming.waitForPort(8081, { timeout: 20_000, interval: 100 });
    assert.ok(Date.now() - asked > 1000);
    await warming.kill();
    await assert.rejects(() => staying.waitForPort(8080, { timeout: 20_000 }),
      (error) => error.name === "ProcessExitedBeforeReadyError");
  },

  async code() {
    const box = sandbox("code");
    const seen = [];
    const first = await box.runCode("import time\nx = 20\nprint('live', flush=True)\ntime.sleep(0.6)\nprint('ä😀')\nx + 1", {
      onStdout: (output) => seen.push(Date.now()),
    });
    assert.equal(first.logs.stdout.join(""), "live\nä😀\n");
    assert.equal(first.results[0].text, "21");
    assert.ok(seen.at(-1) - seen[0] >= 300, "output comes while code runs");
    assert.equal((await box.runCode("x * 2")).results[0].text, "40");
    const rich = await box.runCode(
      "class Rich:\n def _repr_html_(self): return '<b>r</b>'\n def _repr_png_(self): return b'png'\n def _repr_latex_(self): return '$r$'\n" +
      "display(Rich())\n{'a': [1, 2]}");
    assert.deepEqual([rich.results.length, rich.results[0].html, rich.results[0].png, rich.results[0].latex],
      [2, "<b>r</b>", "cG5n", "$r$"]);
    assert.deepEqual(rich.results[1].json, { a: [1, 2] });
    const wrong = await box.runCode("1 / 0");
    assert.deepEqual([wrong.error.name, wrong.error.message], ["ZeroDivisionError", "division by zero"]);
    assert.ok(wrong.error.traceback.join("\n").includes("1 / 0"));
    assert.equal((await box.runCode("def f(:")).error.name, "SyntaxError");
    // What writes past Python, and what ends the interpreter.
    const child = await box.runCode("import os, subprocess\nos.system('echo hi')\n_ = subprocess.run(['echo', 'there'])");
    assert.equal(child.logs.stdout.join(""), "hi\nthere\n");
    const gone = await box.runCode("print('last', flush=True)\nos._exit(3)");
    assert.deepEqual([gone.error.name, gone.logs.stdout.join("")], ["InterpreterExited", "last\n"]);
    assert.match(gone.error.message, /3/);
    assert.equal((await box.runCode("x")).results[0].text, "20");
    const context = await box.createCodeContext({ language: "python", cwd: "/tmp/deep", envVars: { WHO: "me" } });
    const about = await box.runCode("import os; (os.getcwd(), os.environ['WHO'])", { context });
    assert.equal(about.results[0].text, "('/tmp/deep', 'me')");
    assert.equal((await box.listCodeContexts()).length, 2);
    await box.deleteCodeContext(context.id);
    await assert.rejects(() => box.runCode("1", { context }), is("CONTEXT_NOT_FOUND"));
    await assert.rejects(() => box.deleteCodeContext(context.id), (error) => error.name === "ContextNotFoundError");
  },

  async code_that_takes_too_long() {
    const direct = client();
    const context = await direct.interpreter.createCodeContext({ language: "python" });
    const run = async (code, timeout) => {
      const said = { out: "", results: [], error: null };
      await direct.interpreter.runCodeStream(context.id, code, "python", {
        onStdout: ({ text }) => void (said.out += text),
        onResult: (result) => void said.results.push(result.text),
        onError: (error) => void (said.error = error),
      }, timeout);
      return said;
    };
    await run("x = 1", 20_000);
    const hostile = "x = 2\nprint('A', flush=True)\nimport time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass";
    const late = await run(hostile, 300);
    assert.equal(late.out, "A\n");
    assert.equal(late.error.name, "TimeoutError");
    assert.match(late.error.message, /Execution timeout after 300ms/);
    // The next call has its own answer.
    assert.deepEqual(await run("print('B'); x"), { out: "B\n", results: ["1"], error: null });
    assert.equal((await run("time = __import__('time'); time.sleep(0.5); 'slow'", 0)).results[0], "'slow'");
  },

  async interface_of_the_wire() {
    const direct = client();
    assert.equal(await direct.utils.ping(), "pong");
    assert.match(await direct.utils.getVersion(), /^\d+\.\d+\.\d+/);
    const answer = await (await post("/api/execute", { command: "nosuchcmd", sessionId: "z", unknown: 1 })).json();
    assert.deepEqual(Object.keys(answer).sort(), ["command", "duration", "exitCode", "sessionId", "stderr", "stdout", "success", "timestamp"]);
    assert.ok(Math.abs(Date.parse(answer.timestamp) - Date.now()) < 60_000);
    const sessions = await (await fetch(`${process.env.SANDTIMER_URL}/api/session/list`)).json();
    assert.deepEqual(sessions.data, ["z"]);
    const raw = await (await post("/api/execute/stream", { command: "echo ä", sessionId: "z" })).text();
    assert.ok(/^(data: \{.*\}\n\n){3}$/.test(raw), raw);
    for (const [path, body, status, code] of [
      ["/api/execute", {}, 400, "VALIDATION_FAILED"],
      ["/api/execute", { command: 1 }, 400, "VALIDATION_FAILED"],
      ["/api/execute", { command: "a", sessionId: " " }, 400, "VALIDATION_FAILED"],
      ["/api/execute", { command: "a\0b" }, 400, "VALIDATION_FAILED"],
      ["/api/execute", { command: "a", env: { "A;B": "" } }, 400, "VALIDATION_FAILED"],
      ["/api/execute", { command: "a", timeoutMs: "soon" }, 400, "VALIDATION_FAILED"],
      ["/api/session/delete", {}, 400, "VALIDATION_FAILED"],
      ["/api/session/create", { id: "__DISABLE_SESSION__" }, 400, "VALIDATION_FAILED"],
      ["/api/process/start", { command: "" }, 400, "INVALID_COMMAND"],
      ["/api/contexts", { language: "cobol" }, 400, "VALIDATION_FAILED"],
      ["/api/execute/code", { code: "1" }, 400, "VALIDATION_FAILED"],
      ["/api/execute/code", { code: "1", context_id: "nobody" }, 404, "CONTEXT_NOT_FOUND"],
      ["/api/port-watch", { port: 0 }, 400, "INVALID_PORT"],
      ["/api/nowhere", {}, 404, "UNKNOWN_ERROR"],
      ["/api/ping", {}, 405, "UNKNOWN_ERROR"],
    ]) {
      const refused = await post(path, body);
      const error = await refused.json();
      const shown = `${path} ${JSON.stringify(body)}: ${refused.status} ${JSON.stringify(error)}`;
      assert.deepEqual([refused.status, error.code, error.httpStatus], [status, code, status], shown);
      assert.ok(error.message && error.context && !Number.isNaN(Date.parse(error.timestamp)), shown);
    }
  },

  async tokens() {
    const box = sandbox("tokens");
    assert.equal((await box.exec("echo mine")).stdout, "mine");
    const refused = await fetch(`${process.env.SANDTIMER_URL}/api/ping`);
    assert.deepEqual([refused.status, typeof (await refused.json()).httpStatus], [401, "number"]);
  },

  async clones() {
    const box = sandbox("clones");
    const made = await box.exec("git init -q -b trunk origin && cd origin && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one");
    assert.equal(made.exitCode, 0, made.stderr);
    const clone = await box.gitCheckout("file:///workspace/origin", { targetDir: "/workspace/copy", depth: 1 });
    assert.deepEqual([clone.branch, clone.targetDir], ["trunk", "/workspace/copy"]);
    assert.equal((await box.exec("git -C /workspace/copy log --format=%s")).stdout, "one");
    await assert.rejects(() => box.gitCheckout("file:///workspace/origin", { branch: "none", targetDir: "/workspace/c2" }),
      (error) => error.code === "GIT_BRANCH_NOT_FOUND");
    await assert.rejects(() => box.gitCheckout("file:///workspace/nowhere", { targetDir: "/workspace/c3" }), (error) => error.code === "GIT_REPOSITORY_NOT_FOUND");
  },

  async files() {
    const box = sandbox("files");
    await box.writeFile("/workspace/src/app/main.js", "// its directories are made");
    await box.exec("rm -r src");
    await box.writeFile("/workspace/a.txt", "grüße\n");
    const text = await box.readFile("/workspace/a.txt");
    assert.deepEqual([text.content, text.encoding, text.isBinary, text.mimeType, text.size],
      ["grüße\n", "utf-8", false, "text/plain", 8]);
    // All of a sandbox see the same files, whoever has written them.
    const session = await box.createSession({ id: "s" });
    assert.equal((await session.exec("cat a.txt; echo more >> a.txt; chmod +x a.txt")).stdout, "grüße");
    assert.equal((await box.runCode("open('/workspace/a.txt').read()")).results[0].text, "'grüße\\nmore\\n'");
    const proc = await box.startProcess("cat /workspace/a.txt > /workspace/b.txt");
    await proc.waitForExit(20_000);
    assert.equal((await session.readFile("b.txt")).content, "grüße\nmore\n");
    assert.equal((await client().files.exists("/workspace/a.txt", "s")).exists, false, "another sandbox");
    const bytes = Buffer.from([0, 255, 1, 254]);
    await box.writeFile("/workspace/bytes.png", bytes.toString("base64"), { encoding: "base64" });
    const read = await box.readFile("/workspace/bytes.png");
    assert.deepEqual([read.content, read.encoding, read.isBinary, read.mimeType, read.size],
      [bytes.toString("base64"), "base64", true, "image/png", 4]);
    assert.equal((await box.readFile("/workspace/a.txt", { encoding: "base64" })).content,
      Buffer.from("grüße\nmore\n").toString("base64"));
    assert.equal((await box.mkdir("/workspace/deep/er", { recursive: true })).recursive, true);
    assert.equal((await box.moveFile("/workspace/b.txt", "/workspace/deep/er/c.txt")).newPath, "/workspace/deep/er/c.txt");
    await box.renameFile("/workspace/deep/er/c.txt", "/workspace/deep/er/.d");
    assert.equal((await box.exists("/workspace/deep/er/.d")).exists, true);
    assert.equal((await box.exists("/workspace/b.txt")).exists, false);
    const all = await box.listFiles("/workspace", { recursive: true, includeHidden: true });
    assert.deepEqual(all.files.map((file) => [file.relativePath, file.type]), [
      ["a.txt", "file"], ["bytes.png", "file"], ["deep", "directory"], ["deep/er", "directory"], ["deep/er/.d", "file"],
    ]);
    assert.deepEqual([all.count, all.files[0].mode, all.files[0].permissions.executable, all.files[0].size],
      [5, "rwxr-xr-x", true, 13]);
    const er = await box.listFiles("/workspace/deep/er", { includeHidden: true });
    assert.deepEqual([er.files[0].name, er.files[0].absolutePath, er.files[0].relativePath], [".d", "/workspace/deep/er/.d", ".d"]);
    assert.equal((await box.listFiles("/workspace/deep/er")).count, 0);
    await box.deleteFile("/workspace/deep/er/.d");
    // Streams, whatever is in them.
    await box.exec("seq 1 100000 > lines; head -c 1000001 /dev/urandom > noise; md5sum < noise | cut -c1-32 > sum");
    const lines = await api.collectFile(await box.readFileStream("/workspace/lines"));
    assert.equal(lines.content, Array.from({ length: 100_000 }, (_, index) => `${index + 1}\n`).join(""));
    const noise = await api.collectFile(await box.readFileStream("/workspace/noise"));
    assert.equal(noise.content.length, 1_000_001);
    const { createHash } = await import("node:crypto");
    assert.equal(`${createHash("md5").update(noise.content).digest("hex")}\n`, (await box.readFile("/workspace/sum")).content);
    await box.exec("truncate -s 33M large; mkfifo fifo; touch empty");
    assert.equal((await api.collectFile(await box.readFileStream("/workspace/large"))).content.length, 33 * 2 ** 20);
    assert.equal((await api.collectFile(await box.readFileStream("/workspace/empty"))).content, "");
    await assert.rejects(async () => api.collectFile(await box.readFileStream("/workspace/nowhere")), /does not exist/);
    for (const [what, code] of [
      [() => box.readFile("/workspace/nowhere"), "FILE_NOT_FOUND"],
      [() => box.readFile("/workspace/deep"), "IS_DIRECTORY"],
      [() => box.deleteFile("/workspace/deep"), "IS_DIRECTORY"],
      [() => box.listFiles("/workspace/a.txt"), "NOT_DIRECTORY"],
      [() => box.mkdir("/workspace/deep"), "FILE_EXISTS"],
      [() => box.readFile("/workspace/large"), "FILE_TOO_LARGE"],
      [() => box.readFile("/workspace/../etc/passwd"), "PERMISSION_DENIED"],
      [() => box.writeFile("/usr/new", ""), "PERMISSION_DENIED"],
      [() => box.readFile("/proc/1/environ"), "PERMISSION_DENIED"],
      [() => box.writeFile("/workspace/x", "not base64!", { encoding: "base64" }), "VALIDATION_FAILED"],
    ]) {
      const error = await what().then(() => null, (error) => error);
      assert.equal(error?.code, code, `${what}: ${error}`);
    }
    await assert.rejects(() => box.readFile("/workspace/fifo"));
  },

  async quiet_streams_are_kept_open() {
    const raw = await (await post("/api/execute/stream", { command: "sleep 1", sessionId: "s" })).text();
    assert.ok(raw.split(": heartbeat\n\n").length > 3, raw);
    const done = await sandbox("quiet").exec("echo a; sleep 1; echo b", { stream: true, onOutput() {} });
    assert.deepEqual([done.stdout, done.exitCode], ["a\nb\n", 0]);
    assert.equal((await sandbox("quiet").runCode("import time; time.sleep(1); 1")).results[0].text, "1");
  },

  async files_before_a_restart() {
    await sandbox("restart").exec("echo kept | tee kept.txt /home/user/kept.txt > /tmp/kept.txt");
    await sandbox("gone").exec("echo gone > /tmp/gone.txt");
  },

  async files_after_a_restart() {
    const box = sandbox("restart");
    assert.equal((await box.readFile("/workspace/kept.txt")).content, "kept\n");
    assert.equal((await box.exec("cat kept.txt")).stdout, "kept");
    assert.equal((await box.readFile("/tmp/kept.txt")).content, "kept\n");
    assert.equal((await box.exec("cat ~/kept.txt")).stdout, "kept");
    assert.equal((await box.readFile("/home/user/kept.txt")).content, "kept\n");
    assert.equal((await sandbox("other").exists("/workspace/kept.txt")).exists, false);
    assert.equal((await sandbox("gone").exec("ls -A /tmp")).stdout, "");
  },

  async long_ones_finish() {
    const box = sandbox("long");
    const session = await box.createSession({ id: "s" });
    const [command, streamed, cell] = await Promise.all([
      box.exec("sleep 35; echo late"),
      session.exec("sleep 35; echo late", { stream: true, onOutput() {} }),
      box.runCode("import time; time.sleep(35); print('late')"),
    ]);
    assert.deepEqual([command.stdout, streamed.stdout, cell.logs.stdout.join("")], ["late", "late\n", "late\n"]);
  },
};
