// What all pages share: the list of runs, kept fresh by the event stream and by looking again while something runs; and each run's curves.
import { events, get, hasEnded, metrics, nameOf } from "./api.js";
import { brief, moment } from "./format.js";

const lookAlive = 1500, lookIdle = 15000; // milliseconds between looks at the list
const share = 5; // a look that took long (ten thousand runs) is followed by so many times its length without one
const listeners = new Set();

export const store = { runs: [], health: null, loaded: false, fault: null, live: false };

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const tell = () => { for (const listener of [...listeners]) listener(); };

let timer = 0, looking = false, again = false, rest = 0; // rest: events bring no look before then

export async function refresh() {
  if (looking) { again = true; return; }
  looking = true;
  clearTimeout(timer);
  const began = performance.now();
  try {
    const [list, health] = await Promise.all([get("/api/v1/runs"), get("/api/v1/health")]);
    store.runs = list.runs;
    store.health = health;
    store.loaded = true;
    store.fault = null;
  } catch (fault) {
    store.fault = fault;
  }
  looking = false;
  tell();
  const ill = store.fault || databaseFault();
  const alive = store.runs.some(run => !hasEnded(run)), least = share * (performance.now() - began);
  timer = setTimeout(() => document.hidden || refresh(), Math.max(least, again ? 50 : ill ? 2000 : alive ? lookAlive : lookIdle));
  rest = performance.now() + (least > lookAlive ? least : 0);
  again = false;
}

// Holds the event stream open for as long as the page lives; each event brings a fresh look.
export async function follow() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    try {
      await events(() => { store.live = true; pause = 500; refresh(); }, () => performance.now() < rest || refresh());
    } catch (fault) {
      if (fault.status === 401) store.fault = fault;
    }
    store.live = false;
    tell();
    await new Promise(resolve => setTimeout(resolve, pause));
  }
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());

export const findRun = name => store.runs.find(run => nameOf(run) === name);

// What keeps the daemon from recording anything; null: nothing does.
export const databaseFault = () => store.health && store.health.database ? store.health.database.fault : null;

// "Slurm has not answered since 12:03:11"; empty while it answers, or where there is none.
export function schedulerSilence(scheduler) {
  if (!scheduler || scheduler.answers) return "";
  const since = moment(scheduler.silent_since), name = scheduler.name === "slurm" ? "Slurm" : scheduler.name;
  return since ? `${name} has not answered since ${brief(scheduler.silent_since)}` : `${name} has not answered yet`;
}

// ---- curves ----

const toNumber = value => typeof value === "number" ? value : value === "Infinity" ? Infinity : value === "-Infinity" ? -Infinity : NaN;
const reloadAt = 3000; // points past which a curve is asked anew, as an envelope

export class Curves {
  constructor(name) {
    this.name = name;
    this.metrics = new Map(); // metric → {step, time, value, min, max}
    this.last = 0;            // last step known
    this.attempt = null;
    this.complete = false;    // the run has ended and all of it is here
    this.busy = null;
  }

  // Brings what is new; true if anything came. A new attempt repeats steps, so its curves are read from the start.
  refresh() {
    this.busy ||= this.#load().finally(() => { this.busy = null; });
    return this.busy;
  }

  async #load() {
    const run = findRun(this.name);
    const attempt = run ? run.attempt : null, over = run ? hasEnded(run) : false;
    const fresh = attempt !== this.attempt || [...this.metrics.values()].some(curve => curve.step.length > reloadAt);
    if (this.complete && !fresh) return false;
    if (!fresh && run && run.step <= this.last && !over) return false;
    const answer = await metrics(this.name, { after: fresh ? 0 : this.last });
    if (fresh) this.metrics = new Map();
    let came = fresh;
    for (const [metric, curve] of Object.entries(answer.metrics)) came = this.#add(metric, curve) || came;
    this.attempt = attempt;
    this.last = Math.max(fresh ? 0 : this.last, answer.last_step || 0);
    this.complete = over;
    return came;
  }

  #add(metric, curve) {
    if (!curve.step.length) return false;
    const have = this.metrics.get(metric) || { step: [], time: [], value: [], min: null, max: null };
    const value = curve.value.map(toNumber);
    const exact = !curve.min && !have.min;
    if (!exact) {
      have.min = (have.min || [...have.value]).concat((curve.min || curve.value).map(toNumber));
      have.max = (have.max || [...have.value]).concat((curve.max || curve.value).map(toNumber));
    }
    have.step = have.step.concat(curve.step);
    have.time = have.time.concat(curve.time);
    have.value = have.value.concat(value);
    this.metrics.set(metric, have);
    return true;
  }
}

const known = new Map();

export function curvesOf(name) {
  if (!known.has(name)) known.set(name, new Curves(name));
  return known.get(name);
}
