/** A live interpreter whose variables outlive a cell that has to be ended, and a live shell. */

import { Client, SandtimerError } from "sandtimer";

const client = new Client();

{
  await using context = await client.context({ language: "python", wall_ms: "20s" });
  await context.execute("numbers = [1, 2, 3]");
  const deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)";
  const stuck = await context.execute(`${deaf}\nnumbers.clear()\nwhile True: pass`, { wall_ms: 500 });
  console.log(stuck.ending, stuck.state);
  const { value, results } = await context.execute("sum(numbers)");
  console.log(value, results);
}
{
  await using session = await client.session();
  await session.execute("cd /tmp && export WORD=kept");
  console.log((await session.execute("pwd; echo $WORD")).stdout);
}
try {
  await client.run({ command: ["true"], wall_ms: -1 });
} catch (error) {
  if (!(error instanceof SandtimerError)) throw error;
  console.log(error.code, "-", error.hint);
}
