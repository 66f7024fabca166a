//! JavaScript contexts: a process that the interpreter has given its channel to is not the
//! interpreter.

use sandtimer::model::{RemainingState, Reporter};
use sandtimer::{Ending, Outcome};

use crate::live::{javascript_context, run};

/// Makes an answer with the nonce of the cell that calls it, which JavaScript is never given: the
/// last displayed value follows it in the add-on's memory.
const FORGER: &str = r#"
const fs = require('fs'), CHANNEL = 3;
function forged() {
  const marker = `marker-${process.hrtime.bigint()}`;
  display(marker);
  const memory = fs.openSync('/proc/self/mem');
  try {
    let isBehind = false;
    for (const line of fs.readFileSync('/proc/self/maps', 'latin1').split('\n')) {
      const [range, mode, , , inode] = line.split(/\s+/);
      const isAddOn = line.includes('/memfd:');
      const isSearched = (isAddOn || (isBehind && inode === '0')) && mode.startsWith('rw');
      isBehind = isAddOn || (isBehind && isSearched);
      if (!isSearched) continue;
      const [start, end] = range.split('-').map((address) => parseInt(address, 16));
      const bytes = Buffer.alloc(end - start);
      fs.readSync(memory, bytes, 0, bytes.length, start);
      const text = bytes.indexOf(marker);
      for (let at = text; text >= 0 && at >= 0; at -= 1) {
        if (bytes[at] === 0x4a && bytes[at + 17] === 0x44 && bytes[at + 18] === 0x7b) {
          const answer = '{"status":"ok","results":[{"text/plain":"forged"}],"execution_count":7,"interrupted":false}';
          return Buffer.concat([bytes.subarray(at, at + 17), Buffer.from(`v${answer}`)]);
        }
      }
    }
  } finally {
    fs.closeSync(memory);
  }
  throw new Error('the nonce is not found');
}
"#;

/// What fails as tests do, after a moment.
const FAILS: &str = "await new Promise((resolve) => setTimeout(resolve, 300)); throw new Error('1 failed')";

fn assert_failed(outcome: &Outcome) {
    assert_eq!((outcome.ending, outcome.state), (Ending::Raised, RemainingState::Kept), "{outcome:?}");
    assert_eq!(outcome.error.as_ref().expect("an error")["message"], "1 failed", "{outcome:?}");
    assert_eq!(outcome.reported_by, Reporter::Interpreter);
}

/// Sends the answer from a child that has the channel, as often as it can for 200 ms, and fails.
fn child_sends(program: &str) -> String {
    format!(
        "{FORGER}\nrequire('child_process').spawnSync({program}, \
         {{ input: forged(), stdio: ['pipe', 'inherit', 'inherit', CHANNEL] }});\n{FAILS}"
    )
}

#[test]
fn answer_of_child_with_current_nonce_is_dropped() {
    let context = javascript_context();
    let sends = "import os, sys, time\npacket = sys.stdin.buffer.read()\nfor _ in range(50):\n    os.write(3, packet); time.sleep(0.004)\nprint(len(packet) > 18)";
    let outcome = run(&context, &child_sends(&format!("'python3', ['-c', {sends:?}]")));
    assert_eq!(outcome.stdout, "True\n", "{outcome:?}");
    assert_failed(&outcome);
    // Another JavaScript interpreter is also another process.
    let sends = "const packet = fs.readFileSync(0); let sent = 0; for (let i = 0; i < 50; i += 1) sent += fs.writeSync(3, packet); \
                 console.log(packet.length > 18 && sent === 50 * packet.length)";
    let outcome = run(&context, &child_sends(&format!("process.execPath, ['-e', {sends:?}]")));
    assert_eq!(outcome.stdout, "true\n", "{outcome:?}");
    assert_failed(&outcome);
}

/// The control: the same packet counts if the interpreter's own process sends it.
#[test]
fn answer_of_interpreter_with_current_nonce_counts() {
    let context = javascript_context();
    let outcome = run(&context, &format!("{FORGER}\nfs.writeSync(CHANNEL, forged());\n{FAILS}"));
    assert_eq!(
        (outcome.ending, outcome.reported_by),
        (Ending::Returned, Reporter::Interpreter),
        "{outcome:?}"
    );
    let shown = outcome.results.last().expect("an answer");
    assert_eq!(shown["text/plain"], "forged");
}

#[test]
fn answer_with_earlier_nonce_is_dropped() {
    let context = javascript_context();
    let keeps = "var kept = forged(), sent = 0; var timer = setInterval(() => { sent += fs.writeSync(CHANNEL, kept) }, 5); 'kept'";
    let outcome = run(&context, &format!("{FORGER}\n{keeps}"));
    assert!(outcome.ok, "{outcome:?}");
    let before = run(&context, "sent = 0; kept.length");
    let length = before.value.as_ref().and_then(serde_json::Value::as_u64).expect("a length");
    assert_failed(&run(&context, FAILS));
    let after = run(&context, "clearInterval(timer); sent");
    let sent = after.value.as_ref().and_then(serde_json::Value::as_u64).expect("a length");
    assert!(sent >= 5 * length, "the timer did not fire: {after:?}");
}
