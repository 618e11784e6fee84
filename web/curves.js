// Charts over dygraphs. A Board is a set of charts that share the x axis, smoothing, scale, cursor and zoom. dygraphs' own legend writes
// markup and inline styles, which our content policy forbids: it is taken out, and the values under the cursor are shown by us.
import { colour, h, replace, setText } from "./dom.js";
import { compact, duration, metricLabel, number } from "./format.js";
import { hueOf, looksOf, sample, setSample, strokeOf } from "./looks.js";
import { curvesOf } from "./store.js";

Dygraph.PLUGINS = Dygraph.PLUGINS.filter(plugin => plugin !== Dygraph.Plugins.Legend);

// The x value of each point: step, tokens seen by then, or seconds since the run's first point.
function xValues(curves, curve, axis) {
  if (axis === "time") {
    const first = Math.min(...[...curves.metrics.values()].map(other => other.time[0]).filter(Number.isFinite));
    return curve.time.map(time => time - first);
  }
  const tokens = curves.metrics.get("tokens");
  if (axis !== "tokens" || !tokens) return curve.step;
  let at = 0;
  return curve.step.map(step => {
    while (at + 1 < tokens.step.length && tokens.step[at + 1] <= step) at++;
    return tokens.step[at] ? tokens.value[at] * step / tokens.step[at] : tokens.value[at];
  });
}

// Exponential moving average without the pull of its zero start; gaps (NaN) stay gaps.
function smooth(values, weight) {
  let sum = 0, norm = 0;
  return values.map(value => {
    if (!Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

// One line a distinct x, one column a series; null where a series has no point there.
function merge(series) {
  const rows = new Map();
  series.forEach(({ x, cells }, column) => x.forEach((at, i) => {
    if (!rows.has(at)) rows.set(at, new Array(series.length).fill(null));
    rows.get(at)[column] = cells[i];
  }));
  return [...rows.entries()].sort((a, b) => a[0] - b[0]).map(([at, cells]) => [at, ...cells]);
}

// Index of the last entry ≤ x in a rising array, or -1.
function lastAt(rising, x) {
  let low = 0, high = rising.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rising[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

class Chart {
  constructor(board, metric) {
    this.board = board;
    this.metric = metric;
    this.seen = false;
    this.stale = true;
    this.values = h("div", { class: "chart-values" });
    this.reset = h("button", { class: "link-button", type: "button", hidden: true, on: { click: () => board.zoom(null) } }, "Reset zoom");
    this.plot = h("div", { class: "plot", role: "img", "aria-label": `Chart of ${metric}` });
    this.line = h("div", { class: "cursor", hidden: true });
    this.holder = h("div", { class: "plot-holder" }, this.plot, this.line);
    this.element = h("section", { class: "card chart", "data-metric": metric },
      h("header", {}, h("h3", { title: metric }, metricLabel(metric)), this.reset), this.values, this.holder);
  }

  // The board's runs that have this metric, with their x and y.
  collect() {
    const { axis, smoothing } = this.board.settings;
    this.lines = this.board.runs.map((run, index) => ({ run, index, curves: curvesOf(run) })).flatMap(({ run, index, curves }) => {
      const curve = curves.metrics.get(this.metric);
      if (!curve || this.board.hidden.has(run)) return [];
      const soft = smoothing > 0 && curve.value.length > 8 ? smooth(curve.value, smoothing) : null;
      return [{ run, index, x: xValues(curves, curve, axis), raw: curve.value, shown: soft || curve.value, soft, min: curve.min, max: curve.max }];
    });
  }

  rows() {
    const bars = this.lines.some(line => line.min && !line.soft);
    const cell = (value, low, high) => bars ? [low, value, high] : value;
    const series = [], colours = [], options = {}, labels = ["x"];
    const add = (line, values, faint) => {
      const label = `${faint ? "raw" : "run"} ${line.index}`;
      series.push({ x: line.x, cells: values.map((value, i) => faint || !line.min ? cell(value, value, value) : cell(value, line.min[i], line.max[i])) });
      labels.push(label);
      const look = this.board.look(line.run), stroke = strokeOf(look);
      const behind = this.board.pointed && this.board.pointed !== line.run;
      colours.push(colour(`--curve-${hueOf(look)}`) + (behind ? (faint ? "0a" : "2a") : faint ? "55" : ""));
      options[label] = faint ? { strokeWidth: 1, highlightCircleSize: 0 }
        : { strokeWidth: 1.8, strokePattern: stroke.length ? stroke : null, drawPoints: values.length < 40, pointSize: 2 };
    };
    for (const line of this.lines) if (line.soft) add(line, line.raw, true);
    for (const line of this.lines) add(line, line.shown, false);
    return { rows: merge(series), labels, colours, options, bars };
  }

  draw() {
    if (!this.seen) { this.stale = true; return; }
    this.stale = false;
    this.collect();
    const { rows, labels, colours, options, bars } = this.rows();
    if (!rows.length) { this.clear(); return; }
    const positive = this.lines.every(line => line.shown.every(value => !(value <= 0)));
    const settings = {
      file: rows, labels, colors: colours, series: options, customBars: bars, errorBars: false,
      logscale: this.board.settings.log && positive, dateWindow: this.board.window,
      gridLineColor: colour("--grid"), axisLineColor: colour("--line-strong"),
    };
    const same = this.graph && this.labels === labels.join() && this.bars === bars;
    if (same) this.graph.updateOptions(settings);
    else this.create(settings);
    this.labels = labels.join();
    this.bars = bars;
    this.show(this.board.cursor);
  }

  clear() {
    if (this.graph) this.graph.destroy();
    this.graph = null;
    replace(this.values);
  }

  create(settings) {
    this.clear();
    const board = this.board, model = { ...Dygraph.defaultInteractionModel };
    for (const event of Object.keys(model)) if (event.startsWith("touch")) delete model[event]; // a finger scrolls the page
    model.dblclick = () => board.zoom(null);
    const { file, ...rest } = settings;
    this.graph = new Dygraph(this.plot, file, {
      ...rest, legend: "never", connectSeparatedPoints: true, highlightCircleSize: 3, fillAlpha: 0.14, axisLabelFontSize: 11, yRangePad: 8,
      xRangePad: 2, rightGap: 10, interactionModel: model, animatedZooms: false,
      axes: {
        x: { drawGrid: false, pixelsPerLabel: 48, axisLabelFormatter: x => board.xLabel(x) },
        y: { axisLabelWidth: 46, pixelsPerLabel: 32, axisLabelFormatter: y => compact(y) },
      },
      highlightCallback: (_, x) => board.point(x),
      unhighlightCallback: () => board.point(null),
      zoomCallback: (low, high) => board.zoom([low, high]),
    });
  }

  // Values under the cursor, or the last ones.
  show(x) {
    if (!this.graph || !this.lines) return;
    while (this.values.children.length > this.lines.length) this.values.lastChild.remove();
    this.values.className = `chart-values ${this.lines.length > 8 ? "chart-values-many" : ""}`;
    this.lines.forEach((line, i) => {
      const chip = this.values.children[i] || this.values.appendChild(h("span", { class: "chip-value" }, sample(0), h("b"), h("span")));
      const at = x === null ? line.x.length - 1 : lastAt(line.x, x);
      setSample(chip.firstChild, this.board.look(line.run));
      setText(chip.children[1], at < 0 ? "–" : number(line.shown[at]));
      setText(chip.lastChild, this.board.shortName(line.run));
    });
    if (x === null) this.plot.setAttribute("aria-label", `${this.metric}: ${this.lines.map(line =>
      `${this.board.shortName(line.run)} ${line.x.length} points, last ${number(line.raw.at(-1))}`).join("; ")}`);
    this.line.hidden = x === null;
    if (x !== null) this.line.style.transform = `translateX(${this.graph.toDomXCoord(x)}px)`;
    this.reset.hidden = !this.board.window;
  }
}

export class Board {
  constructor(container, { runs, axis = "step", smoothing = 0, log = false }) {
    this.container = container;
    this.runs = runs;            // "project/name"
    this.looks = null;           // of each, once one is asked for: the list of runs is there by then
    this.hidden = new Set();
    this.pointed = null;         // the run that a person points at in the legend: the others step back
    this.settings = { axis, smoothing, log };
    this.charts = new Map();
    this.window = null;          // zoomed x range
    this.cursor = null;
    this.watcher = new IntersectionObserver(entries => {
      for (const entry of entries) {
        const chart = this.charts.get(entry.target.dataset.metric);
        if (!chart) continue;
        chart.seen = entry.isIntersecting;
        if (chart.seen && chart.stale) chart.draw();
      }
    }, { rootMargin: "200px" });
    this.onTheme = () => this.draw();
    document.addEventListener("themechange", this.onTheme);
  }

  chart(metric) {
    if (!this.charts.has(metric)) {
      const chart = new Chart(this, metric);
      this.charts.set(metric, chart);
      this.watcher.observe(chart.element);
    }
    return this.charts.get(metric);
  }

  look(run) {
    this.looks ||= looksOf(this.runs);
    return this.looks.get(run);
  }

  shortName(run) {
    const name = run.split("/")[1];
    return this.runs.filter(other => other.split("/")[1] === name).length > 1 ? run : name;
  }

  xLabel(x) {
    return this.settings.axis === "time" ? duration(x) : compact(x);
  }

  set(changes) {
    if ("axis" in changes && changes.axis !== this.settings.axis) { this.window = null; this.cursor = null; }
    Object.assign(this.settings, changes);
    this.draw();
  }

  pointAt(run) {
    const pointed = this.hidden.has(run) ? null : run;
    if (pointed === this.pointed) return;
    this.pointed = pointed;
    this.draw();
  }

  point(x) {
    this.cursor = x;
    for (const chart of this.charts.values()) if (chart.seen) chart.show(x);
  }

  zoom(range) {
    this.window = range;
    this.draw();
  }

  draw() {
    for (const chart of this.charts.values()) chart.draw();
  }

  close() {
    document.removeEventListener("themechange", this.onTheme);
    this.watcher.disconnect();
    for (const chart of this.charts.values()) chart.clear();
  }
}

// Every metric that any of the runs has, in sections by the first part of its name.
export function sections(runs) {
  const found = new Map();
  for (const run of runs)
    for (const metric of curvesOf(run).metrics.keys()) {
      const section = metric.includes("/") ? metric.split("/")[0] : "training";
      if (!found.has(section)) found.set(section, new Set());
      found.get(section).add(metric);
    }
  const first = ["loss", "validation_loss", "grad_norm", "learning_rate", "tokens_per_second", "step_time_ms"];
  const rank = metric => (first.indexOf(metric) + 100) % 100;
  return [...found.entries()].sort(([a], [b]) => (a !== "training") - (b !== "training") || a.localeCompare(b))
    .map(([section, metrics]) => [section, [...metrics].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b))]);
}
