/** Runs a program that would never end, and reads what became of it. */

import { Client } from "sandtimer";

// SANDTIMER_SERVER and SANDTIMER_TOKEN say where; without them it is http://127.0.0.1:7880.
const client = new Client();

const outcome = await client.run({
  code: "print('thinking', flush=True)\nwhile True: pass",
  language: "python",
  wall_ms: 500,
  memory_bytes: "256M",
});
console.log(outcome.ending, JSON.stringify(outcome.stdout), `survivors: ${outcome.tree.survivors}`);
console.log(outcome.verdict?.sentence);
