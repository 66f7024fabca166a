/** An abort cancels a run in the foreground: nothing of it is left on the server. */

import { Client } from "sandtimer";

const client = new Client();

try {
  await client.run({ command: "sleep 600 & sleep 600" }, { signal: AbortSignal.timeout(500) });
} catch (error) {
  console.log("gave up:", (error as Error).name);
}
const { runs } = await client.runs({ limit: 1 });
const [last] = runs;
if (last !== undefined) console.log((await client.attach(last.run_id).wait()).ending);
