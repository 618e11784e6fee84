// What happened to a run, newest first. A long run has hundreds of checkpoints: those between which nothing else happened are one line, which opens.
import { h, replace } from "./dom.js";
import { brief, clock, number } from "./format.js";
import { stateBadge } from "./parts.js";

const linesShown = 30;

const isCheckpoint = event => event.kind === "checkpoint";
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

const line = (event, words) => [
  h("time", { title: clock(event.time) }, brief(event.time)),
  event.to ? stateBadge(event.to) : h("span", { class: "tag" }, String(event.kind || "").replaceAll("_", " ")),
  words, h("span", { class: "quiet" }, event.witness ? `seen by ${event.witness}` : "")];

const item = event => h("li", {}, line(event, h("span", {}, event.reason || event.text || "")));

// Newest first: [{events, key}], one event or several checkpoints. The key stays while a stretch of checkpoints grows: it is the event before them.
function stretches(events) {
  const found = [];
  for (const event of events) {
    const last = found.at(-1);
    if (last && isCheckpoint(event) && isCheckpoint(last.events[0])) last.events.unshift(event);
    else found.push({ events: [event], key: last ? last.events[0].id : 0 });
  }
  return found.reverse();
}

export class EventsList {
  constructor() {
    this.older = false;       // whether the older ones are wanted
    this.opened = new Set();  // keys of the stretches that are open
    this.element = h("div");
    this.shown = "";
  }

  // Draws what is new; what a person opened stays open.
  update({ events, events_left_out: leftOut }) {
    const newest = events.length ? events.at(-1).id : 0;
    if (`${newest} ${events.length}` === this.shown) return;
    this.shown = `${newest} ${events.length}`;
    const lines = stretches(events), rest = lines.slice(linesShown), place = h("div");
    const open = () => {
      this.older = true;
      replace(place, h("ol", { class: "events" }, rest.map(one => this.#stretch(one))), this.#leftOut(leftOut));
    };
    if (rest.length && !this.older) replace(place, h("button", { type: "button", class: "link-button", on: { click: open } }, `Show ${plural(rest.length, "older event")}`));
    else if (rest.length) open();
    else replace(place, this.#leftOut(leftOut));
    replace(this.element, h("ol", { class: "events" }, lines.slice(0, linesShown).map(one => this.#stretch(one))), place);
  }

  #stretch({ events, key }) {
    if (events.length === 1) return item(events[0]);
    const [last] = events, inner = h("ol", { class: "events" }), fill = () => replace(inner, events.map(item));
    const words = h("span", { class: "fold" }, `${plural(events.length, "checkpoint")}${last.step ? `, the last at step ${number(last.step)}` : ""}`);
    const details = h("details", { open: this.opened.has(key), on: { toggle: () => {
      if (details.open) { this.opened.add(key); fill(); } else { this.opened.delete(key); inner.replaceChildren(); }
    } } }, h("summary", {}, line(last, words)), inner);
    if (details.open) fill();
    return h("li", { class: "folded" }, details);
  }

  #leftOut(leftOut) {
    const parts = leftOut ? [leftOut.checkpoints ? plural(leftOut.checkpoints, "older checkpoint") : "", leftOut.others ? plural(leftOut.others, "older event") : ""].filter(Boolean) : [];
    return parts.length ? h("p", { class: "quiet" }, `and ${parts.join(" and ")} that the daemon does not list`) : null;
  }
}
