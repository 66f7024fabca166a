// Sandboxes: file systems in which many runs work, and which outlive them and the server.

let sandboxes = [];
/** Whether the server has answered with the sandboxes since the page was opened. */
let areSandboxesKnown = false;

async function loadSandboxes(signal) {
  const answer = await get("/v1/sandboxes");
  if (signal.aborted) return;
  sandboxes = answer.sandboxes.sort((one, other) => other.created_at_ms - one.created_at_ms);
  areSandboxesKnown = true;
}

const sandboxState = (sandbox) => (sandbox.runs > 0 ? ["in use", "good"] : "idle");

const sandboxFacts = (sandbox) => [sandboxState(sandbox), some(sandbox.runs, "run", "runs"), `template ${sandbox.template}`, `created ${ago(Date.now() - sandbox.created_at_ms)}`];

const durabilityWords = (sandbox) => (sandbox.durability === "certain" ? "" : "The machine was restarted after its files had been used: what had not reached the disk is lost.");

function drawSandbox(sandbox, { text, line, sentence }) {
  say(text, `sandbox ${sandbox.sandbox_id}`);
  facts(line, ...sandboxFacts(sandbox));
  say(sentence, durabilityWords(sandbox));
}

const sandboxWords = (sandbox) => `${sandbox.sandbox_id} ${sandbox.template} ${sandbox.runs > 0 ? "in use" : "idle"} ${sandbox.durability}`;

function drawChosenSandbox() {
  const sandbox = sandboxes.find((one) => one.sandbox_id === chosen.id);
  if (!sandbox) {
    offer([]);
    facts(at("state"), areSandboxesKnown ? ["It was deleted, or is not yours.", "late"] : null);
    panel("What it is", null);
    return;
  }
  facts(at("state"), ...sandboxFacts(sandbox));
  say(at("doing"), durabilityWords(sandbox));
  show(at("doing"), sandbox.durability !== "certain");
  const ends = sandbox.runs > 0 ? `, and ${some(sandbox.runs, "run", "runs")} in it ${sandbox.runs === 1 ? "ends" : "end"}` : "";
  offer([{ id: "delete", label: "Delete…", ends: true, question: `Delete sandbox ${sandbox.sandbox_id}? Its files are deleted${ends}.`, act: deleteSandbox }]);
  panel("What it is", sandbox, (shown) => {
    const list = made("dl", "");
    pairs(list, [
      ["Template", shown.template], ["Created", moment(shown.created_at_ms)], ["Runs in it", counted(shown.runs)],
      ["Files", shown.durability === "certain" ? "complete" : "may be incomplete"],
    ]);
    return list;
  });
}

async function deleteSandbox(id) {
  await remove(`/v1/sandboxes/${id}`);
  sandboxes = sandboxes.filter((sandbox) => sandbox.sandbox_id !== id);
  return "It is deleted.";
}
