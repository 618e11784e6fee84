// Every metric of the chosen runs.
import { h, replace, setText } from "./dom.js";
import { hasEnded, nameOf } from "./api.js";
import { sectionLabel } from "./format.js";
import { Board, sections } from "./curves.js";
import { sample } from "./looks.js";
import { choice, empty } from "./parts.js";
import { curvesOf, findRun, store } from "./store.js";

const settings = { axis: "step", smoothing: 0, log: false, filter: "" }; // kept while other pages are open

// Without a choice: the two newest of the newest project that train.
function defaultRuns() {
  const training = store.runs.filter(run => run.kind === "train");
  const project = training.length ? training[0].project : "";
  const own = training.filter(run => run.project === project && (run.step > 0 || !hasEnded(run)));
  const waits = run => !run.step && run.state !== "running"; // those come last: a long queue would hide what there is to see
  return own.filter(run => !waits(run)).concat(own.filter(waits)).slice(0, 2).reverse().map(nameOf);
}

export function open(root, query) {
  let asked = (query.get("runs") || "").split(",").filter(Boolean);
  let board = null, closed = false;
  const legend = h("div", { class: "legend", role: "group", "aria-label": "Runs shown" });
  const place = h("div");
  const filter = h("input", { type: "search", placeholder: "Filter metrics", "aria-label": "Filter metrics", value: settings.filter,
    on: { input: () => { settings.filter = filter.value; arrange(); } } });
  const amount = h("output", {}, settings.smoothing.toFixed(2));
  const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: settings.smoothing, "aria-label": "Smoothing",
    on: { input: () => { settings.smoothing = Number(slider.value); setText(amount, settings.smoothing.toFixed(2)); change({ smoothing: settings.smoothing }); } } });
  const log = h("input", { type: "checkbox", checked: settings.log, on: { change: () => { settings.log = log.checked; change({ log: log.checked }); } } });
  const controls = h("div", { class: "controls" },
    choice("x axis", "axis", [["step", "Step"], ["tokens", "Tokens"], ["time", "Time"]], settings.axis, axis => { settings.axis = axis; change({ axis }); }),
    h("label", { class: "control" }, h("span", {}, "Smoothing"), slider, amount),
    h("label", { class: "control" }, log, h("span", {}, "Log scale")), filter);
  replace(root, h("div", { class: "page-head" }, h("h1", {}, "Charts"), h("a", { href: "#/runs" }, "Choose runs")), legend, controls, place);

  const change = changes => { if (board) board.set(changes); };

  function start() {
    const names = asked.length ? asked.filter(findRun) : defaultRuns();
    if (!names.length) {
      controls.hidden = true;
      replace(place, empty("Nothing to draw yet", "Curves appear here with the first step of a training run."));
      return;
    }
    controls.hidden = false;
    board = new Board(place, { runs: names, ...settings });
    replace(place, h("p", { class: "quiet" }, "Loading…"));
    drawLegend();
  }

  function drawLegend() {
    replace(legend, board.runs.map(name => {
      const leave = () => board.pointAt(null);
      const button = h("button", { type: "button", class: "chip", "aria-pressed": String(!board.hidden.has(name)), on: {
        click: () => {
          if (!board.hidden.delete(name)) board.hidden.add(name);
          button.setAttribute("aria-pressed", String(!board.hidden.has(name)));
          board.pointed = null;
          board.draw();
        },
        pointerenter: event => { if (event.pointerType === "mouse") board.pointAt(name); }, // a finger has no way to point without touching
        focus: () => { if (button.matches(":focus-visible")) board.pointAt(name); },
        pointerleave: leave, blur: leave,
      } }, sample(board.look(name)), name);
      return button;
    }));
  }

  let arranged = "";
  function arrange(force = true) {
    if (!board) return;
    const words = settings.filter.trim().toLowerCase();
    const shown = sections(board.runs).map(([title, metrics]) => [title, metrics.filter(metric => metric.toLowerCase().includes(words))])
      .filter(([, metrics]) => metrics.length);
    const key = JSON.stringify(shown);
    if (!force && key === arranged) return;
    arranged = key;
    if (!shown.length) {
      replace(place, words ? empty("Nothing matches", "No metric has this in its name.")
        : empty("Waiting for the first step", "These runs have logged nothing yet; their curves appear by themselves."));
      return;
    }
    replace(place, shown.map(([title, metrics]) => h("section", { class: "block" },
      h("h2", {}, sectionLabel(title), h("small", {}, String(metrics.length))),
      h("div", { class: "grid" }, metrics.map(metric => board.chart(metric).element)))));
  }

  async function update() {
    if (!store.loaded || closed) return;
    if (!board) start();
    if (!board) return;
    const came = await Promise.all(board.runs.map(name => curvesOf(name).refresh().catch(() => false)));
    if (closed || !board) return;
    arrange(arranged === "");
    if (came.some(Boolean)) board.draw();
  }

  update();
  return { title: "Charts", update, close() { closed = true; if (board) board.close(); } };
}
