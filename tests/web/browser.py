"""The dashboard as a person uses it: from an empty page to the comparison of two runs, with the real daemon, worker and browser.

    browser.py [PART…]      all of it, or the parts named; most of them look at what earlier ones left
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from playwright.sync_api import sync_playwright  # noqa: E402
from crowds import checkpoints, many_curves, many_runs  # noqa: E402
from support import Home  # noqa: E402
from window import SHOTS, Window, until, window  # noqa: E402

ENGLISH = pathlib.Path("/usr/share/dictd/gcide.dict.dz")

SPEC = """\
# What changes when a small dense model becomes a Mixture of Experts?
project: first-look
data: {text: TEXT, document: paragraph, tokenizer: byte, split: [95, 5, 0], sequence_length: 128}
model: {layers: 2, hidden_size: 64, ffn_hidden_size: 256, attention_heads: 4, kv_heads: 2, vocab_size: 257, tied_embeddings: true}
training:
  iterations: 240
  micro_batch_size: 8
  global_batch_size: 16
  precision: fp32
  optimizer: {name: adamw, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, clip_grad: 1.0}
  learning_rate: {schedule: wsd, peak: 5e-3, minimum: 5e-4, warmup_iterations: 15, decay_iterations: 60, decay_style: exponential, total_iterations: 240}
  validation: {interval: 20, iterations: 4}
  seed: 1234
resources: {nodes: 1, ranks_per_node: 1, threads_per_rank: 1, time_limit: 10m}
runs:
  dense: {}
  moe:
    model: {moe: {experts: 8, top_k: 2, expert_ffn_hidden_size: 128, losses: [{type: aux_loss, coefficient: 1e-2}], per_layer_metrics: true}}
"""

PAIR = "first-look/dense-1,first-look/moe-1"
PAGES = {"runs": "/runs", "groups": "/runs", "queue": "/queue", "charts": f"/charts?runs={PAIR}", "compare": "/compare?a=first-look/dense-1&b=first-look/moe-1", "run": "/run/first-look/moe-1"}


def without_token(browser, home):
    one = Window(browser, home)
    one.page.goto(home.url)
    one.page.wait_for_selector(".banner-token")
    assert "switchyard serve" in one.page.inner_text("#banner")
    one.page.fill("#banner input", home.token)
    one.page.click("#banner button")
    one.page.wait_for_selector("text=No runs yet")
    assert one.page.is_hidden("#banner")
    assert all("401" in fault for fault in one.faults), one.faults
    one.context.close()


def points(page, metric):
    """Of each run: how many points its curve has, and the last value, as a screen reader is told."""
    label = page.get_attribute(f'[data-metric="{metric}"] .plot', "aria-label") or ""
    return {name: int(count.replace(",", "")) for name, count in re.findall(r"(\S+) ([\d,]+) points", label)}


def committed_spec(home):
    """The spec in a repository of its own, so that the runs have a commit to show."""
    spec = home.spec(SPEC.replace("TEXT", str(ENGLISH) if ENGLISH.exists() else "corpus.txt"), "first-look.yaml")
    git = ["git", "-C", str(home.work), "-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "The question"]):
        subprocess.run(git + words, check=True)
    return spec, subprocess.check_output(git + ["rev-parse", "HEAD"], text=True).strip()


def grows(browser, home):
    """Runs appear in an open page, and their curves grow in it without a reload."""
    spec, commit = committed_spec(home)
    with window(browser, home) as one:
        page = one.open()
        page.wait_for_selector("text=No runs yet")
        assert page.evaluate("location.hash") == "#/runs", "the token has left the address"
        home.cli("submit", spec)
        page.wait_for_selector("tr:has-text('moe-1')")
        assert commit[:8] in page.inner_text("tr:has-text('moe-1')")
        for name in ("dense-1", "moe-1"):
            page.check(f"input[aria-label='Choose first-look/{name}']")
        page.click("text=Charts >> nth=-1")
        page.wait_for_selector('[data-metric="loss"] canvas', timeout=90000)
        seen = []
        def both_grow():
            now = points(page, "loss")
            if len(now) == 2 and (not seen or now != seen[-1]):
                seen.append(now)
            return len(seen) >= 4
        until(both_grow, 90)
        assert all(earlier[name] <= later[name] for earlier, later in zip(seen, seen[1:]) for name in earlier), seen
        assert seen[-1]["dense-1"] > seen[0]["dense-1"] and seen[-1]["moe-1"] > seen[0]["moe-1"], seen
        home.cli("wait", "dense-1", "moe-1", "--timeout", "4m", timeout=300)
        until(lambda: points(page, "loss") == {"dense-1": 240, "moe-1": 240})
        assert points(page, "validation_loss") == {"dense-1": 12, "moe-1": 12}, points(page, "validation_loss")
        page.click("#nav >> text=Runs")
        page.wait_for_selector("tr:has-text('moe-1') .state-succeeded")


def inked(page, metric):
    """How many pixels of the chart's canvases are not empty."""
    return page.evaluate("""metric => [...document.querySelectorAll(`[data-metric="${metric}"] canvas`)].reduce((sum, canvas) =>
        sum + canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.filter((_, i) => i % 4 === 3).filter(Boolean).length, 0)""", metric)


def charts(browser, home):
    """Cursor, zoom, axes, smoothing, scale and filter act on all charts alike."""
    with window(browser, home) as one:
        page = one.open(PAGES["charts"])
        page.wait_for_selector('[data-metric="grad_norm"] canvas')
        assert inked(page, "loss") > 500
        box = page.locator('[data-metric="loss"] .plot').bounding_box()
        left, middle = box["x"] + 80, box["y"] + box["height"] / 2
        last = page.inner_text('[data-metric="grad_norm"] .chart-values b >> nth=0')
        page.mouse.move(left, middle)
        page.wait_for_selector('[data-metric="grad_norm"] .cursor:not([hidden])')
        assert page.inner_text('[data-metric="grad_norm"] .chart-values b >> nth=0') != last, "values follow the cursor in every chart"
        page.mouse.down()
        page.mouse.move(left + 120, middle, steps=5)
        page.mouse.up()
        page.wait_for_selector('[data-metric="grad_norm"] .link-button:not([hidden])')
        page.click('[data-metric="grad_norm"] .link-button')
        page.wait_for_selector('[data-metric="loss"] .link-button[hidden]', state="attached")
        for axis in ("tokens", "time", "step"):
            page.check(f"input[value={axis}]", force=True)
            assert inked(page, "loss") > 500, axis
        page.check("text=Log scale")
        page.fill("input[type=range]", "0.9")
        assert inked(page, "loss") > 500
        page.fill("input[aria-label='Filter metrics']", "moe/")
        page.wait_for_selector("h2:has-text('MoE')")
        assert page.locator(".chart").count() == 6 and page.locator('[data-metric="loss"]').count() == 0
        page.click(".chip >> nth=0")
        assert page.get_attribute(".chip >> nth=0", "aria-pressed") == "false"


def compare(browser, home):
    answer = home.json("compare", "dense-1", "moe-1")
    with window(browser, home) as one:
        page = one.open()
        for name in ("dense-1", "moe-1"):
            page.check(f"input[aria-label='Choose first-look/{name}']")
        page.click(".actions >> text=Compare")
        page.wait_for_selector(".facts li")
        assert "a=first-look/dense-1&b=first-look/moe-1" in page.url, page.url
        facts = page.inner_text(".facts")
        assert "same samples in the same order" in facts and "Both come from commit" in facts and "parameters" in facts and "validation loss" in facts, facts
        shown = [chart.get_attribute("data-metric") for chart in page.locator(".chart").all()]
        assert shown[:4] == ["loss", "grad_norm", "step_time_ms", "tokens_per_second"], shown
        row = page.locator("tr", has=page.locator("td", has_text=re.compile("^loss$"))).inner_text().split("\t")
        assert float(row[1]) == float(f"{answer['metrics']['loss']['a']:.5g}") and float(row[2]) == float(f"{answer['metrics']['loss']['b']:.5g}"), row
        assert page.inner_text("text=model.moe.experts") and page.locator("text=model.layers").count() == 0, "differences only"
        assert "What changes when" in page.inner_text(".question")
        page.click("text=Swap")
        page.wait_for_url(re.compile("a=first-look/moe-1"))


def run_page(browser, home):
    """The log follows the file, and what stands in it stays text."""
    directory = pathlib.Path(home.json("show", "moe-1")["directory"])
    with window(browser, home) as one:
        page = one.open(PAGES["run"])
        page.wait_for_selector(".events li")
        for words in ("Provenance", "Plan against measurement", "finished with exit code 0", "sha256"):
            assert page.locator(f"text={words}").count() > 0, words
        assert page.locator(f"td span:text-is('{os.uname().nodename}')").count() == 1, "where the attempt ran"
    with open(directory / "attempt-1" / "stderr.log", "a") as log:
        log.write("\x1b[31m<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>\x1b[0m\nlast line\n")
    with window(browser, home) as one:
        page = one.open(PAGES["run"])
        page.locator(".log", has_text="last line").wait_for() # not a function that is polled: the page's policy forbids eval
        text = page.inner_text(".log")
        assert "<img src=x" in text and "\x1b" not in text and "[31m" not in text, text[-200:]
        assert page.locator(".log img, .log script").count() == 0 and page.title() != "taken"


def lost_and_found(browser, home):
    """The daemon dies and comes back: the page says so, and goes on by itself."""
    one = Window(browser, home)
    page = one.open()
    page.wait_for_selector(".connection-live")
    home.stop(signal.SIGKILL)
    page.wait_for_selector(".banner-lost")
    home.serve(port=int(home.url.rsplit(":", 1)[1]))
    page.wait_for_selector(".banner-lost", state="hidden", timeout=30000)
    page.wait_for_selector(".connection-live", timeout=30000)
    assert all("ERR_" in fault for fault in one.faults), one.faults
    one.context.close()


def keyboard(browser, home):
    with window(browser, home) as one:
        page = one.open()
        page.wait_for_selector("table.runs")
        reached = []
        for _ in range(16):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim()"))
        for wanted in ("Runs", "Compare", "Switch between light and dark", "Filter runs by name or state", "Choose first-look/moe-1", "moe-1"):
            assert wanted in reached, reached
        # The list is searched by name and by state.
        total = page.locator("table.runs tbody tr").count()
        for words, some in (("succ", True), ("moe", True), ("failed", False)):
            page.fill("input[type=search]", words)
            rows = page.locator("table.runs tbody tr").all_inner_texts()
            assert (0 < len(rows) <= total and all(words in row for row in rows)) == some, (words, rows)
        page.fill("input[type=search]", "")
        page.focus("#theme")
        page.keyboard.press("Enter")
        assert page.get_attribute("html", "data-theme") == "dark"
        page.reload()
        assert page.get_attribute("html", "data-theme") == "dark", "the choice is kept"


CONTRAST = """() => { const style = getComputedStyle(document.documentElement);
  const light = name => { const probe = document.createElement("canvas").getContext("2d"); probe.fillStyle = style.getPropertyValue(name); probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const low = [];
  for (const ground of ["--page", "--surface", "--sunken"]) for (const text of ["--ink", "--muted", "--accent", "--good", "--bad"])
    if (ratio(text, ground) < 4.5) low.push([text, ground, ratio(text, ground)]);
  for (const [text, ground] of [["--bad", "--bad-soft"], ["--warn", "--warn-soft"], ["--on-accent", "--accent"]]) if (ratio(text, ground) < 4.5) low.push([text, ground]);
  for (let i = 1; i <= 8; i++) if (ratio(`--curve-${i}`, "--surface") < 3) low.push([`--curve-${i}`, ratio(`--curve-${i}`, "--surface")]);
  return low; }"""


# Enough waits for a queue page to show: two trials at once behind a canary, and a run behind all of them.
SWEPT = SPEC[:SPEC.index("runs:")].replace("first-look", "swept").replace("TEXT", "corpus.txt").replace("iterations: 240\n", "iterations: 1000000\n", 1) + \
    "runs:\n  moe:\n    model: {moe: {experts: 4}}\n    sweep: {grid: {model.moe.top_k: [2, 3], training.seed: [1, 2]}, canary: 1, concurrency: 2}\n" \
    "  last: {needs: [moe]}\n"


def queue(browser, home):
    """What waits, why and for whom; sweeps in groups; and a scheduler that does not answer is told on every page."""
    home.cli("submit", home.spec(SWEPT, "swept.yaml"))
    canary = "swept/moe-top_k2-seed1-1"
    home.wait_for(canary, {"running"})
    with window(browser, home) as one:
        page = one.open("/queue")
        page.wait_for_selector("table.queue tr:has-text('moe-top_k3-seed2-1')")
        assert "1 running · 4 waiting" in page.inner_text(".page-head"), page.inner_text(".page-head")
        why = lambda row: page.inner_text(f"tr:has(td.run a:text-is('{row}')) .why")
        assert why("moe-top_k3-seed2-1") == f"waits for {canary.split('/')[1]}", why("moe-top_k3-seed2-1")
        rows = page.locator("table.queue tbody tr").all()
        assert [row.locator("td").first.inner_text() for row in rows] == ["1", "2", "3", "4"]
        assert why("last-1").startswith(f"waits for {canary.split('/')[1]}, ") and "and 1 more" in why("last-1"), why("last-1")
        assert "top k 3" in page.inner_text("tr:has-text('moe-top_k3-seed2-1') .swept") and "4 wait for it" in page.inner_text(".working")
        page.click(f"a:has-text('{canary}') >> nth=0")
        page.wait_for_selector("dd .swept:has-text('seed 1')")
        page.goto(f"{home.url}/#/runs")
        page.select_option("select[aria-label='Group by a swept key']", label="By top k")
        headings = page.locator("tr.group").all_inner_texts()
        assert [text.split("\t")[0].split("\n")[0].split("2 runs")[0].strip() for text in headings][:2] == ["top k 2", "top k 3"], headings
        assert "2 runs · 1 running, 1 queued" in headings[0].replace("queued, 1 running", "running, 1 queued"), headings
    health = {"cores": 2, "gpus": 0, "scheduler": {
        "name": "slurm", "answers": False, "silent_since": 1780000000, "answered": 1779999990, "accounting": "silent",
        "accounting_silent_since": 1780000000, "faults": ["squeue: <b>Unable to contact slurm controller</b>"], "jobs": 3}}
    with window(browser, home) as one:
        one.page.route("**/api/v1/health", lambda route: route.fulfill(json=health))
        page = one.open("/runs")
        page.wait_for_selector(".banner-scheduler:has-text('Slurm has not answered since')")
        page.click(".banner a")
        page.wait_for_selector(".notice:has-text('<b>Unable to contact slurm controller</b>')")
        assert "2026" in page.inner_text(".notice"), "a silence of another day has its date"
        assert not page.locator(".banner").is_visible(), "said once"
        page.click("#nav >> text=Runs")
        page.locator(".banner-scheduler").wait_for()
    answers = {**health["scheduler"], "answers": True, "silent_since": None, "answered": time.time(), "accounting": "works", "faults": []}
    waiting = {"state": "pending", "executor": "slurm", "pending_reason": "waits for resources (Resources)", "reason": "waits for resources (Resources)", "waits_for": [],
               "expected_start": time.time() + 7300, "attempt": 1}
    def on_slurm(route):
        answer = route.fetch().json()
        for run in answer.get("runs", [answer]):
            if run["name"] == canary.split("/")[1]:
                run.update(executor="slurm", reason="attempt 1 is running on n[1-2]")
            if run["name"] == "last-1":
                run.update(waiting, **({"attempts": [{"number": 1, "state": "pending", "job_id": "4711", "started": time.time(), "ended": 0}]} if "attempts" in run else {}))
        route.fulfill(json=answer)
    with window(browser, home, width=390, height=844) as one:  # also: no complaint of a log that is not there yet
        one.page.route("**/api/v1/health", lambda route: route.fulfill(json={**health, "scheduler": answers}))
        one.page.route(re.compile("/api/v1/runs(/swept/last-1)?$"), on_slurm)
        page = one.open("/queue")
        row = page.locator("tr:has(td.run a:text-is('last-1'))")
        row.locator(".why:text-is('waits for resources (Resources)')").wait_for()
        assert "in 2 h" in row.inner_text(), row.inner_text()
        assert row.locator("td.nothing").count() == 1 and not row.locator("td.nothing").is_visible(), "a phone shows no empty cells"
        quiet = page.evaluate("getComputedStyle(document.querySelector('.notice')).color === getComputedStyle(document.querySelector('.page-head .quiet')).color")
        assert quiet and "Slurm answered just now; accounting works." in page.inner_text(".notice"), "an answer is no alarm"
        assert "attempt 1 is running on n[1-2]" in page.inner_text(".working"), page.inner_text(".working")
        page.goto(f"{home.url}/#/run/swept/last-1")
        page.wait_for_selector(".notice:text-is('waits for resources (Resources)')")
        about = page.inner_text("dl")
        assert "Slurm, job 4711" in about and "Expected start" in about, about
        page.wait_for_timeout(1500)


def end_queue(_, home):
    """The canary ends, and with it all that needs it: nothing of the queue's takes a core from what follows."""
    home.cli("cancel", "swept/moe-top_k2-seed1-1")
    for name in ("moe-top_k2-seed1-1", "moe-top_k3-seed2-1", "last-1"):
        home.wait_for(f"swept/{name}", {"cancelled", "failed"})


def reasons(browser, home):
    """Why a run failed is read in the list, on a phone too."""
    reason = home.json("show", "swept/last-1")["reason"]
    for width, height in ((1280, 900), (375, 780)):
        with window(browser, home, width=width, height=height) as one:
            page = one.open()
            told = page.locator("tr:has(td.run a:text-is('last-1')) .reason")
            told.wait_for()
            assert told.inner_text() == reason and told.bounding_box()["width"] > 100, (told.inner_text(), told.bounding_box())
            badge = page.locator("tr:has(td.run a:text-is('last-1')) .state").bounding_box()
            assert badge["x"] + badge["width"] <= width and page.evaluate("document.documentElement.scrollWidth <= innerWidth"), badge
            assert page.locator("tr:has(td.run a:text-is('dense-1')) .reason").is_hidden(), "a run that ended well has nothing to explain"
            page.screenshot(path=str(SHOTS / f"reasons-{width}.png"))


def broken_config(browser, home):
    """Every page says where config.yaml is broken, whole also on a phone, and takes it back when it is mended."""
    config = home.home / "config.yaml"
    config.write_text("slurm: [1\n")
    for width, height in ((1280, 900), (375, 780)):
        with window(browser, home, width=width, height=height) as one:
            page = one.open()
            told = page.locator(".banner pre")
            told.wait_for()
            assert f"{config}:2:1: " in told.inner_text(), told.inner_text()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"the banner is wider than {width}"
            page.screenshot(path=str(SHOTS / f"config-{width}.png"))
            if width == 375:
                config.unlink()
                told.wait_for(state="hidden", timeout=60000)


def stuck_database(browser, home):
    """Every page says that nothing can be recorded, whole also on a phone, and takes it back once it can be."""
    with contextlib.closing(sqlite3.connect(home.home / "switchyard.db", isolation_level=None)) as holder, window(browser, home, theme="dark") as one:
        holder.execute("BEGIN IMMEDIATE")
        assert home.run("submit", home.spec(), "--run", "dense").returncode == 3
        page = one.open()
        told = page.locator(".banner-database")
        told.wait_for()
        assert "Nothing could be recorded since" in told.inner_text() and "switchyard.db: locked by another program" in told.inner_text(), told.inner_text()
        for width, theme in ((1280, "dark"), (375, "dark"), (375, "light")):
            page.set_viewport_size({"width": width, "height": 780})
            page.emulate_media(color_scheme=theme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"the banner is wider than {width}"
            page.screenshot(path=str(SHOTS / f"database-{width}-{theme}.png"))
        holder.execute("ROLLBACK")
        told.wait_for(state="hidden", timeout=60000)


README_HEIGHT = 1045


def pictures(browser, home):
    """Every page in both palettes, on a laptop and on a phone; nothing hangs over the edge."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        for width, height in ((1280, 900), (375, 780)):
            with window(browser, home, width=width, height=height, theme=theme) as one:
                page = one.open()
                page.wait_for_selector("table.runs")
                assert page.evaluate(CONTRAST) == [], page.evaluate(CONTRAST)
                for name, route in PAGES.items():
                    page.goto(f"{home.url}/#{route}")
                    if name == "groups":
                        page.select_option("select[aria-label='Group by a swept key']", label="By top k")
                    elif name not in ("runs", "queue"):
                        page.wait_for_selector(".chart canvas")
                    bottom = page.evaluate("document.documentElement.scrollHeight")
                    for y in range(0, bottom, 500):  # charts are drawn when they come into view
                        page.evaluate("y => scrollTo(0, y)", y)
                        page.wait_for_timeout(60)
                    page.evaluate("scrollTo(0, 0)")
                    page.wait_for_timeout(400)
                    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {width}"
                    page.screenshot(path=str(SHOTS / f"{name}-{theme}-{width}.png"), full_page=True)
                    if (name, theme, width) == ("compare", "light", 1280):  # the README's picture: its upper part
                        page.screenshot(path=str(SHOTS / "compare.png"), full_page=True, clip={"x": 0, "y": 0, "width": width, "height": README_HEIGHT})


def main():
    with Home() as home, sync_playwright() as playwright:
        home.serve()
        address = json.loads((home.home / "daemon.json").read_text())
        home.url, home.token = address["url"], address["token"]
        browser = playwright.chromium.launch(executable_path=os.environ.get("SWITCHYARD_CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"])
        for part in (without_token, checkpoints, many_curves, many_runs, grows, charts, compare, keyboard, queue, pictures, end_queue, reasons, broken_config, stuck_database, run_page, lost_and_found):
            if sys.argv[1:] and part.__name__ not in sys.argv[1:]:
                continue
            begun = time.monotonic()
            part(browser, home)
            print(f"{part.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
        browser.close()


main()
