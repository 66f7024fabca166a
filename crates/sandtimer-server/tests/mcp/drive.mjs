// Plays one scenario with the official TypeScript client, or the inspector's command line: `node drive.mjs SCENARIO`. Over
// stdin and stdout of the command that SANDTIMER_MCP names, a JSON array; else over HTTP with the server at SANDTIMER_URL.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
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

async function connected() {
  const client = new Client({ name: "tests", version: "1" });
  const carried = command.length
    ? new StdioClientTransport({ command: command[0], args: command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(address), { requestInit: { headers } });
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
const text = (result) => result.content.map((block) => block.text).join("");
const first = (result) => text(result).split("\n")[0];

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
  await act("end_task", { label: "work" }, says(keeps ? "Task `work` took" : "no task `work` goes on"), !keeps);
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

  async progress_is_told_and_extends_the_clients_patience() {
    const client = await connected();
    const heard = [];
    const options = { timeout: 18000, resetTimeoutOnProgress: true, onprogress: (progress) => heard.push(progress) };
    const result = await call(client, "bash", { command: "sleep 20; echo late", wait_ms: 30000 }, options);
    assert.equal(first(result), "EXITED 0");
    assert.ok(heard.length >= 1 && heard[0].message.includes("still running after 15 s"), JSON.stringify(heard));
    await client.close();
  },

  async a_limit_that_is_near_is_told() {
    const client = await connected();
    const heard = [];
    const given = { command: "sleep 60", timeout_ms: 4000, warn_ms: 3000, wait_ms: 20000 };
    const result = await call(client, "bash", given, { onprogress: (progress) => heard.push(progress.message) });
    assert.ok(first(result).startsWith("STOPPED BY run wall limit"), text(result));
    assert.ok(heard.some((message) => message.includes("Warning: the wall limit ends it in")), JSON.stringify(heard));
    await client.close();
  },

  async another_token_sees_nothing_of_a_session() {
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
