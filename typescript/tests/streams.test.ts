/** Streams over connections that break, dribble and fall away: nothing is lost, nothing comes twice. */

import assert from "node:assert/strict";
import { after, before, mock, test } from "node:test";
import { Client, UnreachableError } from "sandtimer";
import { EventParser } from "#sse";
import { Proxy, Serving, collect } from "./support.js";

let serving: Serving;

before(async () => {
  serving = await Serving.start();
});
after(() => serving[Symbol.asyncDispose]());

const LINES = "for i in $(seq 3000); do echo \"$i añ€😀\"; done";
const EXPECTED = Array.from({ length: 3000 }, (_, at) => `${at + 1} añ€😀\n`).join("");

test("an event may be cut anywhere", () => {
  const text = ": hello\n\nid: 1\r\nevent: stdout\r\ndata: ä€😀\r\n\r\nid: 2\ndata: a\ndata:b\n\nevent: nothing\n\ndata: cut off\n";
  const bytes = new TextEncoder().encode(text);
  const expected = [
    { id: "1", event: "stdout", data: "ä€😀" },
    { id: "2", event: "message", data: "a\nb" },
  ];
  for (let first = 0; first <= bytes.length; first += 1) {
    for (const second of [first, (first + bytes.length) >> 1]) {
      const parser = new EventParser();
      const pieces = [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)];
      assert.deepEqual(pieces.flatMap((piece) => parser.feed(piece)), expected, `${first}, ${second}`);
    }
  }
});

test("characters that are cut by small pieces of the stream come whole", async () => {
  await using proxy = await Proxy.start(serving.url, (bytes, socket) => {
    socket.setNoDelay(true);
    for (let at = 0; at < bytes.length; at += 1_001) socket.write(bytes.subarray(at, at + 1_001));
  });
  const run = await new Client({ url: proxy.url }).start({ command: LINES });
  assert.equal((await collect(run.output())).map((chunk) => chunk.text).join(""), EXPECTED);
});

test("characters that a run writes in halves come whole, and what is none is replaced", async () => {
  const client = serving.client();
  const code = "import os, time\nfor byte in b'\\xe2\\x82\\xac\\xff!\\xe2':\n    os.write(1, bytes([byte])); time.sleep(0.03)";
  const run = await client.start({ code, language: "python" });
  const chunks = await collect(run.output());
  assert.equal(chunks.map((chunk) => chunk.text).join(""), "€\ufffd!\ufffd");
  assert.deepEqual(Buffer.concat(chunks.map((chunk) => chunk.bytes)), Buffer.from([0xe2, 0x82, 0xac, 0xff, 0x21, 0xe2]));
});

test("a connection that is cut again and again in the middle of a stream loses and repeats nothing", async () => {
  let cut = 0;
  const had = new Map<number, number>();
  await using proxy = await Proxy.start(serving.url, (bytes, socket, connection) => {
    const before = had.get(connection) ?? 0;
    had.set(connection, before + bytes.length);
    // In the middle of an event, and of a character as often as not.
    const most = 90_011 + 13 * connection;
    if (before + bytes.length < most) socket.write(bytes);
    else {
      cut += 1;
      socket.write(bytes.subarray(0, most - before), () => socket.destroy());
    }
  });
  const client = new Client({ url: proxy.url });
  const run = await serving.client().start({ command: `for n in $(seq 12); do ${LINES}; done` });
  const chunks = await collect(client.attach(run.id).output());
  assert.equal(chunks.map((chunk) => chunk.text).join(""), EXPECTED.repeat(12));
  assert(cut >= 5, `${cut} cuts`);
  let cursor = 0;
  for (const chunk of chunks) {
    assert.equal(chunk.cursor, cursor);
    cursor += chunk.bytes.length;
  }
});

test("whoever waits for a run does so through a crash of the server, and hears of it", async () => {
  await using crashing = await Serving.start();
  await using proxy = await Proxy.start(crashing.url, (bytes, socket) => socket.write(bytes));
  const run = await new Client({ url: proxy.url }).start({ command: "echo before; sleep 600" });
  const events = run.events();
  for (let next = await events.next(); !next.done; next = await events.next()) {
    if (next.value.event === "stdout") break;
  }
  const waited = run.wait();
  await crashing.crash();
  await crashing.launch();
  proxy.target = crashing.url;
  assert.equal((await waited).ending, "infra_error");
  const rest = await collect(events);
  assert.deepEqual(rest.map((event) => event.event), ["ended"]);
});

test("a server that is gone is given up after some tries", async () => {
  let tries = 0;
  const asked: Array<string | undefined> = [];
  const gone: typeof fetch = (_, init) => {
    tries += 1;
    asked.push((init?.headers as Record<string, string>)["Last-Event-ID"]);
    return Promise.reject(new TypeError("fetch failed"));
  };
  const waits: number[] = [];
  const timers = mock.method(globalThis, "setTimeout", (done: () => void, milliseconds: number) => {
    waits.push(milliseconds);
    return setImmediate(done);
  });
  try {
    const run = new Client({ url: serving.url, fetch: gone }).attach("one");
    await assert.rejects(collect(run.events({ after: "1-0-5-0" })), UnreachableError);
    await assert.rejects(run.wait(), UnreachableError);
  } finally {
    timers.mock.restore();
  }
  assert.equal(tries, 22);
  assert.deepEqual(asked.slice(0, 11), Array.from({ length: 11 }, () => "1-0-5-0"));
  assert(waits.every((wait) => wait <= 5_000) && waits.length === 20, String(waits));
});

test("a reader that leaves closes its connection", async () => {
  let closed: () => void;
  const gone = new Promise<void>((resolve) => (closed = resolve));
  await using proxy = await Proxy.start(serving.url, (bytes, socket) => {
    socket.once("close", () => closed());
    socket.write(bytes);
  });
  await using run = await serving.client().start({ command: ["sleep", "60"] });
  for await (const event of new Client({ url: proxy.url }).attach(run.id).events()) {
    assert.equal(event.event, "started");
    break;
  }
  await gone;
});
