// Values as people read them.
const group = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const none = "–";

export function number(value, digits = 4) {
  if (value === null || value === undefined) return none;
  const x = Number(value === "Infinity" ? Infinity : value === "-Infinity" ? -Infinity : value);
  if (Number.isNaN(x)) return typeof value === "string" && value !== "NaN" ? value : "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e15) return minus(group.format(x));
  if (size >= 1e6 || size < 1e-4) return minus(x.toExponential(digits - 2).replace("e+", "e"));
  if (size >= 1000) return minus(group.format(x));
  return minus(size < 0.01 ? trim(x.toPrecision(digits)) : x.toPrecision(digits));
}

const minus = text => text.replace(/^-/, "−");

export function signed(value, digits = 4) {
  const text = number(value, digits);
  return text === none || text.startsWith("−") || text === "0" || text === "NaN" ? text : `+${text}`;
}

// Axis labels and counts: 12k, 1.4M, 6.9B.
export function compact(value, digits = 3) {
  const x = Number(value);
  if (value === null || value === undefined || !Number.isFinite(x)) return none;
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(x) >= size) return minus(`${trim((x / size).toPrecision(digits))}${letter}`);
  if (x !== 0 && Math.abs(x) < 1e-3) return minus(x.toExponential(1).replace(".0e", "e"));
  return minus(trim(x.toPrecision(digits)));
}

const trim = text => text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;

export function bytes(value) {
  let x = Number(value), unit = 0;
  if (value === null || value === undefined || !Number.isFinite(x)) return none;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  for (; Math.abs(x) >= 1024 && unit < units.length - 1; unit++) x /= 1024;
  return `${unit ? x.toPrecision(3) : x} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(Number(seconds))) return none;
  const whole = Math.max(0, Math.round(Number(seconds)));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${String(Math.floor(whole % 3600 / 60)).padStart(2, "0")} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole % 86400 / 3600)} h`;
}

// A moment of the API: text as the records have it, or seconds since 1970.
export function moment(value) {
  if (value === null || value === undefined || value === 0 || value === "") return null;
  const date = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  return Number.isNaN(date.getTime()) ? null : date;
}

export function ago(value) {
  const date = moment(value);
  if (!date) return none;
  const seconds = (Date.now() - date) / 1000;
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return date.toISOString().slice(0, 10);
}

export function clock(value) {
  const date = moment(value);
  return date ? date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : none;
}

// The same, of today without its date.
export function brief(value) {
  const date = moment(value);
  return date && date.toDateString() === new Date().toDateString() ? date.toLocaleTimeString() : clock(value);
}

export const percent = value => Number.isFinite(value) ? `${signed(value * 100, 3)} %` : none;
export const commit = run => run.commit ? `${String(run.commit).slice(0, 8)}${run.dirty ? " + changes" : ""}` : none;
export const kindOf = run => run.kind !== "train" ? run.kind : run.experts > 0 ? `MoE ${run.experts}` : "dense";
export const stateLabel = state => ({ timed_out: "timed out", out_of_memory: "out of memory" })[state] || state;

// A metric's name in words: "moe/layer_00/largest_share" → "layer 00 · largest share", "step_time_ms" → "step time (ms)".
export function metricLabel(name) {
  if (name === "tflops") return "TFLOPS";
  const parts = name.split("/");
  return (parts.length > 1 ? parts.slice(1) : parts).map(part => part.replace(/_ms$/, "_(ms)").replace(/_mb$/, "_(MB)").replaceAll("_", " ")).join(" · ");
}

export const sectionLabel = section => section === "moe" ? "MoE" : section.replaceAll("_", " ");
