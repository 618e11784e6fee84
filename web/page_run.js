// One run: what it is made of, what was foretold and measured, what happened, and what it prints.
import { h, replace, setText } from "./dom.js";
import { brief, bytes, clock, compact, duration, kindOf, metricLabel, moment, number, stateLabel } from "./format.js";
import { get, hasEnded, post, runPath } from "./api.js";
import { Board } from "./curves.js";
import { quantity } from "./facts.js";
import { LogTail } from "./log.js";
import { flatten, progressBar, section, reasonOf, setProgress, setState, stateBadge, table, tellsReason } from "./parts.js";
import { sweptLabels } from "./swept.js";
import { curvesOf, findRun, refresh, store } from "./store.js";

const first = ["loss", "validation_loss", "grad_norm", "tokens_per_second"];

const definition = rows => h("dl", {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== "–")
  .map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));

function planTable(show) {
  const plan = show.plan, last = show.last || {}, measured = show.measured || {}, counted = measured.parameters || {};
  if (!plan || !plan.parameters) return null;
  const rows = [
    ["parameters", compact(plan.parameters.total, 4), counted.total ? compact(counted.total, 4) : ""],
    ["active parameters", compact(plan.parameters.active, 4), counted.active ? compact(counted.active, 4) : ""],
    ["FLOPs per token", compact(plan.flops_per_token, 4), ""],
    ["tokens per step", quantity(plan.tokens_per_step), last.tokens && show.step ? quantity(last.tokens / show.step) : ""],
    ["tokens", quantity(plan.tokens_total), last.tokens ? quantity(last.tokens) : ""],
    ["all-to-all of a rank and step", bytes(plan.alltoall_bytes_per_step),
      typeof measured.alltoall_bytes_per_step === "number" ? bytes(measured.alltoall_bytes_per_step) : ""],
    ["memory of a rank", plan.memory ? bytes(plan.memory.total_worst) : "–",
      typeof last.memory_mb === "number" ? bytes(last.memory_mb * 1e6) : ""],
  ];
  return table([{ label: "" }, { label: "Predicted", number: true }, { label: "Measured", number: true }], rows.map(row => row.map(cell => cell || "–")));
}

const nodesShown = 4;
const eventsShown = 30; // a long run has hundreds, most of them checkpoints

const eventItem = event => h("li", {},
  h("time", { title: clock(event.time) }, (moment(event.time) || new Date(0)).toLocaleTimeString()),
  event.to ? stateBadge(event.to) : h("span", { class: "tag" }, String(event.kind || "").replaceAll("_", " ")),
  h("span", {}, event.reason || event.text || ""), h("span", { class: "quiet" }, event.witness ? `seen by ${event.witness}` : ""));

// The newest, and the older ones on demand. older: whether they are wanted, kept while the page is drawn anew.
function eventsList(show, older) {
  const events = [...show.events].reverse(), rest = events.slice(eventsShown), place = h("div");
  const open = () => { older.wanted = true; replace(place, h("ol", { class: "events" }, rest.map(eventItem))); };
  if (rest.length && older.wanted) open();
  else if (rest.length) replace(place, h("button", { type: "button", class: "link-button", on: { click: open } }, `Show ${rest.length} older events`));
  return [h("ol", { class: "events" }, events.slice(0, eventsShown).map(eventItem)), place];
}

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
  const older = { wanted: false };
  const path = runPath(name);
  const state = stateBadge("created"), bar = progressBar(), steps = h("span", { class: "quiet" }), reason = h("p", { class: "notice", hidden: true });
  const kind = h("span", { class: "tag" });
  const cancel = action("Cancel", "Really cancel?", async () => { await post(`${path}/cancel`); refresh(); });
  const retry = action("Retry", "Start another attempt?", async () => { await post(`${path}/retry`); refresh(); });
  const compare = h("a", { class: "button", href: `#/charts?runs=${name}` }, "All charts");
  const board = new Board(null, { runs: [name], firstColour: (findRun(name) || {}).experts > 0 ? 1 : 0 });
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
    replace(details, h("div", { class: "columns" },
      plan ? section("Plan against measurement", plan) : null,
      last.length ? section("Last values", table([{ label: "Metric" }, { label: "Value", number: true }], last.map(([metric, value]) => [metricLabel(metric), number(value, 5)]))) : null),
      section("Events", eventsList(show, older)), section("Attempts", attemptsTable(show)), section("Provenance", provenance(show)));
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
