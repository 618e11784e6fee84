// The shell: routes by the address's hash, the state of the connection, and the banner that says what is wrong.
import { setToken, takeToken } from "./api.js";
import { h, replace, setText } from "./dom.js";
import { brief } from "./format.js";
import { open as openRuns } from "./page_runs.js";
import { open as openCharts } from "./page_charts.js";
import { open as openCompare } from "./page_compare.js";
import { open as openQueue } from "./page_queue.js";
import { open as openRun } from "./page_run.js";
import { empty } from "./parts.js";
import { databaseFault, follow, refresh, schedulerSilence, store, subscribe } from "./store.js";

const main = document.getElementById("main"), banner = document.getElementById("banner"), connection = document.getElementById("connection");
let page = null;

function pageOf(path, query) {
  const run = /^\/run\/([A-Za-z0-9_-]+\/[A-Za-z0-9_-]+)$/.exec(path);
  if (run) return openRun(main, query, run[1]);
  if (path === "/runs" || path === "/" || path === "") return openRuns(main, query);
  if (path === "/queue") return openQueue(main, query);
  if (path === "/charts") return openCharts(main, query);
  if (path === "/compare") return openCompare(main, query);
  replace(main, empty("There is no such page", h("p", {}, h("a", { href: "#/runs" }, "All runs"))));
  return { title: "Not found", update() {}, close() {} };
}

function route() {
  takeToken();
  const [path, query = ""] = location.hash.slice(1).split("?");
  if (page) page.close();
  page = pageOf(path, new URLSearchParams(query));
  showFault();
  document.title = `${page.title} · Switchyard`;
  for (const link of document.querySelectorAll("#nav a")) {
    const here = link.getAttribute("href") === `#${path === "" || path === "/" ? "/runs" : path}`;
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
}

function tokenForm() {
  const field = h("input", { type: "password", name: "token", autocomplete: "off", "aria-label": "Token", placeholder: "Token" });
  return h("form", { on: { submit: event => {
    event.preventDefault();
    const given = /([0-9a-f]{32,})/i.exec(field.value);
    if (given) { setToken(given[1]); refresh(); }
  } } }, h("span", {}, "This daemon wants its token. Open the address that "), h("code", {}, "switchyard serve"), h("span", {}, " printed, or paste the token: "),
  field, h("button", { class: "button", type: "submit" }, "Use it"));
}

let shown = null;
function showFault() {
  const fault = store.fault, health = store.health || {}, silence = schedulerSilence(health.scheduler), broken = health.config && health.config.fault;
  const stuck = databaseFault();
  const kind = fault ? (fault.status === 401 ? "token" : fault.status === 0 ? "lost" : "other") : stuck ? "database" : silence ? "scheduler" : broken ? "config" : null;
  const key = kind === "other" ? fault.message : kind === "database" ? stuck : kind === "scheduler" ? silence : kind === "config" ? broken : kind;
  banner.hidden = !kind || (kind === "scheduler" && location.hash.startsWith("#/queue")); // that page says it itself, and more
  if (key === shown) return;
  shown = key;
  banner.className = `banner banner-${kind}`;
  if (kind === "token") replace(banner, tokenForm());
  else if (kind === "lost") replace(banner, "The connection to the daemon is lost. What you see may be old; trying again…");
  else if (kind === "database") replace(banner, `Nothing could be recorded since ${brief(health.database.since)}; what runs write meanwhile is taken in once it can be. `, h("pre", {}, stuck));
  else if (kind === "scheduler") replace(banner, `${silence}. States that only it knows are as it told them then; what runs goes on, and is read from its own records. `,
    h("a", { href: "#/queue" }, "The queue"));
  else if (kind === "config") replace(banner, `${health.config.file} is broken; what it said before counts until it is mended. `, h("pre", {}, broken));
  else if (kind) replace(banner, fault.message);
}

function showConnection() {
  const state = store.live && !store.fault ? "live" : store.fault ? "off" : "waiting";
  connection.className = `connection connection-${state}`;
  setText(connection.lastChild, state === "live" ? "Live" : state === "off" ? "Offline" : "Connecting");
}

subscribe(() => { showFault(); showConnection(); if (page) page.update(); });
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); main.focus(); });
takeToken();
showConnection();
route();
refresh();
follow();
