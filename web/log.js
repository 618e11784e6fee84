// The tail of a run's output, followed while it grows. Escapes for terminals are taken out; a carriage return ends a line.
import { h, replace } from "./dom.js";
import { ApiError, hasEnded, log } from "./api.js";
import { choice } from "./parts.js";

const tailBytes = 65536, keptCharacters = 400000, lookMs = 1200;
// eslint-disable-next-line no-control-regex
const escapes = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][\s\S]*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

const clean = text => text.replace(/\r+\n/g, "\n").replace(/\r/g, "\n").replace(escapes, "");

export class LogTail {
  // runNow gives the run as the list has it, or undefined.
  constructor(name, runNow) {
    this.name = name;
    this.runNow = runNow;
    this.stream = "stderr";
    this.following = true;
    this.output = h("pre", { class: "log", tabindex: "0", "aria-label": "Output of the run" });
    this.follow = h("input", { type: "checkbox", checked: true, on: { change: () => { this.following = this.follow.checked; this.toEnd(); } } });
    this.element = h("div", { class: "log-box" }, h("div", { class: "controls" },
      choice("Stream", "stream", [["stderr", "Progress and errors"], ["stdout", "Output"]], "stderr", stream => this.show(stream)),
      h("label", { class: "control" }, this.follow, h("span", {}, "Follow"))), this.output);
    this.output.addEventListener("wheel", event => { if (event.deltaY < 0) this.follow.checked = this.following = false; }, { passive: true });
  }

  start() {
    this.show(this.stream);
  }

  stop() {
    this.generation = null;
    clearTimeout(this.timer);
  }

  show(stream) {
    this.stop();
    this.stream = stream;
    this.offset = -tailBytes;
    this.text = "";
    replace(this.output, "");
    this.generation = {};
    this.look(this.generation);
  }

  toEnd() {
    if (this.following) this.output.scrollTop = this.output.scrollHeight;
  }

  async look(generation) {
    let some = false;
    const run = this.runNow();
    try {
      if (run && run.attempt <= 1 && ["created", "queued", "submitted", "pending"].includes(run.state)) throw new ApiError(404, "not started yet");
      const piece = await log(this.name, { stream: this.stream, offset: this.offset });
      if (generation !== this.generation) return;
      this.offset = piece.next;
      some = piece.text.length > 0;
      if (some) this.add(piece.text);
      else if (!this.text) replace(this.output, "Nothing was written here.");
    } catch (fault) {
      if (generation !== this.generation) return;
      if (!this.text) replace(this.output, fault.status === 404 || fault.status === 409 ? "Nothing was written here yet." : fault.message);
    }
    if (some || !run || !hasEnded(run)) this.timer = setTimeout(() => this.look(generation), some ? 100 : lookMs);
  }

  add(text) {
    const start = this.text.length;
    this.text += clean(text);
    if (start === 0 || this.text.length > keptCharacters) {
      this.text = this.text.slice(-keptCharacters);
      replace(this.output, this.text);
    } else {
      this.output.append(this.text.slice(start));
    }
    this.toEnd();
  }
}
