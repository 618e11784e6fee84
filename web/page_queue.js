// What is at work; and what waits: why, for whom, in what order, and when it is expected to start; and whether the scheduler answers at all.
import { h, replace } from "./dom.js";
import { ago, clock, kindOf, moment, number } from "./format.js";
import { isWaiting, isWorking, nameOf } from "./api.js";
import { empty, section, stateBadge } from "./parts.js";
import { sweptLabels } from "./swept.js";
import { schedulerSilence, store } from "./store.js";

const workingStep = 8, waitingStep = 200; // so many at first; the buttons bring more

const link = (name, text = name) => h("a", { href: `#/run/${name}` }, text);

// Until a moment that is to come: "in 3 min".
function ahead(value) {
  const date = moment(value);
  const seconds = (date - Date.now()) / 1000;
  if (seconds < 45) return "any moment";
  if (seconds < 3600) return `in ${Math.max(1, Math.round(seconds / 60))} min`;
  return seconds < 86400 ? `in ${Math.round(seconds / 3600)} h` : clock(value);
}

// Up to three runs as links; those of the same project by their own name alone.
function names(list, project) {
  const shown = list.slice(0, 3), more = list.length - shown.length;
  return [shown.map((name, i) => [i ? ", " : "", link(name, name.startsWith(`${project}/`) ? name.slice(project.length + 1) : name)]), more ? ` and ${more} more` : ""];
}

// A run that waits for others names them all, as links; one that has another reason too says that first.
function why(run) {
  const reason = run.pending_reason || run.reason || "", whom = run.waits_for || [];
  if (!whom.length) return reason || "–";
  return !reason || reason === `waits for ${whom[0]}` ? ["waits for ", names(whom, run.project)] : [reason, h("span", { class: "quiet" }, "waits for ", names(whom, run.project))];
}

function waitingRow(run, position, followers) {
  const cell = (label, style, ...content) => h("td", { class: content[0] === "–" ? `${style} nothing` : style, "data-label": label }, content);
  return h("tr", {}, cell("Position", "number position", String(position)),
    cell("Run", "run", h("span", { class: "run-name" }, h("a", { href: `#/run/${nameOf(run)}` }, run.name), h("span", { class: `tag tag-${run.kind !== "train" ? "stage" : run.experts > 0 ? "moe" : "dense"}` }, kindOf(run))),
      h("span", { class: "quiet" }, run.project), sweptLabels(run)),
    cell("State", "state-cell", stateBadge(run.state), h("span", { class: "quiet" }, run.executor || "local")),
    cell("Why it waits", "why", why(run)),
    cell("Holds up", "whom", followers.length ? names(followers, run.project) : "–"),
    cell("Expected start", "when", moment(run.expected_start) ? h("span", { title: clock(run.expected_start) }, ahead(run.expected_start)) : "–"),
    cell("Submitted", "when quiet", h("span", { title: clock(run.created) }, ago(run.created))));
}

function workingItem(run, followers) {
  return h("li", {}, stateBadge(run.state), link(nameOf(run)), h("span", { class: "quiet" }, run.executor || "local"),
    run.executor === "slurm" && run.reason ? h("span", { class: "quiet" }, run.reason) : null,
    followers ? h("span", { class: "quiet" }, `${followers.length} wait for it`) : null);
}

function schedulerWords(scheduler) {
  if (!scheduler) return null;
  const accounting = { works: "accounting works", absent: "it keeps no accounts", silent: "its accounting does not answer", unknown: "its accounting was not asked yet" };
  const name = scheduler.name === "slurm" ? "Slurm" : scheduler.name;
  const head = scheduler.answers ? `${name} answered ${ago(scheduler.answered)}` : schedulerSilence(scheduler);
  return h("div", { class: `notice ${scheduler.answers ? "notice-plain" : ""}` }, h("p", {}, `${head}; ${accounting[scheduler.accounting] || ""}.`),
    (scheduler.faults || []).map(fault => h("p", { class: "quiet" }, fault)));
}

export function open(root) {
  const counts = h("p", { class: "quiet" }), scheduler = h("div"), place = h("div");
  replace(root, h("div", { class: "page-head" }, h("h1", {}, "Queue"), counts), scheduler, place);
  let shown = "", workingShown = workingStep, waitingShown = waitingStep;

  const more = (now, all, step, grow) => now < all ? h("p", {}, h("button", { type: "button", class: "button",
    on: { click: () => { grow(step); shown = ""; update(); } } }, `${number(Math.min(step, all - now))} more of ${number(all)}`)) : null;

  function update() {
    if (!store.loaded) return;
    const queue = store.runs.filter(isWaiting).reverse(), running = store.runs.filter(isWorking).reverse();
    const key = JSON.stringify([queue.map(run => [run.run_id, run.state, run.pending_reason, run.expected_start, run.waits_for]), running.map(run => [run.run_id, run.state, run.reason]),
      store.health && store.health.scheduler, Math.floor(Date.now() / 15000)]);
    if (key === shown) return;
    shown = key;
    replace(counts, `${number(running.length)} running · ${number(queue.length)} waiting${store.health ? ` · this machine has ${store.health.cores} cores` +
      (store.health.gpus ? ` and ${store.health.gpus} GPUs` : "") : ""}`);
    replace(scheduler, schedulerWords(store.health && store.health.scheduler));
    if (!queue.length && !running.length) {
      replace(place, empty("Nothing waits and nothing runs", "Runs that are submitted stand here until they begin."));
      return;
    }
    const followers = new Map();
    for (const run of queue)
      for (const name of run.waits_for || []) {
        if (!followers.has(name)) followers.set(name, []);
        followers.get(name).push(nameOf(run));
      }
    const positions = new Map();
    const rows = queue.slice(0, waitingShown).map(run => {
      const executor = run.executor || "local";
      positions.set(executor, (positions.get(executor) || 0) + 1);
      return waitingRow(run, positions.get(executor), followers.get(nameOf(run)) || []);
    });
    const table = h("table", { class: "runs queue" }, h("caption", { class: "hidden" }, "Waiting runs, in their order"),
      h("thead", {}, h("tr", {}, [["#", "number"], ["Run", "run"], ["State", ""], ["Why it waits", ""], ["Holds up", ""], ["Expected start", ""],
        ["Submitted", ""]].map(([label, style]) => h("th", { class: style, scope: "col" }, label)))), h("tbody", {}, rows));
    replace(place, running.length ? section("Running", h("ul", { class: "working" }, running.slice(0, workingShown).map(run => workingItem(run, followers.get(nameOf(run))))),
      more(workingShown, running.length, 25 * workingStep, step => { workingShown += step; })) : null,
    queue.length ? section("Waiting", table, more(waitingShown, queue.length, waitingStep, step => { waitingShown += step; })) : null);
  }

  update();
  return { title: "Queue", update, close() {} };
}
