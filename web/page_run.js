// One run: what it is made of, what was foretold and measured, what happened, and what it prints.
import { h, replace, setText } from "./dom.js";
import { brief, clock, compact, duration, kindOf, metricLabel, number, stateLabel } from "./format.js";
import { get, hasEnded, post, runPath } from "./api.js";
import { Board } from "./curves.js";
import { EventsList } from "./events.js";
import { quantity } from "./facts.js";
import { LogTail } from "./log.js";
import { flatten, progressBar, section, reasonOf, setProgress, setState, stateBadge, table, tellsReason } from "./parts.js";
import { sweptLabels } from "./swept.js";
import { curvesOf, findRun, refresh, store } from "./store.js";

const first = ["loss", "validation_loss", "grad_norm", "tokens_per_second"];

const definition = rows => h("dl", {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== "–")
  .map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));

// The names are the daemon's. Before its end a run has measured little: what nothing is known of has no line.
function planTable(show) {
  const rows = (show.predicted || []).filter(row => row.predicted !== null || row.measured !== null);
  if (!rows.length) return null;
  return table([{ label: "" }, { label: "Predicted", number: true }, { label: "Measured", number: true }],
    rows.map(row => [row.name, quantity(row.predicted, row.unit), quantity(row.measured, row.unit)]));
}

const nodesShown = 4;

// The first of many; all of them where the pointer rests.
function nodesOf(attempt) {
  const nodes = attempt.nodes || [];
  return nodes.length ? h("span", { title: nodes.join(", ") }, nodes.slice(0, nodesShown).join(", "), nodes.length > nodesShown ? ` and ${nodes.length - nodesShown} more` : "") : "–";
}

function attemptsTable(show) {
  if (!show.attempts.length) return h("p", { class: "quiet" }, "Not started yet.");
  return table([{ label: "Attempt" }, { label: "State" }, { label: "Job" }, { label: "Nodes" }, { label: "Submitted" }, { label: "Ended" }, { label: "Exit code" }],
    show.attempts.map(attempt => [String(attempt.number), stateBadge(attempt.state || "?"), String(attempt.job_id ?? "–"), nodesOf(attempt), brief(attempt.started), brief(attempt.ended),
      attempt.signal ? `signal ${attempt.signal}` : String(attempt.code ?? "–")]));
}

// "Slurm, job 7": where it runs, and by which number its scheduler knows it.
function place(show) {
  const job = (show.attempts.at(-1) || {}).job_id;
  return show.executor === "slurm" ? `Slurm${job ? `, job ${job}` : ""}` : show.executor === "local" ? null : show.executor;
}

function provenance(show) {
  const rows = flatten(show.provenance);
  if (!rows.length) return h("p", { class: "quiet" }, "Nothing is recorded yet.");
  return h("div", { class: "pairs" }, rows.map(([key, value]) => h("div", {}, h("span", { class: "quiet" }, key), h("code", {}, String(value)))));
}

// Buttons that change something ask once more before they do.
function action(label, question, perform) {
  const button = h("button", { type: "button", class: "button", on: {
    click: async () => {
      if (button.textContent !== question) { button.textContent = question; button.classList.add("button-danger"); return; }
      button.disabled = true;
      await perform().catch(fault => { button.title = fault.message; button.textContent = fault.message; });
      button.disabled = false;
      calm();
    },
    blur: () => calm(),
  } }, label);
  const calm = () => { button.textContent = label; button.classList.remove("button-danger"); };
  return button;
}

export function open(root, query, name) {
  let closed = false, seen = "";
  const events = new EventsList();
  const path = runPath(name);
  const state = stateBadge("created"), bar = progressBar(), steps = h("span", { class: "quiet" }), reason = h("p", { class: "notice", hidden: true });
  const kind = h("span", { class: "tag" });
  const cancel = action("Cancel", "Really cancel?", async () => { await post(`${path}/cancel`); refresh(); });
  const retry = action("Retry", "Start another attempt?", async () => { await post(`${path}/retry`); refresh(); });
  const compare = h("a", { class: "button", href: `#/charts?runs=${name}` }, "All charts");
  const board = new Board(null, { runs: [name] });
  const grid = h("div", { class: "grid grid-two" }), about = h("div"), details = h("div");
  const log = new LogTail(name, () => findRun(name));
  replace(root, h("div", { class: "page-head" }, h("h1", {}, h("span", { class: "quiet" }, `${name.split("/")[0]} /`), ` ${name.split("/")[1]} `, kind),
    h("div", { class: "filters" }, compare, cancel, retry)),
    h("div", { class: "run-state" }, state, bar, steps), reason, about, grid, section("Output", log.element), details);

  function showHead(run) {
    setState(state, run.state);
    setProgress(bar, run);
    bar.hidden = !run.iterations;
    setText(kind, kindOf(run));
    const figures = [run.iterations ? `${number(run.step)} / ${number(run.iterations)} steps` : null, run.loss !== null ? `loss ${number(run.loss)}` : null,
      run.tokens_per_second ? `${compact(run.tokens_per_second)} tokens/s` : null, !hasEnded(run) && run.eta_seconds ? `${duration(run.eta_seconds)} to go` : null];
    setText(steps, figures.filter(Boolean).join("  ·  "));
    const telling = tellsReason(run);
    reason.hidden = !telling;
    setText(reason, telling ? reasonOf(run) : "");
    cancel.hidden = hasEnded(run);
    retry.hidden = !hasEnded(run) || run.state === "succeeded";
    compare.hidden = !run.iterations;
  }

  function showDetails(show) {
    replace(about, definition([["Directory", h("code", {}, show.directory)], ["Run id", h("code", {}, show.run_id)], ["Executor", place(show)], ["Submitted", clock(show.created)],
      ["Expected start", clock(show.expected_start)],
      ["Started", clock(show.started)], ["Ended", clock(show.ended)], ["Sweep", show.sweep ? [show.sweep_of, " ", sweptLabels(show)] : null], ["Needs", (show.needs || []).map(need => `${need.run} (${stateLabel(need.state)})`).join(", ")]]));
    const last = Object.entries(show.last || {}).filter(([metric]) => !metric.includes("/"));
    const plan = planTable(show);
    events.update(show);
    replace(details, h("div", { class: "columns" },
      plan ? section("Plan against measurement", plan) : null,
      last.length ? section("Last values", table([{ label: "Metric" }, { label: "Value", number: true }], last.map(([metric, value]) => [metricLabel(metric), number(value, 5)]))) : null),
      section("Events", events.element), section("Attempts", attemptsTable(show)), section("Provenance", provenance(show)));
  }

  async function update() {
    if (!store.loaded || closed) return;
    const run = findRun(name);
    if (run) showHead(run);
    const key = run ? `${run.state} ${run.attempt} ${hasEnded(run) ? "" : Math.floor(Date.now() / 5000)}` : "none";
    if (key !== seen) {
      seen = key;
      try {
        const show = await get(path);
        if (closed) return;
        showHead(show);
        showDetails(show);
      } catch (fault) {
        if (!closed && fault.status === 404) { reason.hidden = false; setText(reason, fault.message); }
      }
    }
    const came = await curvesOf(name).refresh().catch(() => false);
    if (closed) return;
    const have = first.filter(metric => curvesOf(name).metrics.has(metric)).map(metric => board.chart(metric).element);
    if (have.length !== grid.children.length) grid.replaceChildren(...have);
    if (came) board.draw();
  }

  update();
  log.start();
  return { title: name, update, close() { closed = true; board.close(); log.stop(); } };
}
