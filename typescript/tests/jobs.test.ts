/** Jobs of a real server: submitted, listed, waited for, cancelled, and across a crash. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { SandtimerError, type Client, type JobEvent, type JobRequest } from "sandtimer";
import { Serving, collect, until } from "./support.js";

let serving: Serving;
let client: Client;

before(async () => {
  serving = await Serving.start();
  client = serving.client();
});
after(() => serving[Symbol.asyncDispose]());

test("a job is submitted, waited for and listed", async () => {
  const job = await client.submit({ command: ["sh", "-c", "echo done"], name: "small", queue: "ts", wall_ms: "1m" });
  const info = await job.wait();
  assert.deepEqual([info.state, info.ok, info.name, info.result?.status], ["ended", true, "small", "ok"]);
  assert.deepEqual([(await job.readLog()).data, (await job.readLog({ cursor: 2 })).data], ["done\n", "ne\n"]);
  const bytes = await client.submit({ command: ["sh", "-c", "printf 'a\\377b'"], queue: "bytes" });
  assert.equal((await bytes.wait({ errors: "replace" })).result?.outcome?.stdout, "a\ufffdb");
  assert.equal((await bytes.info()).result?.outcome?.stdout_encoding, "base64");
  assert.deepEqual([(await bytes.readLog({ errors: "replace" })).data, (await bytes.readLog()).data], ["a\ufffdb", "Yf9i"]);
  for await (const { event, data } of bytes.events({ errors: "replace" })) if (event === "log") assert.equal(data.data, "a\ufffdb");
  const two = await client.submitAll([{ command: ["true"], queue: "ts" }, { code: "print(1)", language: "python", queue: "ts" }]);
  for (const one of two) assert.equal((await one.wait()).ok, true);
  const first = await client.jobs({ queue: "ts", limit: 2 });
  assert.equal(first.jobs.length, 2);
  const rest = await client.jobs({ queue: "ts", limit: 2, cursor: first.next as string });
  assert.deepEqual([rest.jobs.map((line) => line.job_id), rest.next], [[job.id], null]);
});

test("a list fans out into jobs, and one waits for all of them", async () => {
  const request = {
    name: "square",
    command: ["sh", "-c", "echo $((SANDTIMER_ITEM * SANDTIMER_ITEM))"],
    map: { over: [2, 3], then: { command: ["cat", "squares"], after_results: "squares" } },
  };
  const jobs = await client.submitAll([request]);
  const outcome = (await (jobs[2] as (typeof jobs)[0]).wait()).result?.outcome;
  assert.deepEqual((JSON.parse(outcome?.stdout ?? "") as { stdout: string }[]).map((one) => one.stdout), ["4\n", "9\n"]);
  await assert.rejects(client.submit(request), TypeError);
});

test("a schedule is stored, listed, and submits its job", async () => {
  const stored = await client.schedule("ticks", { every_ms: "1s", job: { command: ["true"], queue: "ticks" } });
  assert.deepEqual([stored.name, stored.queue, stored.submitted, stored.spec.every_ms], ["ticks", "ticks", 0, "1s"]);
  await until(async () => (await client.schedules())[0]?.submitted !== 0);
  assert.deepEqual([(await client.pauseSchedule("ticks")).next_ms, (await client.schedules())[0]?.spec.paused], [null, true]);
  assert.notEqual((await client.resumeSchedule("ticks")).next_ms, null);
  assert.deepEqual([await client.unschedule("ticks"), await client.unschedule("ticks")], [true, false]);
  const [line] = (await client.jobs({ queue: "ticks", limit: 1 })).jobs;
  const { spec } = await client.attachJob(line?.job_id ?? "").wait();
  assert.equal((spec as unknown as { scheduled: { schedule: string } }).scheduled.schedule, "ticks");
  const wrong = client.schedule("bad", { cron: "often", job: { command: ["true"] } });
  await assert.rejects(wrong, (error: unknown) => error instanceof SandtimerError && error.details?.["path"] === "cron");
});

test("files go in with a job, and what it leaves is listed and read", async () => {
  const job = await client.submit({
    command: ["sh", "-c", "tr a-z A-Z < in > 'out 1'"],
    inputs: { in: "hello" },
    outputs: ["out*", "absent"],
  });
  await job.wait();
  const { files, refused } = await job.files();
  assert.deepEqual([files.map((file) => [file.name, file.bytes]), refused.map((file) => file.name)], [[["out 1", 5]], ["absent"]]);
  assert.equal(new TextDecoder().decode(await job.readFile("out 1")), "HELLO");
  await assert.rejects(job.readFile("absent"), (error: unknown) => error instanceof SandtimerError && error.code === "job_file_not_found");
});

test("what is refused names the field, and of a batch the job", async () => {
  const wrong = { command: ["true"], steps: [{}] };
  await assert.rejects(client.submitAll([{ command: ["true"] }, wrong]), (error: unknown) => {
    assert(error instanceof SandtimerError);
    assert.deepEqual([error.code, error.details["index"], error.details["path"]], ["bad_spec", 1, "command"]);
    return true;
  });
  await assert.rejects(client.attachJob("nobody").info(), (error: unknown) => error instanceof SandtimerError && error.code === "job_not_found");
});

test("breakers that jobs share are listed in parts", async () => {
  for (const key of ["mail:send", "mail:sent"]) {
    const breaker = { failures: 1, scope: "store" } as unknown as NonNullable<JobRequest["breaker"]>;
    const job = await client.submit({ command: ["false"], key, breaker });
    await job.wait();
  }
  const first = await client.breakers({ limit: 1 });
  const second = await client.breakers({ cursor: first.next ?? "" });
  assert.deepEqual([first.breakers, second.breakers].flat().map(({ key, state }) => [key, state]), [["mail:send", "open"], ["mail:sent", "open"]]);
  assert.equal(second.next, null);
});

test("workers are listed, and a webhook is sent again", async () => {
  const workers = await client.jobWorkers();
  assert(workers.length > 0 && workers.every((worker) => worker.slots > 0), JSON.stringify(workers));
  const job = await client.submit({ command: ["true"], webhook: { url: "http://127.0.0.1:9/", events: ["dead"] } });
  await job.wait();
  const { job_id, webhook } = await job.redeliver();
  assert.deepEqual([job_id, webhook.url, typeof webhook.due_ms], [job.id, "http://127.0.0.1:9/", "number"]);
});

test("a job that goes on is cancelled", async () => {
  const job = await client.submit({ command: ["sleep", "600"] });
  await until(async () => (await job.info()).state === "leased");
  assert.deepEqual(await job.cancel({ reason: "enough" }), { job_id: job.id, cancelled: "asked", state: "cancelled" });
  assert.equal((await job.wait()).error, "Cancelled: enough.");
  assert.equal((await job.retry()).state, "queued");
  await job.cancel();
});

test("a deadline names its layer, and events are read to the end", async () => {
  const job = await client.submit({ command: ["sh", "-c", "echo begun; sleep 60"], wall_ms: 500 });
  const events: JobEvent[] = await collect(job.events());
  const last = events.at(-1);
  assert(last?.event === "ended");
  assert.deepEqual([last.data.result?.status, last.data.result?.verdict?.layer], ["timeout", "job"]);
  assert.equal(events.map((event) => (event.event === "log" ? event.data.data : "")).join(""), "begun\n");
  assert.deepEqual(await collect(job.events({ after: last.id })), []);
});

test("a wait goes on through a crash of the server", async () => {
  await using own = await Serving.start();
  const job = await own.client().submit({ command: ["sh", "-c", "sleep 2; echo done"] });
  await until(async () => (await job.info()).state === "leased");
  await own.crash();
  await own.launch();
  const info = await own.client().attachJob(job.id).wait();
  assert.deepEqual([info.ok, info.deliveries, info.duplicates], [true, 2, []]);
});
