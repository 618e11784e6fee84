// What a comparison says in words: facts only, each with the numbers it rests on. [mark, sentence]: good, bad (a reason to distrust the
// comparison), or plain.
import { bytes, compact, number } from "./format.js";

export function quantity(value, unit) {
  if (value === null || value === undefined) return "–";
  return unit === "bytes" ? bytes(value) : Math.abs(value) >= 1e5 ? compact(value, 4) : number(value);
}

const ratio = (a, b) => typeof a === "number" && typeof b === "number" && a > 0 && b > 0 ? b / a : null;
const pair = (answer, metric) => answer.metrics[metric] || {};

function sameness(answer, shows) {
  const out = [];
  if (answer.same_data === true) out.push(["good", `Both read the same samples in the same order, at every one of ${number(answer.step)} common steps.`]);
  else if (answer.same_data === false) out.push(["bad", "They did not read the same samples in the same order, so their losses are not step by step comparable."]);
  else out.push(["plain", "Whether both read the same samples is not recorded."]);
  const [a, b] = shows.map(show => show.commit);
  if (a && a === b) out.push([shows.some(show => show.dirty) ? "plain" : "good", `Both come from commit ${String(a).slice(0, 8)}${shows.some(show => show.dirty) ? ", with uncommitted changes in at least one" : ""}.`]);
  else if (a && b) out.push(["bad", `They come from different commits: ${String(a).slice(0, 8)} and ${String(b).slice(0, 8)}.`]);
  const seeds = shows.map(show => show.spec && show.spec.training && show.spec.training.seed);
  if (seeds[0] !== undefined && seeds[0] !== seeds[1]) out.push(["bad", `The seeds differ: ${seeds[0]} and ${seeds[1]}.`]);
  return out;
}

function sizes(shows, [a, b]) {
  const [x, y] = shows.map(show => show.plan && show.plan.parameters);
  if (!x || !y) return [];
  const total = ratio(x.total, y.total), active = ratio(x.active, y.active);
  const out = [["plain", `${b} holds ${compact(y.total)} parameters, ${total.toFixed(2)} × the ${compact(x.total)} of ${a}; a token passes through ${compact(y.active)} of them in ${b} and ${compact(x.active)} in ${a}${active > 0.98 && active < 1.02 ? ": as many, within 2 %" : ` (${active.toFixed(2)} ×)`}.`]];
  return out;
}

function outcomes(answer, shows, [a, b]) {
  const out = [];
  for (const [metric, label] of [["loss", "training loss"], ["validation_loss", "validation loss"]]) {
    const { a: x, b: y, difference } = pair(answer, metric);
    if (typeof x !== "number" || typeof y !== "number") continue;
    const lower = difference < 0 ? "lower" : "higher";
    out.push(["plain", difference === 0 ? `The ${label} is the same to the last bit: ${number(x, 5)}.`
      : `The ${label} of ${b} is ${number(Math.abs(difference), 3)} ${lower}: ${number(y, 5)} against ${number(x, 5)} (${a}).`]);
  }
  const speed = pair(answer, "tokens_per_second"), rate = ratio(speed.a, speed.b);
  if (rate) out.push(["plain", `${b} works through tokens at ${rate.toFixed(2)} × the speed of ${a}: ${compact(speed.b)} against ${compact(speed.a)} a second, each the median of its steps.`]);
  const norm = pair(answer, "grad_norm");
  if (typeof norm.a === "number" && typeof norm.b === "number") out.push(["plain", `The gradient norm is ${number(norm.b, 3)} in ${b} and ${number(norm.a, 3)} in ${a}.`]);
  shows.forEach((show, i) => {
    const balance = (show.last || {}).load_balancing_loss;
    if (typeof balance === "number") out.push(["plain", `The load-balancing loss of ${[a, b][i]} stands at ${number(balance, 4)}; 1 is an even load of its experts.`]);
  });
  return out;
}

export function facts(answer, shows, names) {
  if (!answer.step) return [["plain", "The two runs have no step in common yet."]];
  return [...sameness(answer, shows), ...sizes(shows, names), ...outcomes(answer, shows, names)];
}
