/** Starts a run in the background, shows what it writes as it comes, and answers it. */

import { Client } from "sandtimer";

const client = new Client();

await using run = await client.start({
  code: "name = input('who? ')\nfor word in ('hello', name): print(word, flush=True)",
  language: "python",
  stdin_open: true,
  wall_ms: "30s",
});
for await (const { stream, text } of run.output()) {
  console.log(stream, JSON.stringify(text));
  if (text.includes("who?")) await run.write("Ada\n", { eof: true });
}
const outcome = await run.wait();
console.log(outcome.ending, outcome.exit_code);
