// How a run's curve looks: one of eight hues and one of six strokes. A run keeps its look on every page, whichever others are chosen or left out,
// and in later visits of this browser; one that is new takes what no other has, and of that a hue that is rare beside it.
import { h } from "./dom.js";
import { findRun, store } from "./store.js";

const key = "switchyard-looks", hues = 8;
const strokes = [[], [9, 4], [2, 3], [13, 3, 2, 3], [22, 5], [9, 3, 2, 3, 2, 3]]; // lengths drawn and left out, in pixels; the first is unbroken
const looks = hues * strokes.length;

export const hueOf = look => look % hues + 1;
export const strokeOf = look => strokes[Math.floor(look / hues)];

// Name of a run → look, the one that was shown longest ago first.
function remembered() {
  try { return new Map(JSON.parse(localStorage.getItem(key)) || []); } catch { return new Map(); }
}

function remember(kept) {
  try { localStorage.setItem(key, JSON.stringify([...kept])); } catch { /* private mode: for this page only */ }
}

// Looks that no run holds. Where all are held, the run that was shown longest ago gives its own up; those that are shown now never do.
function freeLooks(kept, names) {
  if (store.loaded) for (const name of [...kept.keys()]) if (!findRun(name) && !names.includes(name)) kept.delete(name);
  const held = new Set(kept.values()), free = [...Array(looks).keys()].filter(look => !held.has(look));
  if (free.length) return free;
  const oldest = [...kept.keys()].find(name => !names.includes(name));
  return oldest === undefined ? [...Array(looks).keys()] : [kept.get(oldest)];
}

function newLook(name, kept, names) {
  const beside = new Array(hues).fill(0), usual = (findRun(name) || {}).experts > 0 ? 1 : 0; // as the labels of dense and MoE runs are coloured
  for (const other of names) if (kept.has(other)) beside[kept.get(other) % hues]++;
  const cost = look => beside[look % hues] * looks + Math.floor(look / hues) * hues + (look % hues === usual ? -0.5 : look % hues / hues);
  return freeLooks(kept, names).reduce((best, look) => cost(look) < cost(best) ? look : best);
}

// Of the runs that are shown together, each one's look.
export function looksOf(names) {
  const kept = remembered(), taken = new Set();
  for (const name of names) { // two that came to the same look while more were shown than there are looks
    const look = kept.get(name);
    if (taken.has(look) && names.length <= looks) kept.delete(name);
    else taken.add(look);
  }
  for (const name of names) if (!kept.has(name)) kept.set(name, newLook(name, kept, names));
  const own = new Map(names.map(name => [name, kept.get(name)]));
  for (const [name, look] of own) {
    kept.delete(name);
    kept.set(name, look);
  }
  remember(kept);
  return own;
}

// A piece of the curve, for legends.
export function sample(look) {
  return setSample(h("svg", { viewBox: "0 0 36 10", width: 36, height: 10, "aria-hidden": "true" }, h("path", { d: "M1 5H35" })), look);
}

export function setSample(element, look) {
  element.setAttribute("class", `sample curve-${hueOf(look)}`);
  element.firstChild.setAttribute("stroke-dasharray", strokeOf(look).join(" "));
  return element;
}
