// Asks the daemon. The token comes with the address (#token=…), is kept for this tab, and leaves the address bar at once.
const key = "switchyard-token";
const ended = new Set(["succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"]);
const working = new Set(["running", "finishing"]);

export const hasEnded = run => ended.has(run.state);
export const isWorking = run => working.has(run.state);
export const isWaiting = run => !hasEnded(run) && !isWorking(run);
// What is at work, then what waits, then what is over; the order within each is kept.
export const byPhase = runs => [isWorking, isWaiting, hasEnded].flatMap(phase => runs.filter(phase));
export const nameOf = run => `${run.project}/${run.name}`;

export class ApiError extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}

let token = sessionStorage.getItem(key) || "";

// Reads "#token=HEX" or "#token=HEX/route" and leaves "#/route".
export function takeToken() {
  const match = /^#token=([0-9a-f]+)(\/.*)?$/i.exec(location.hash);
  if (!match) return;
  setToken(match[1]);
  history.replaceState(null, "", `#${match[2] || "/runs"}`);
}

export function setToken(text) {
  token = text;
  sessionStorage.setItem(key, token);
}

async function ask(path, options = {}) {
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...options.headers };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw new ApiError(0, "the daemon does not answer");
  }
  if (!response.ok) {
    let sentence = `HTTP ${response.status}`;
    try { sentence = (await response.json()).error || sentence; } catch { /* not JSON: the status must do */ }
    throw new ApiError(response.status, sentence);
  }
  return response;
}

export const get = async path => (await ask(path)).json();
export const post = async path => (await ask(path, { method: "POST" })).json();

export const runPath = name => `/api/v1/runs/${name.split("/").map(encodeURIComponent).join("/")}`;

export async function metrics(name, { after = 0, points = 1500, names = null } = {}) {
  const query = new URLSearchParams({ after, points });
  if (names) for (const metric of names) query.append("name", metric);
  return get(`${runPath(name)}/metrics?${query}`);
}

export async function log(name, { stream, offset, attempt = 0 }) {
  const response = await ask(`${runPath(name)}/logs?${new URLSearchParams({ stream, offset, attempt, limit: 262144 })}`);
  return { text: await response.text(), next: Number(response.headers.get("X-Next-Offset")) };
}

// The live stream, by fetch so that it carries the token. onEvent for each event, onOpen when it stands; returns when it ends.
export async function events(onOpen, onEvent, signal) {
  const response = await ask("/api/v1/events", { signal, headers: { Accept: "text/event-stream" } });
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pending += value;
    const messages = pending.split("\n\n");
    pending = messages.pop();
    for (const message of messages) {
      const data = message.split("\n").filter(line => line.startsWith("data:")).map(line => line.slice(5).trim()).join("\n");
      if (data) onEvent(JSON.parse(data));
    }
  }
}
