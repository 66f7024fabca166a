// Plays one scenario with the official TypeScript client: `node drive.mjs SCENARIO`.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const modules = process.env.SANDTIMER_TEST_NPM;
const sdk = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/sdk/dist/esm/${path}.js`));
const { Client } = await sdk("client/index");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp");
const address = `${process.env.SANDTIMER_URL}/mcp`;
const headers = process.env.SANDTIMER_TOKEN ? { Authorization: `Bearer ${process.env.SANDTIMER_TOKEN}` } : {};

async function connected() {
  const client = new Client({ name: "tests", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(address), { requestInit: { headers } }));
  return client;
}

const call = (client, name, args = {}, options) => client.callTool({ name, arguments: args }, undefined, options);
const text = (result) => result.content.map((block) => block.text).join("");
const first = (result) => text(result).split("\n")[0];

const scenarios = {
  async every_tool() {
    const client = await connected();
    const used = new Set();
    const act = async (name, args, wanted) => {
      used.add(name);
      const result = await call(client, name, args);
      assert.ok(!result.isError && wanted(result), `${name}: ${text(result)}`);
      return result.structuredContent;
    };
    const begins = (words) => (result) => first(result).startsWith(words);
    const background = { command: "echo begun; read line; echo got $line; sleep 60", background: true, stdin_open: true };
    const { run_id } = await act("bash", { ...background, timeout_ms: 30000 }, begins("STILL RUNNING"));
    await act("read_output", { run_id, wait_ms: 20000 }, (result) => text(result).includes("begun"));
    await act("write_stdin", { run_id, data: "it\n", wait_ms: 20000 }, (result) => text(result).includes("got it"));
    await act("list_runs", {}, (result) => text(result).includes(run_id));
    await act("extend", { run_id, by_ms: 60000 }, begins("STILL RUNNING"));
    await act("pause", { run_id }, (result) => result.structuredContent.paused);
    await act("resume", { run_id }, (result) => !result.structuredContent.paused);
    await act("time_left", { run_id }, (result) => /wall_ms 9\d{4} set by call/.test(text(result)));
    await act("wait", { run_ids: [run_id], wait_ms: 0 }, begins("STILL RUNNING: 1 of 1"));
    await act("kill", { run_id }, begins("STOPPED BY cancel"));
    await act("run_code", { language: "javascript", code: "[1, 2].map((x) => x * 2)" }, begins("EXITED 0"));
    const { bash_id } = await act("Bash", { command: "echo alias; sleep 60", background: true }, (result) =>
      text(result).includes("Started background process: bash_"));
    await act("BashOutput", { bash_id }, (result) => text(result).includes("=== Status: RUNNING ==="));
    await act("KillShell", { shell_id: bash_id }, begins("STOPPED BY cancel"));
    await act("ReadBashOutput", { shell_id: bash_id }, (result) => text(result).includes("=== Status: KILLED ==="));
    await act("estimate_duration", { task_type: "load_data" }, (result) => text(result).includes("Typical"));
    await act("begin_task", { label: "work", max_ms: 60000 }, (result) => text(result).includes("work"));
    await act("report_progress", { task: "work", done: 1, total: 3 }, (result) => text(result).includes("1 of 3"));
    await act("end_task", { label: "work" }, (result) => result.structuredContent.took_ms >= 0);
    await act("EstimateTaskDuration", { task_type: "explore_data" }, (result) => text(result).includes("Typical:"));
    const { tools } = await client.listTools();
    const left = tools.map((tool) => tool.name).filter((name) => !used.has(name));
    assert.deepEqual(left, [], "every tool is used once");
    await client.close();
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

  async the_inspector() {
    const inspect = async (...args) => {
      const inspector = `${modules}/@modelcontextprotocol/inspector/clients/launcher/build/index.js`;
      const { stdout } = await promisify(execFile)("node", [inspector, "--cli", address, "--transport", "http", ...args]);
      return JSON.parse(stdout);
    };
    const { tools } = await inspect("--strict", "--method", "tools/list");
    assert.ok(tools.length >= 15);
    const result = await inspect("--method", "tools/call", "--tool-name", "bash", "--tool-arg", "command=echo inspected");
    assert.equal(result.structuredContent.stdout, "inspected\n");
    assert.equal(first(result), "EXITED 0");
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
