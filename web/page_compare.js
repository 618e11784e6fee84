// Two runs side by side: what differs, what came out, what was foretold.
import { h, replace } from "./dom.js";
import { commit, kindOf, metricLabel, number, percent, signed } from "./format.js";
import { get, hasEnded, nameOf } from "./api.js";
import { Board } from "./curves.js";
import { sample } from "./looks.js";
import { choice, empty, section, setProgress, progressBar, stateBadge, table } from "./parts.js";
import { facts, quantity } from "./facts.js";
import { sweptLabels } from "./swept.js";
import { curvesOf, findRun, store } from "./store.js";

const first = ["loss", "grad_norm", "step_time_ms", "tokens_per_second", "validation_loss", "load_balancing_loss"];

// Without a choice: the newest train run with experts and the newest dense one of its project.
function defaultPair() {
  const runs = store.runs.filter(run => run.kind === "train");
  const moe = runs.find(run => run.experts > 0 && run.step > 0) || runs.find(run => run.experts > 0);
  const dense = runs.find(run => !(run.experts > 0) && (!moe || run.project === moe.project));
  if (moe && dense) return [nameOf(dense), nameOf(moe)];
  return runs.length > 1 ? [nameOf(runs[1]), nameOf(runs[0])] : [];
}

function runCard(name, letter, look) {
  const run = findRun(name) || {};
  const bar = progressBar();
  setProgress(bar, run);
  return h("article", { class: "card side" },
    h("header", {}, sample(look), h("span", { class: "quiet" }, letter), h("a", { href: `#/run/${name}` }, run.name || name), h("span", { class: "tag" }, run.name ? kindOf(run) : "")),
    h("div", { class: "side-row" }, run.state ? stateBadge(run.state) : null, h("span", { class: "quiet" }, `${number(run.step)} / ${number(run.iterations)} steps`)), bar, sweptLabels(run),
    run.commit ? h("p", { class: "quiet" }, "commit ", h("code", {}, commit(run))) : null);
}

function valuesTable(answer, a, b) {
  const rank = metric => (first.indexOf(metric) + 100) % 100;
  const rows = Object.entries(answer.metrics).filter(([metric]) => !metric.includes("/"))
    .sort(([x], [y]) => rank(x) - rank(y) || x.localeCompare(y)).map(([metric, row]) => [metricLabel(metric) + (row.median ? ", median" : ""), number(row.a, 5), number(row.b, 5),
      signed(row.difference), typeof row.a === "number" && typeof row.difference === "number" && row.a !== 0 ? percent(row.difference / Math.abs(row.a)) : "–"]);
  return table([{ label: "Metric" }, { label: a, number: true }, { label: b, number: true }, { label: "Difference", number: true },
    { label: "Relative", number: true }], rows);
}

// Keys of a section that only one run has, and that are off in it, differ in letter only: they are folded away.
const atRest = row => (row.a === null || row.b === null) && (!(row.a ?? row.b));

function configurationTable(answer, a, b) {
  const rows = list => table([{ label: "Key" }, { label: a }, { label: b }], list.map(row => [h("code", {}, row.key), setting(row.a), setting(row.b)]));
  const off = answer.configuration.filter(atRest), telling = answer.configuration.filter(row => !atRest(row));
  if (!answer.configuration.length) return h("p", { class: "quiet" }, "The two configurations are the same.");
  return [telling.length ? rows(telling) : null, off.length ? h("details", {}, h("summary", {}, `${off.length} more that only one run has, and that are off in it`), rows(off)) : null];
}

const setting = value => value === null || value === undefined ? "–" : Array.isArray(value) ? value.map(setting).join("; ")
  : typeof value === "object" ? Object.entries(value).map(([key, inner]) => `${key}: ${setting(inner)}`).join(", ") : String(value);

function predictedTable(answer, a, b) {
  if (!answer.predicted.length) return h("p", { class: "quiet" }, "No plan is stored with these runs.");
  return table([{ label: "" }, { label: `${a} predicted`, number: true }, { label: "measured", number: true }, { label: `${b} predicted`, number: true },
    { label: "measured", number: true }], answer.predicted.map(row => [metricLabel(row.name.replaceAll(".", " ")), quantity(row.a, row.unit),
    quantity(row.measured_a, row.unit), quantity(row.b, row.unit), quantity(row.measured_b, row.unit)]));
}

export function open(root, query) {
  let pair = [query.get("a"), query.get("b")].filter(Boolean);
  let board = null, closed = false, shown = "";
  const selects = [0, 1].map(side => h("select", { "aria-label": side ? "Run B" : "Run A", on: { change: () => {
    const next = selects.map(select => select.value);
    location.hash = `#/compare?a=${next[0]}&b=${next[1]}`;
  } } }));
  const swap = h("button", { type: "button", class: "button", on: { click: () => { location.hash = `#/compare?a=${pair[1]}&b=${pair[0]}`; } } }, "Swap");
  const picker = h("div", { class: "filters picker" }, selects[0], h("span", { class: "quiet" }, "against"), selects[1], swap);
  const question = h("p", { class: "question", hidden: true }), cards = h("div", { class: "sides" }), words = h("div"), curves = h("div"), tables = h("div");
  replace(root, h("div", { class: "page-head" }, h("h1", {}, "Compare"), picker), question, cards, words, curves, tables);

  function fillSelects() {
    const names = store.runs.filter(run => run.kind === "train").map(nameOf);
    selects.forEach((select, side) => {
      if (select.options.length !== names.length) replace(select, names.map(name => h("option", { value: name }, name)));
      select.value = pair[side];
    });
  }

  function startBoard() {
    board = new Board(curves, { runs: pair, axis: "step" });
    const more = h("a", { href: `#/charts?runs=${pair.join(",")}` }, "All metrics");
    replace(curves, h("section", { class: "block" }, h("div", { class: "block-head" }, h("h2", {}, "Curves"), more,
      choice("x axis", "compare-axis", [["step", "Step"], ["tokens", "Tokens"], ["time", "Time"]], "step", axis => board.set({ axis }))),
      h("div", { class: "grid grid-two", id: "compare-grid" })));
  }

  function arrange() {
    const grid = curves.querySelector("#compare-grid");
    const have = first.filter(metric => pair.some(name => curvesOf(name).metrics.has(metric)));
    const elements = have.map(metric => board.chart(metric).element);
    if (elements.length !== grid.children.length) grid.replaceChildren(...elements);
  }

  async function describe() {
    const shows = await Promise.all(pair.map(name => get(`/api/v1/runs/${name}`)));
    const answer = await get(`/api/v1/compare?a=${pair[0]}&b=${pair[1]}`);
    if (closed) return;
    const [a, b] = pair.map(name => board.shortName(name));
    const asked = shows.map(show => show.spec && show.spec.question).find(Boolean);
    question.hidden = !asked;
    question.textContent = asked || "";
    replace(words, section("In words", h("ul", { class: "facts" }, facts(answer, shows, [a, b]).map(([mark, text]) => h("li", { class: `fact-${mark}` }, text)))));
    replace(tables, section(`Values at step ${number(answer.step)}`, valuesTable(answer, a, b)),
      section("Predicted against measured", predictedTable(answer, a, b)), section("Configuration: differences only", configurationTable(answer, a, b)));
  }

  async function update() {
    if (!store.loaded || closed) return;
    if (pair.length < 2) pair = defaultPair();
    if (pair.length < 2) {
      picker.hidden = true;
      replace(curves, empty("Nothing to compare yet", "Two training runs are needed: a spec with a dense and a MoE entry under runs: makes both."));
      return;
    }
    picker.hidden = false;
    fillSelects();
    if (!board) startBoard();
    replace(cards, pair.map((name, side) => runCard(name, "AB"[side], board.look(name))));
    const came = await Promise.all(pair.map(name => curvesOf(name).refresh().catch(() => false)));
    if (closed) return;
    arrange();
    if (came.some(Boolean)) board.draw();
    const runs = pair.map(findRun), state = runs.map(run => run ? `${run.state} ${hasEnded(run) ? "" : run.step}` : "").join();
    if (state === shown) return;
    shown = state;
    await describe().catch(fault => { if (!closed) replace(words, h("p", { class: "notice" }, fault.message)); });
  }

  update();
  return { title: "Compare", update, close() { closed = true; if (board) board.close(); } };
}
