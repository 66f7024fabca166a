// Runs one scenario and says how it went: `node --import ./register.mjs drive.mjs SCENARIO`.
import { scenarios } from "./scenarios.mjs";

const [name] = process.argv.slice(2);
try {
  await scenarios[name]();
  process.stdout.write(`passed: ${name}\n`);
  process.exit(0);
} catch (error) {
  process.stderr.write(`${error.stack ?? error}\n${JSON.stringify(error, null, 1)}\n`);
  process.exit(1);
}
