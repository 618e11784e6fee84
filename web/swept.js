// What sweeps vary: which keys differ among some runs, how a value is written, and runs in groups of one value.
import { h } from "./dom.js";
import { number } from "./format.js";

export const wordOf = key => key.slice(key.lastIndexOf(".") + 1).replaceAll("_", " ");
export const valueText = value => value === undefined || value === null ? "default" : typeof value === "number" ? number(value)
  : typeof value === "object" ? JSON.stringify(value) : String(value);

// Keys of which these runs have more than one value, in the order of the file.
export function sweptKeys(runs) {
  const first = new Map(), differing = new Set();
  for (const run of runs)
    for (const [key, value] of Object.entries(run.sweep || {})) {
      const text = JSON.stringify(value);
      if (!first.has(key)) first.set(key, text);
      else if (first.get(key) !== text) differing.add(key);
    }
  return [...first.keys()].filter(key => differing.has(key));
}

// "top k 2 · seed 1" as labels; nothing for a run of no sweep.
export function sweptLabels(run) {
  const entries = Object.entries(run.sweep || {});
  return entries.length ? h("span", { class: "swept" }, entries.map(([key, value]) => h("span", { title: key }, wordOf(key), " ", h("b", {}, valueText(value))))) : null;
}

// [{key, title, runs}] by the value of the key, numbers ascending; runs without it come last.
export function groupsOf(runs, key) {
  const groups = new Map();
  for (const run of runs) {
    const has = run.sweep && key in run.sweep, value = has ? run.sweep[key] : undefined, text = has ? JSON.stringify(value) : "";
    if (!groups.has(text)) groups.set(text, { value, has, runs: [] });
    groups.get(text).runs.push(run);
  }
  const order = group => !group.has ? [2, 0] : typeof group.value === "number" ? [0, group.value] : [1, 0];
  return [...groups.entries()].sort(([, a], [, b]) => order(a)[0] - order(b)[0] || order(a)[1] - order(b)[1])
    .map(([text, group]) => ({ key: text, title: group.has ? `${wordOf(key)} ${valueText(group.value)}` : `Not swept over ${wordOf(key)}`, runs: group.runs }));
}

// "3 runs · 2 succeeded, 1 running · loss 4.53 (4.45–4.60)"
export function groupSummary(runs) {
  const states = new Map();
  for (const run of runs) states.set(run.state, (states.get(run.state) || 0) + 1);
  const losses = runs.map(run => run.validation_loss ?? run.loss).filter(Number.isFinite);
  const word = runs.some(run => Number.isFinite(run.validation_loss)) ? "validation loss" : "loss";
  const mean = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
  return [`${runs.length} run${runs.length === 1 ? "" : "s"}`, [...states].map(([state, count]) => `${count} ${state.replaceAll("_", " ")}`).join(", "),
    losses.length ? `${word} ${number(mean)}${losses.length > 1 ? ` (${number(Math.min(...losses))}–${number(Math.max(...losses))})` : ""}` : ""].filter(Boolean).join(" · ");
}
