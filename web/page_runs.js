// All runs: those at work, those that wait, those that are over, newest first; chosen ones go to the charts or to the comparison.
import { h, replace, setText } from "./dom.js";
import { ago, clock, commit, compact, duration, kindOf, number, stateLabel } from "./format.js";
import { byPhase, hasEnded, nameOf } from "./api.js";
import { command, empty, progressBar, reasonOf, setProgress, setState, stateBadge, tellsReason } from "./parts.js";
import { groupsOf, groupSummary, sweptKeys, sweptLabels, wordOf } from "./swept.js";
import { store } from "./store.js";

const rowsStep = 500;     // so many rows at first, and so many more at a time
const chosen = new Set(); // kept while other pages are open
let project = "", state = "", words = "", grouped = "";

const columns = [["", "pick"], ["Run", "run"], ["State", "state-cell"], ["Progress", "progress-cell"], ["Loss", "number"], ["Validation", "number"],
  ["Tokens/s", "number"], ["ETA", "number"], ["Commit", "commit"], ["Submitted", "created"]];

class Row {
  constructor(run, onChoose) {
    const name = nameOf(run);
    this.box = h("input", { type: "checkbox", "aria-label": `Choose ${name}`, on: { change: () => onChoose(name, this.box.checked) } });
    this.link = h("a", { href: `#/run/${name}` }, run.name);
    this.kind = h("span", { class: "tag" });
    this.project = h("span", { class: "quiet" }, run.project);
    this.state = stateBadge(run.state);
    this.reason = h("span", { class: "quiet reason" });
    this.bar = progressBar();
    this.steps = h("span", { class: "quiet" });
    this.cells = Object.fromEntries(["loss", "validation", "rate", "eta"].map(key => [key, h("span")]));
    this.commit = h("code");
    this.created = h("time");
    const cell = (label, style, ...content) => h("td", { class: style, "data-label": label }, content);
    this.element = h("tr", {}, cell("", "pick", this.box),
      cell("Run", "run", h("span", { class: "run-name" }, this.link, this.kind), this.project, sweptLabels(run)),
      cell("State", "state-cell", this.state, this.reason), cell("Progress", "progress-cell", this.bar, this.steps),
      cell("Loss", "number", this.cells.loss), cell("Validation", "number", this.cells.validation), cell("Tokens/s", "number", this.cells.rate),
      cell("ETA", "number", this.cells.eta), cell("Commit", "commit", this.commit), cell("Submitted", "created", this.created));
    this.update(run);
  }

  update(run) {
    this.box.checked = chosen.has(nameOf(run));
    setText(this.kind, kindOf(run));
    this.kind.className = `tag tag-${run.kind !== "train" ? "stage" : run.experts > 0 ? "moe" : "dense"}`;
    this.element.className = run.kind === "train" ? "" : "stage";
    setState(this.state, run.state);
    const telling = tellsReason(run);
    const words = telling ? reasonOf(run) : "";
    setText(this.reason, words);
    this.reason.title = words;
    setProgress(this.bar, run);
    this.bar.hidden = !run.iterations;
    setText(this.steps, run.iterations ? `${number(run.step)} / ${number(run.iterations)}` : "");
    setText(this.cells.loss, number(run.loss));
    setText(this.cells.validation, number(run.validation_loss));
    setText(this.cells.rate, compact(run.tokens_per_second));
    setText(this.cells.eta, hasEnded(run) ? "–" : duration(run.eta_seconds));
    setText(this.commit, commit(run));
    setText(this.created, ago(run.created));
    this.created.title = clock(run.created);
  }
}

// Among ten thousand runs a person looks for those that failed.
const isInState = (run, words) => words.length > 2 && stateLabel(run.state).startsWith(words.toLowerCase());

export function open(root) {
  const rows = new Map();
  const body = h("tbody");
  const table = h("table", { class: "runs" }, h("caption", { class: "hidden" }, "Runs"),
    h("thead", {}, h("tr", {}, columns.map(([label, style]) => h("th", { class: style, scope: "col" }, label || h("span", { class: "hidden" }, "Choose"))))), body);
  const select = h("select", { "aria-label": "Project", on: { change: () => { project = select.value; update(); } } });
  const states = h("select", { "aria-label": "State", on: { change: () => { state = states.value; update(); } } });
  const group = h("select", { "aria-label": "Group by a swept key", on: { change: () => { grouped = group.value; update(); } } });
  const search = h("input", { type: "search", placeholder: "Name or state", "aria-label": "Filter runs by name or state", value: words,
    on: { input: () => { words = search.value; update(); } } });
  const charts = h("a", { class: "button", href: "#/charts" }, "Charts");
  const compare = h("a", { class: "button button-main", href: "#/compare" }, "Compare");
  const count = h("span", { class: "quiet" });
  const actions = h("div", { class: "actions" }, count, charts, compare);
  let shown = rowsStep;
  const more = h("button", { class: "button", on: { click: () => { shown += rowsStep; update(); } } });
  const place = h("div"), behind = h("p", { hidden: true }, more);
  replace(root, h("div", { class: "page-head" }, h("h1", {}, "Runs"), h("div", { class: "filters" }, select, states, group, search)), actions, place, behind);

  function choose(name, on) {
    if (on) chosen.add(name); else chosen.delete(name);
    updateActions();
  }

  function updateActions() {
    const names = store.runs.map(nameOf).filter(name => chosen.has(name)).reverse(); // oldest first: the baseline is A
    setText(count, names.length ? `${names.length} chosen` : "Choose runs to see their curves; two to compare.");
    charts.href = `#/charts?runs=${names.join(",")}`;
    charts.hidden = names.length === 0;
    compare.href = `#/compare?a=${names[0]}&b=${names[1]}`;
    compare.hidden = names.length !== 2;
  }

  function updateProjects() {
    const projects = [...new Set(store.runs.map(run => run.project))].sort();
    if (!projects.includes(project)) project = "";
    select.hidden = projects.length < 2;
    if (select.options.length !== projects.length + 1)
      replace(select, h("option", { value: "" }, "All projects"), projects.map(name => h("option", { value: name }, name)));
    select.value = project;
  }

  // The states that there are, and of each how many; a chosen one stays when the last run has left it.
  function updateStates(runs) {
    const counts = new Map(state ? [[state, 0]] : []);
    for (const run of runs) counts.set(run.state, (counts.get(run.state) || 0) + 1);
    const present = [...counts.keys()], shown = present.join();
    if (states.dataset.states !== shown) {
      states.dataset.states = shown;
      replace(states, h("option", { value: "" }, "All states"), present.map(name => h("option", { value: name })));
    }
    present.forEach((name, i) => setText(states.options[i + 1], `${stateLabel(name)} (${number(counts.get(name))})`));
    states.hidden = present.length < 2 && !state;
    states.value = state;
  }

  // The keys that differ among the runs that are wanted.
  function updateGroups(wanted) {
    const keys = sweptKeys(wanted), shown = JSON.stringify(keys);
    if (!keys.includes(grouped)) grouped = "";
    group.hidden = !keys.length;
    if (group.dataset.keys !== shown) {
      group.dataset.keys = shown;
      replace(group, h("option", { value: "" }, "No groups"), keys.map(key => h("option", { value: key }, `By ${wordOf(key)}`)));
    }
    group.value = grouped;
  }

  const headings = new Map(); // kept, so that a live table moves nothing that stays
  function heading(key, title, runs) {
    if (!headings.has(key)) headings.set(key, h("tr", { class: "group" }, h("th", { colspan: columns.length, scope: "rowgroup" }, h("span"), h("span", { class: "quiet" }))));
    const cell = headings.get(key).firstChild;
    setText(cell.firstChild, title);
    setText(cell.lastChild, groupSummary(runs));
    return headings.get(key);
  }

  function rowOf(run) {
    const name = nameOf(run);
    if (!rows.has(name)) rows.set(name, new Row(run, choose));
    rows.get(name).update(run);
    return rows.get(name).element;
  }

  function update() {
    if (!store.loaded) { replace(place, h("p", { class: "quiet" }, store.fault ? "" : "Loading…")); return; }
    actions.hidden = search.hidden = store.runs.length === 0;
    behind.hidden = true;
    updateProjects();
    updateActions();
    const ofProject = byPhase(store.runs.filter(run => !project || run.project === project));
    updateStates(ofProject);
    const wanted = ofProject.filter(run => (!state || run.state === state) && (nameOf(run).includes(words.trim()) || isInState(run, words.trim())));
    updateGroups(wanted);
    if (!wanted.length) {
      replace(place, store.runs.length ? empty("Nothing matches", state && !words.trim() ? "No run is in this state now." : "No run has this in its name, or is in a state of this name.")
        : empty("No runs yet", "Write a spec, or take the one that comes with Switchyard, and submit it:", command("switchyard submit experiments/first-run-cpu.yaml")));
      return;
    }
    if (table.parentNode !== place) replace(place, table);
    let left = shown; // rows that are still to be had: a browser does not draw ten thousand every second
    const some = runs => { const taken = runs.slice(0, Math.max(left, 0)); left -= taken.length; return taken.map(rowOf); };
    const elements = grouped ? groupsOf(wanted, grouped).flatMap(one => [heading(`${grouped} ${one.key}`, one.title, one.runs), ...some(one.runs)]) : some(wanted);
    behind.hidden = wanted.length <= shown;
    setText(more, `${number(Math.min(rowsStep, wanted.length - shown))} more of ${number(wanted.length)}`);
    if (elements.length !== body.children.length || elements.some((element, i) => body.children[i] !== element)) body.replaceChildren(...elements);
  }

  update();
  return { title: "Runs", update, close() {} };
}
