// Small pieces that several pages use.
import { h, setText } from "./dom.js";
import { stateLabel } from "./format.js";

export function stateBadge(state) {
  return h("span", { class: `state state-${state}` }, h("i", { "aria-hidden": "true" }), h("span", {}, stateLabel(state)));
}

export function setState(badge, state) {
  badge.className = `state state-${state}`;
  setText(badge.lastChild, stateLabel(state));
}

// Whether a run's reason says what its badge does not: why it waits or failed, or that its loss is lost.
export const tellsReason = run => Boolean(run.diverged_step || (run.reason && run.state !== "succeeded" && run.state !== "running"));

export function reasonOf(run) {
  const lost = run.diverged_step && !String(run.reason).includes("diverged") ? `diverged at step ${run.diverged_step}: its loss is not finite from there on` : "";
  return [lost, run.reason].filter(Boolean).join("; ");
}

export function progressBar() {
  return h("div", { class: "progress", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"));
}

export function setProgress(bar, run) {
  const share = Math.max(0, Math.min(1, Number(run.progress) || 0));
  bar.firstChild.style.width = `${(share * 100).toFixed(1)}%`;
  bar.setAttribute("aria-valuenow", Math.round(share * 100));
  bar.className = `progress progress-${run.state}`;
}

export function empty(title, ...lines) {
  return h("div", { class: "empty" }, h("h2", {}, title), lines.map(line => typeof line === "string" ? h("p", {}, line) : line));
}

export function command(text) {
  return h("pre", { class: "command" }, h("code", {}, text));
}

// A table of rows of strings or elements; columns: [{label, number: true?}].
export function table(columns, rows, attributes = {}) {
  const cell = (tag, column, content) => h(tag, { class: column.number ? "number" : null, scope: tag === "th" ? "col" : null }, content);
  return h("div", { class: "table-scroll" }, h("table", attributes,
    h("thead", {}, h("tr", {}, columns.map(column => cell("th", column, column.label)))),
    h("tbody", {}, rows.map(row => h("tr", {}, row.map((content, i) => cell("td", columns[i], content)))))));
}

export function section(title, ...children) {
  return h("section", { class: "block" }, h("h2", {}, title), children);
}

// Radio buttons that look like one control.
export function choice(label, name, options, value, onChange) {
  return h("fieldset", { class: "choice" }, h("legend", {}, label), h("div", {}, options.map(([key, text]) => h("label", {},
    h("input", { type: "radio", name, value: key, checked: key === value, on: { change: () => onChange(key) } }), h("span", {}, text)))));
}

// Nested objects as rows of [dotted key, value]; empty ones are left out.
export function flatten(object, prefix = "") {
  return Object.entries(object || {}).flatMap(([key, value]) => {
    const name = prefix ? `${prefix}.${key}` : key;
    if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return [];
    if (Array.isArray(value) && value.some(item => item && typeof item === "object")) return value.flatMap((item, i) => flatten(item, value.length > 1 ? `${name}[${i}]` : name));
    return typeof value === "object" && !Array.isArray(value) ? flatten(value, name) : [[name, Array.isArray(value) ? value.join("  ") : value]];
  });
}
