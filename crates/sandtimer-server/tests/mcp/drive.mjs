// Plays one scenario with the official TypeScript client, or the inspector's command line: `node drive.mjs SCENARIO`. Over
// stdin and stdout of the command that SANDTIMER_MCP names, a JSON array; else over HTTP with the server at SANDTIMER_URL.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readlink } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const modules = process.env.SANDTIMER_TEST_NPM;
const sdk = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/sdk/dist/esm/${path}.js`));
const { Client } = await sdk("client/index");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp");
const { StdioClientTransport } = await sdk("client/stdio");
const command = JSON.parse(process.env.SANDTIMER_MCP ?? "[]");
const address = `${process.env.SANDTIMER_URL}/mcp`;
const headers = process.env.SANDTIMER_TOKEN ? { Authorization: `Bearer ${process.env.SANDTIMER_TOKEN}` } : {};

async function connected(query = "", more = {}) {
  const client = new Client({ name: "tests", version: "1" });
  const carried = command.length
    ? new StdioClientTransport({ command: command[0], args: command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(address + query), { requestInit: { headers: { ...headers, ...more } } });
  await client.connect(carried);
  return client;
}

// One message by the inspector, which connects for it alone.
async function inspect(...args) {
  const inspector = `${modules}/@modelcontextprotocol/inspector/clients/launcher/build/index.js`;
  const target = command.length ? [...command, "--transport", "stdio"] : [address, "--transport", "http"];
  const ended = promisify(execFile)("node", [inspector, "--cli", ...target, ...args]);
  // A tool that refuses ends it with an exit code of its own, behind the result.
  const { stdout } = await ended.catch((failed) => {
    if (!failed.stdout) throw failed;
    return failed;
  });
  return JSON.parse(stdout);
}

const inspected = (name, args) => {
  const pairs = Object.entries(args).map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return inspect("--method", "tools/call", "--tool-name", name, ...(pairs.length ? ["--tool-arg", ...pairs] : []));
};

const call = (client, name, args = {}, options) => client.callTool({ name, arguments: args }, undefined, options);
const text = (result) => result.content.map((block) => block.text ?? "").join("");
const first = (result) => text(result).split("\n")[0];

// The sandboxes of this token, of which the newest is the last.
async function sandboxes() {
  const listed = await (await fetch(`${process.env.SANDTIMER_URL}/v1/sandboxes`, { headers })).json();
  return listed.sandboxes.sort((one, other) => one.created_at_ms - other.created_at_ms);
}

// Waits until there are this many.
async function sandboxesAre(count) {
  for (let tries = 0; tries < 300; tries += 1) {
    if ((await sandboxes()).length === count) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail(`there are not ${count}: ${JSON.stringify(await sandboxes())}`);
}

// The message by which `initialize` is refused.
const refusedSession = async (query, more) => {
  const error = await connected(query, more).then(() => null, (error) => error);
  assert.ok(error?.code === -32600 && error.data?.code, `${query}: ${error}`);
  return error.message;
};

// Uses each of the tools once. `keeps`: whether one connection is used for all of it, so that a task begun stays begun.
async function everyTool(use, tools, keeps) {
  const used = new Set();
  const act = async (name, args, wanted, refused = false) => {
    used.add(name);
    const result = await use(name, args);
    assert.ok(Boolean(result.isError) === refused && wanted(result), `${name}: ${text(result)}`);
    return result.structuredContent;
  };
  const begins = (words) => (result) => first(result).startsWith(words);
  const says = (words) => (result) => text(result).includes(words);
  const background = { command: "echo begun; read line; echo got $line; sleep 300", background: true, stdin_open: true };
  const { run_id } = await act("bash", { ...background, timeout_ms: 300000 }, begins("STILL RUNNING"));
  await act("read_output", { run_id, wait_ms: 20000 }, says("begun"));
  await act("write_stdin", { run_id, data: "it\n", wait_ms: 20000 }, says("got it"));
  await act("list_runs", {}, says(run_id));
  await act("extend", { run_id, by_ms: 60000 }, begins("STILL RUNNING"));
  await act("pause", { run_id }, (result) => result.structuredContent.paused);
  await act("resume", { run_id }, (result) => !result.structuredContent.paused);
  await act("time_left", { run_id }, (result) => text(result).includes("wall_ms 360000 set by call, "));
  await act("report_progress", { run_id, done: 1, total: 3 }, says("1 of 3"));
  await act("wait", { run_ids: [run_id], wait_ms: 0 }, begins("STILL RUNNING: 1 of 1"));
  await act("kill", { run_id }, begins("STOPPED BY cancel"));
  await act("run_code", { language: "javascript", code: "[1, 2].map((x) => x * 2)" }, begins("EXITED 0"));
  const { bash_id } = await act("Bash", { command: "echo alias; sleep 300", background: true }, says("Started background process: bash_"));
  await act("BashOutput", { bash_id }, says("=== Status: RUNNING ==="));
  await act("KillShell", { shell_id: bash_id }, begins("STOPPED BY cancel"));
  await act("ReadBashOutput", { shell_id: bash_id }, says("=== Status: KILLED ==="));
  await act("estimate_duration", { task_type: "load_data" }, says("Typical"));
  await act("begin_task", { label: "work", max_ms: 60000 }, says("Task `work` has begun"));
  await act("end_task", { label: "work" }, says(keeps ? "Task `work` took" : "there is no open task `work`"), !keeps);
  await act("EstimateTaskDuration", { task_type: "explore_data" }, says("Typical:"));
  const left = tools.map((tool) => tool.name).filter((name) => !used.has(name));
  assert.deepEqual(left, [], "every tool is used once");
}

const scenarios = {
  async every_tool() {
    const client = await connected();
    const { tools } = await client.listTools();
    await everyTool((name, args) => call(client, name, args), tools, true);
    const { run_id } = (await call(client, "bash", { command: "echo a document" })).structuredContent;
    const uri = `sandtimer://runs/${run_id}/stdout`;
    const { resources } = await client.listResources();
    assert.ok(resources.some((resource) => resource.uri === uri), JSON.stringify(resources));
    assert.equal((await client.readResource({ uri })).contents[0].text, "a document\n");
    await client.close();
  },

  async the_inspector() {
    const { tools } = await inspect("--strict", "--method", "tools/list");
    await everyTool(inspected, tools, false);
    const { resources } = await inspect("--method", "resources/list");
    const { contents } = await inspect("--method", "resources/read", "--uri", resources[0].uri);
    assert.ok(JSON.parse(contents[0].text).runs.length > 0);
  },

  async values_and_figures_are_shown_within_bounds() {
    const client = await connected();
    const python = (code, more = {}) => call(client, "run_code", { language: "python", code, ...more });
    const shows = async (code, words) => {
      const result = await python(code);
      assert.ok(first(result) === "EXITED 0" && text(result).includes(words), `${code}: ${text(result)}`);
      return result;
    };
    await shows("{1}", "{1}");
    await shows("import datetime; datetime.date(2026, 1, 2)", "datetime.date(2026, 1, 2)");
    await shows("float('nan')", "nan");
    await shows("display('shown'); 7", "'shown'");
    await shows("class Table:\n  def _repr_markdown_(self): return '| a |\\n|---|\\n| 1 |'\nTable()", "| a |");
    const figure = "class Figure:\n  def _repr_png_(self): return b'\\x89PNG' + bytes(30)\n  def __repr__(self): return '<Figure>'\n";
    const drawn = await shows(`${figure}Figure()`, "<Figure>");
    const [image] = drawn.content.filter((block) => block.type === "image");
    assert.equal(image?.mimeType, "image/png");
    assert.equal(Buffer.from(image.data, "base64").subarray(1, 4).toString(), "PNG");
    assert.ok(!JSON.stringify(drawn.structuredContent).includes(image.data), "figures are in blocks alone");
    const large = figure.replace("bytes(30)", "bytes(2_000_000)");
    const left = await shows(`${large}Figure()`, "is left out: an answer has at most");
    assert.ok(left.content.every((block) => block.type === "text"));
    assert.equal((await python(`[display(Figure()) for _ in range(9)];`)).content.length, 1, "as large, none of them");

    const bounded = async (result) => {
      const parts = [text(result), JSON.stringify(result.structuredContent)].map((part) => Buffer.byteLength(part));
      assert.ok(parts.every((bytes) => bytes <= 20_000), `${parts}: ${text(result).slice(0, 200)}`);
      assert.equal(result.structuredContent.headline, first(result));
      return result;
    };
    for (const code of ["'x' * 7_000_000", "'\"\\n' * 100_000", "[['ä' * 50] * 1000]", "print('\"' * 300_000)", "raise ValueError('y' * 300_000)", "[display('z' * 3000) for _ in range(50)]"]) {
      await bounded(await python(code));
      await bounded(await python(code, { details: true }));
    }
    const bash = (command, more = {}) => call(client, "bash", { command, ...more });
    const much = await bounded(await bash("seq 1 100000"));
    assert.ok(much.structuredContent.stdout.endsWith("100000\n") && much.structuredContent.stdout_truncated);
    for (let index = 0; index < 30; index += 1) await bash(`sleep 300; : ${"w".repeat(1000)}`, { background: true });
    const runs = await bounded(await call(client, "list_runs", { limit: 200 }));
    assert.ok(runs.structuredContent.total >= 30);
    for (const { run_id } of runs.structuredContent.runs) await call(client, "kill", { run_id });
    await bounded(await call(client, "list_runs", { limit: 200 }));
    await bounded(await call(client, "time_left"));
    const hi = await bash("echo hi");
    assert.ok(JSON.stringify(hi.structuredContent).length < 300, JSON.stringify(hi.structuredContent));
    assert.ok((await bash("echo hi", { details: true })).structuredContent.isolation.tier);

    // One line of progress, which overwrites itself.
    const bar = await bash("for i in $(seq 1 2000); do printf '\\r%d%% of it is done' $i; done; printf '\\n\\033[31mred\\033[0m\\n'");
    assert.ok(text(bar).endsWith("\n2000% of it is done\nred\n"), text(bar));
    const { run_id } = bar.structuredContent;
    const read = async (more) => (await call(client, "read_output", { run_id, ...more })).structuredContent;
    assert.equal((await read({})).data, "2000% of it is done\nred\n");
    assert.equal((await read({ filter: "^red$" })).data, "red\n");
    const long = (await bash("head -c 50000 /dev/zero | tr '\\0' x; echo end")).structuredContent;
    const tail = (await call(client, "read_output", { run_id: long.run_id, tail: 1, max_bytes: 200 })).structuredContent;
    assert.ok(tail.data.endsWith("xxend\n") && tail.data.length <= 200, `${tail.data.length}`);
    await client.close();
  },

  async ended_runs_report_their_results() {
    const client = await connected();
    const left = await call(client, "bash", { command: "sleep 300 & echo started" });
    assert.ok(text(left).includes("1 process it had left behind was killed; to keep such a process"), text(left));
    assert.ok(left.structuredContent.sentence.includes("background: true"));
    assert.equal(left.structuredContent.remarks[0].kind, "killed_leftovers");
    const none = await call(client, "bash", { command: "true" });
    assert.ok(!text(none).includes("left behind") && !none.structuredContent.remarks, text(none));
    const network = await call(client, "bash", { command: "python3 -c 'import urllib.request as u; u.urlopen(\"https://pypi.org\")'" });
    assert.ok(text(network).includes("It has no network"), text(network));

    const python = (code) => call(client, "run_code", { language: "py", code });
    await python("x = 1");
    const ended = await python("x = 2; import os; os._exit(3)");
    assert.equal(first(ended), "EXITED 3", text(ended));
    assert.ok(text(ended).includes("the state from before this code"), text(ended));
    assert.equal((await python("x")).structuredContent.value, 1);

    const { bash_id } = (await call(client, "Bash", { command: "sleep 0.5; echo over", background: true })).structuredContent;
    await call(client, "wait", { run_ids: [bash_id], wait_ms: 20000 });
    const late = await call(client, "KillShell", { shell_id: bash_id });
    assert.ok(text(late).includes("had ended before it was to be killed: COMPLETED (exit code: 0)"), text(late));
    assert.ok(!text(late).includes("Killed") && late.structuredContent.killed === false);

    const started = await call(client, "Bash", { command: "sleep 300", run_in_background: true });
    const id = started.structuredContent.bash_id;
    assert.ok(id.startsWith("bash_") && started.structuredContent.shell_id === id, text(started));
    assert.ok(text(started).includes(`Command running in background with ID: ${id}`), text(started));
    for (const name of ["bash_id", "shell_id"]) {
      const read = await call(client, "BashOutput", { [name]: id });
      assert.ok(text(read).includes("=== Status: RUNNING ==="), text(read));
    }
    assert.ok((await call(client, "KillShell", { bash_id: id })).structuredContent.killed);
    const soon = (await call(client, "Bash", { command: "true", run_in_background: true })).structuredContent;
    await call(client, "wait", { run_ids: [soon.bash_id], wait_ms: 20000 });
    assert.ok(text(await call(client, "BashOutput", { bash_id: soon.bash_id })).includes("COMPLETED (exit code: 0)"));

    const nowhere = await call(client, "bash", { command: "pwd", cwd: "/nowhere" });
    assert.ok(nowhere.isError && text(nowhere).includes("`/nowhere` is not a directory of the run"), text(nowhere));
    await call(client, "bash", { command: "mkdir -p sub && touch file" });
    assert.equal((await call(client, "bash", { command: "pwd", cwd: "sub" })).structuredContent.stdout, "/workspace/sub\n");
    assert.ok((await call(client, "bash", { command: "pwd", cwd: "/workspace/file" })).isError);
    await call(client, "bash", { command: "rmdir sub" });
    const removed = await call(client, "bash", { command: "pwd", cwd: "sub" });
    assert.ok(removed.isError && text(removed).includes("cwd: "), text(removed));
    await client.close();
  },

  async arguments_of_models_are_taken_or_named() {
    const client = await connected();
    const refused = async (name, args, words) => {
      const result = await call(client, name, args);
      assert.ok(result.isError && text(result).includes(words), text(result));
      assert.equal(result.structuredContent.headline, first(result));
    };
    await refused("bash", { shell_command: "true" }, "`shell_command`; it is called `command` here");
    assert.equal((await call(client, "bash", { cmd: "echo 1" })).structuredContent.stdout, "1\n");
    await refused("bash", { command: "true", timeout: 5 }, "it is called `timeout_ms` here");
    await refused("run_code", { language: "python", script: "1" }, "it is called `code` here");
    await refused("run_code", { language: "cobol", code: "1" }, "one of python, javascript, typescript, bash");
    for (const [language, code] of [["python3", "1 + 1"], ["js", "1 + 1"], ["ts", "const x: number = 2; x"]]) {
      assert.equal((await call(client, "run_code", { language, code })).structuredContent.value, 2, language);
    }
    assert.equal((await call(client, "run_code", { language: "sh", code: "echo 2" })).structuredContent.stdout, "2\n");
    const env = { A: 1, B: true };
    const taken = await call(client, "bash", { command: "echo $A $B", env, wait_ms: 90000, timeout_ms: "20000" });
    assert.equal(taken.structuredContent.stdout, "1 true\n", text(taken));
    assert.ok(text(taken).includes("wait_ms was 90000 and is taken as 45000"), text(taken));
    const { run_id } = (await call(client, "bash", { command: "sleep 300", background: "true" })).structuredContent;
    assert.equal(first(await call(client, "kill", { run_id })), "STOPPED BY cancel");
    await client.close();
  },

  async a_connection_has_a_temporary_directory_of_its_own() {
    const [one, other] = [await connected(), await connected()];
    const out = async (client, command) => {
      const result = await call(client, "bash", { command });
      assert.ok(first(result).startsWith("EXITED"), text(result));
      return result.structuredContent.stdout ?? text(result);
    };
    await out(one, "echo mine > /tmp/a; echo set > ~/.config-of-a-tool; mkdir -p ~/.cache/tool");
    assert.match(await out(one, "cat /tmp/a ~/.config-of-a-tool; ls -d $HOME/.cache/tool; stat -c %a /tmp"), /mine\nset\n\/tmp\/.cache\/tool\n1777/);
    // Interpreters have it too.
    for (const [language, code] of [
      ["python", "open('/tmp/a').read()"],
      ["javascript", "require('fs').readFileSync('/tmp/a', 'utf8')"],
      ["bash", "cat /tmp/a"],
    ]) assert.match(text(await call(one, "run_code", { language, code })), /mine/, language);
    await call(one, "run_code", { language: "python", code: "open('/tmp/b', 'w').write('of python')" });
    assert.match(await out(one, "cat /tmp/b"), /of python/);
    // Nothing of it is there for another connection; the workspace is.
    assert.doesNotMatch(await out(other, "ls -A /tmp; ls -A ~"), /a|b/);
    await out(other, "echo other > /tmp/a; echo shared > /workspace/shared-file");
    assert.match(await out(one, "cat /tmp/a shared-file; rm shared-file"), /mine\nshared/);
    await other.transport.terminateSession?.();
    await other.close();
    const third = await connected();
    assert.doesNotMatch(await out(third, "ls -A /tmp"), /a|b/);
    await third.transport.terminateSession?.();
    await third.close();
    await one.transport.terminateSession?.();
    await one.close();
  },

  async sessions_end_with_a_status_that_clients_take() {
    const client = await connected();
    const session = client.transport.sessionId;
    const about = { method: "DELETE", headers: { ...headers, "mcp-session-id": session, "mcp-protocol-version": "2025-06-18" } };
    const ended = await fetch(address, about);
    assert.equal(ended.status, 204);
    assert.equal(await ended.text(), "");
  },

  async progress_is_sent_and_extends_the_client_timeout() {
    const client = await connected();
    const heard = [];
    const options = { timeout: 18000, resetTimeoutOnProgress: true, onprogress: (progress) => heard.push(progress) };
    const result = await call(client, "bash", { command: "sleep 20; echo late", wait_ms: 30000 }, options);
    assert.equal(first(result), "EXITED 0");
    assert.ok(heard.length >= 1 && heard[0].message.includes("still running after 15 s"), JSON.stringify(heard));
    await client.close();
  },

  async near_limit_is_reported() {
    const client = await connected();
    const heard = [];
    const given = { command: "sleep 60", timeout_ms: 4000, warn_ms: 3000, wait_ms: 20000 };
    const result = await call(client, "bash", given, { onprogress: (progress) => heard.push(progress.message) });
    assert.ok(first(result).startsWith("STOPPED BY run wall limit"), text(result));
    assert.ok(heard.some((message) => message.includes("Warning: the wall-clock limit ends it in")), JSON.stringify(heard));
    await client.close();
  },

  async several_bars_are_folded_to_their_last_states() {
    const client = await connected();
    const up = "\\033[1A";
    // As tqdm writes two bars, rich its table of them, and docker what it pulls.
    const tqdm = `printf '\\r'; for i in 1 5 9; do printf "\\ra: $i%%\\n\\rb: $i%%${up}"; done; printf '\\n\\nfirst done\\n'`;
    const rich = `printf 'c: 0%%\\nd: 0%%'; for i in 3 6 9; do printf "\\r\\033[2K${up}\\033[2Kc: $i%%\\nd: $i%%"; done; printf '\\n'`;
    const docker = "printf 'one: Pulling\\ntwo: Pulling\\n\\033[2A\\033[2K\\rone: Done\\r\\033[2B\\033[1A\\033[2K\\rtwo: Done\\r\\033[1B'";
    const wanted = "a: 9%\nb: 9%\nfirst done\nc: 9%\nd: 9%\none: Done\ntwo: Done\n";
    const result = await call(client, "bash", { command: `${tqdm}; ${rich}; ${docker}` });
    assert.ok(text(result).includes(wanted), JSON.stringify(text(result)));
    assert.equal(result.structuredContent.stdout, wanted);
    const { run_id } = result.structuredContent;
    const tail = await call(client, "read_output", { run_id, cursor: 0, tail: 3 });
    assert.ok(text(tail).includes("d: 9%\none: Done\ntwo: Done\n") && !text(tail).includes("Pulling"), JSON.stringify(text(tail)));
    const record = await (await fetch(`${process.env.SANDTIMER_URL}/v1/runs/${run_id}/output`, { headers })).json();
    assert.ok(record.data.startsWith("\r\ra: 1%\n\rb: 1%\x1b[1A"), JSON.stringify(record.data));
    await client.close();
  },

  async a_client_chooses_the_names_of_tools() {
    const listed = async (query) => {
      const client = new Client({ name: "tests", version: "1" });
      await client.connect(new StreamableHTTPClientTransport(new URL(address + query), { requestInit: { headers } }));
      const names = (await client.listTools()).tools.map((tool) => tool.name);
      // Whatever is listed, all names can be called.
      assert.ok(first(await call(client, "Bash", { command: "true" })).startsWith("EXITED 0"), query);
      await client.close();
      return names;
    };
    const [ours, trained, both] = [await listed("?tools=ours"), await listed("?tools=trained"), await listed("?tools=both")];
    assert.ok(ours.includes("bash") && !ours.includes("Bash"), `${ours}`);
    assert.ok(trained.includes("Bash") && !trained.includes("bash"), `${trained}`);
    assert.ok(both.includes("Bash") && both.includes("bash"), `${both}`);
    // The server of this test lists both where a client does not choose.
    assert.deepEqual(await listed(""), both);
    const ask = async (query, body) => {
      const answer = await fetch(address + query, {
        method: "POST",
        headers: {
          ...headers, "content-type": "application/json", accept: "application/json, text/event-stream",
          "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list",
        },
        body: JSON.stringify(body),
      });
      return { status: answer.status, body: await answer.text() };
    };
    // A client without a session says it in each request.
    const message = { jsonrpc: "2.0", id: 1, method: "tools/list", params: {
      _meta: {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "tests", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
      },
    } };
    const alone = await ask("?tools=ours", message);
    assert.equal(alone.status, 200, alone.body);
    assert.ok(alone.body.includes('"bash"') && !alone.body.includes('"Bash"'), alone.body.slice(0, 500));
    for (const [query, code] of [["?tools=mine", "bad_field"], ["?tool=ours", "unknown_field"]]) {
      const refused = await ask(query, message);
      assert.equal(refused.status, 400, refused.body);
      assert.equal(JSON.parse(refused.body).code, code, refused.body);
    }
  },

  async tools_of_a_session_share_its_sandbox() {
    const client = await connected("?sandbox=host");
    const bash = async (of, line) => (await call(of, "bash", { command: line })).structuredContent.stdout;
    assert.equal(await bash(client, "echo 42 >~/answer; id -un"), "user\n");
    const code = "open('/tmp/by_code', 'w').write('7'); open('/home/user/answer').read()";
    assert.equal((await call(client, "run_code", { language: "python", code })).structuredContent.value, "42\n");
    const [made] = await sandboxes();
    assert.deepEqual([made.template, made.idle_ms, made.memory_bytes], ["host", 4 * 3600000, null]);
    const file = `${process.env.SANDTIMER_URL}/v1/files?sandbox=${made.sandbox_id}&path=/home/user/answer`;
    assert.equal(await (await fetch(file, { headers })).text(), "42\n");

    const other = await connected("?memory_bytes=512M&processes=50&idle_ms=60000", { "sandtimer-sandbox": "host" });
    assert.equal(await bash(other, "ls -A ~; ls -A /tmp"), "");
    const [, second] = await sandboxes();
    assert.deepEqual([second.idle_ms, second.memory_bytes, second.processes], [60000, 512 << 20, 50]);
    assert.equal(await bash(client, "cat /tmp/by_code"), "7");

    await call(client, "bash", { command: "sleep 60", background: true });
    const waits = call(client, "bash", { command: "sleep 60" }).catch(() => null);
    await client.transport.terminateSession();
    await sandboxesAre(1);
    assert.equal((await sandboxes())[0].sandbox_id, second.sandbox_id);
    await client.close();
    await waits;
    assert.equal(await bash(other, "echo still here"), "still here\n");
    await other.transport.terminateSession();
    await sandboxesAre(0);
  },

  async session_without_its_sandbox_is_refused() {
    const differ = await refusedSession("?sandbox=host", { "sandtimer-sandbox": "bookworm" });
    assert.ok(differ.includes("the address has `host` and the header Sandtimer-Sandbox has `bookworm`; give one"), differ);
    const unknown = await refusedSession("?sandbox=nothing");
    assert.ok(unknown.includes("there is no template `nothing`; use one of host"), unknown);
    const limit = await refusedSession("?memory_bytes=64M");
    assert.ok(limit.includes("memory_bytes: this is a limit of the session's sandbox; add `sandbox=host`"), limit);
    const endless = await refusedSession("?sandbox=host&idle_ms=0");
    assert.ok(endless.includes("idle_ms: `0` is not a limit"), endless);
    const wrong = await refusedSession("?sandbox=host&network=some");
    assert.ok(wrong.includes("network: `some` is not true or false"), wrong);
    await sandboxesAre(0);
    const agreed = await connected("?sandbox=host", { "sandtimer-sandbox": "host" });
    await sandboxesAre(1);
    await agreed.transport.terminateSession();
    await sandboxesAre(0);
  },

  async sandbox_needs_a_session_that_has_it() {
    const plain = await connected();
    const ask = async (query, method, params, more = {}) => {
      const answer = await fetch(address + query, {
        method: "POST",
        headers: {
          ...headers, "content-type": "application/json", accept: "application/json, text/event-stream",
          "mcp-protocol-version": "2026-07-28", "mcp-method": method, ...more,
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientInfo": { name: "tests", version: "1" },
          "io.modelcontextprotocol/clientCapabilities": {},
        } } }),
      });
      return (await answer.json()).error?.message ?? "no error";
    };
    const bash = { name: "bash", arguments: { command: "true" } };
    for (const [method, params] of [["server/discover", {}], ["tools/list", {}], ["tools/call", bash]]) {
      const more = params.name ? { "mcp-name": params.name } : {};
      const message = await ask("?sandbox=host", method, params, more);
      assert.ok(message.includes("sandbox: `host` needs a session, and this request has none: send `initialize`"), `${method}: ${message}`);
      assert.equal(await ask("", method, params, more), "no error");
    }
    const network = await ask("?network=true", "tools/list", {});
    assert.ok(network.includes("network: `true` needs a session"), network);

    const elsewhere = async (client, query) => {
      const answer = await fetch(address + query, {
        method: "POST",
        headers: {
          ...headers, "content-type": "application/json", accept: "application/json, text/event-stream",
          "mcp-session-id": client.transport.sessionId,
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: 9, method: "tools/list" }),
      });
      return answer.text();
    };
    const none = await elsewhere(plain, "?sandbox=host");
    assert.ok(none.includes("sandbox: this session has none, and cannot get one of `host` now"), none);
    const boxed = await connected("?sandbox=host");
    const another = await elsewhere(boxed, "?sandbox=other");
    assert.ok(another.includes("`other` is not the template of this session's sandbox, `host`"), another);
    const unnetworked = await elsewhere(boxed, "?sandbox=host&network=true");
    assert.ok(unnetworked.includes("network: this session began without it"), unnetworked);
    // The address need not be repeated.
    assert.ok((await elsewhere(boxed, "")).includes('"tools"'));
    await boxed.transport.terminateSession();
    await plain.close();
  },

  async session_with_a_network_needs_the_right() {
    const refused = await refusedSession("?sandbox=host&network=true");
    assert.ok(refused.includes("this token may not give runs the host's network") && refused.includes("Remedy: omit"), refused);
    await sandboxesAre(0);
    const other = { Authorization: "Bearer other-secret-token-1234" };
    const networked = await connected("?sandbox=host&network=true", other);
    await sandboxesAre(0);
    const namespace = await call(networked, "bash", { command: "readlink /proc/self/ns/net; id -un" });
    assert.equal(namespace.structuredContent.stdout, `${await readlink("/proc/self/ns/net")}\nuser\n`);
    const ask = (authorization) => fetch(address, {
      method: "POST",
      headers: {
        "content-type": "application/json", accept: "application/json, text/event-stream",
        authorization, "mcp-session-id": networked.transport.sessionId,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 9, method: "tools/list" }),
    });
    assert.equal((await ask(headers.Authorization)).status, 404);
    assert.equal((await ask(other.Authorization)).status, 200);
  },

  async session_stays_open_with_its_sandbox() {
    const client = await connected("?sandbox=host");
    await call(client, "bash", { command: "sleep 60", background: true });
    await sandboxesAre(1);
  },

  async session_is_hidden_from_other_tokens() {
    const client = await connected();
    const { run_id } = (await call(client, "bash", { command: "sleep 30", background: true })).structuredContent;
    const session = client.transport.sessionId;
    const ask = (token) => fetch(address, {
      method: "POST",
      headers: {
        "content-type": "application/json", accept: "application/json, text/event-stream",
        authorization: `Bearer ${token}`, "mcp-session-id": session,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 9, method: "tools/list" }),
    });
    assert.equal((await ask("first-secret-token-1234")).status, 200);
    assert.equal((await ask("other-secret-token-1234")).status, 404);
    assert.equal((await ask("no-token-of-this-server")).status, 401);
    await call(client, "kill", { run_id });
    await client.close();
  },
};

const [name] = process.argv.slice(2);
try {
  await scenarios[name]();
  process.stdout.write(`passed: ${name}\n`);
  process.exit(0);
} catch (error) {
  process.stderr.write(`${error.stack ?? error}\n`);
  process.exit(1);
}
