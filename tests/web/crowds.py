"""What much looks like: a run with hundreds of checkpoints, more curves than hues, a thousand runs. The daemon and its pages are real; the
answers about runs are made here, in the form of schema/openapi.yaml."""
import itertools
import json
import math
import re
import time

from window import SHOTS, until, window

VIEWS = [("light", 1280), ("dark", 390), ("dark", 1280), ("light", 390)]


def made_run(number, state="succeeded", project="crowd", **members):
    begun = state not in ("queued", "pending", "created", "submitted")
    step = 240 if state == "succeeded" else 100 if begun else 0
    return {"project": project, "name": f"trial-{number}", "run_id": f"{number:032x}", "kind": "train", "state": state, "reason": None, "attempt": 1 if begun else 0,
            "submission": 1, "step": step, "iterations": 240, "progress": step / 240, "eta_seconds": 60 if state == "running" else None, "loss": 2.5 if begun else None,
            "diverged_step": None, "validation_loss": None, "tokens_per_second": 51234.0 if begun else None, "commit": "0123456789abcdef", "dirty": False,
            "created": 1780000000 + number, "started": 1780000100 if begun else 0, "ended": 0, "directory": f"/runs/{number}", "experts": 8 if number % 2 else 0,
            "executor": "local", "pending_reason": None, "expected_start": None, "waits_for": [], **members}


def listed(page, runs):
    page.route("**/api/v1/runs", lambda route: route.fulfill(json={"runs": runs}))


def pictured(page, name, theme, width):
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {width}"
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / f"{name}-{theme}-{width}.png"), full_page=True)


def top_pictured(page, name, theme, width):
    """As much of it as fits the window: the whole of a long page is a picture that nothing can show."""
    page.evaluate("scrollTo(0, 0)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {width}"
    page.screenshot(path=str(SHOTS / f"{name}-{theme}-{width}.png"))


def long_story(count):
    """The events of a run that was preempted once, with so many checkpoints, one a minute, 274 of them before."""
    begun, numbers = time.time() - count * 60, itertools.count(1)
    def event(kind, reason, to=None, witness="scheduler", **members):
        number = next(numbers)
        return {"id": number, "time": begun + 60 * number, "kind": kind, "from": None, "to": to, "reason": reason, "witness": witness, **members}
    saved = lambda first, last: [event("checkpoint", f"checkpoint of step {step} is complete", witness="heartbeat", step=step) for step in range(first, last + 1, 50)]
    middle = 274 * 50
    return [event("state", "submitted", "queued", "user"), event("state", "attempt 1 is running", "running"), *saved(50, middle),
            event("state", "preempted; attempt 1 has saved step %d" % middle, "pending"), event("state", "attempt 2 is running", "running"),
            event("resumed", "continuing after step %d from its checkpoint" % middle, witness="heartbeat"),
            event("warning", "the disk of the run directory is nearly full", witness="daemon"), *saved(middle + 50, count * 50)]


def checkpoints(browser, home):
    """Hundreds of checkpoints are one line between what else happened; it opens, and stays open while the page is drawn anew."""
    run = made_run(1, "running", iterations=40000, step=20600)
    told = {"count": 412}
    def shown(route):
        route.fulfill(json={**run, "attempts": [], "provenance": {}, "plan": {}, "measured": None, "predicted": [], "spec": {}, "last": {}, "argv": [], "metrics": [],
                            "needs": [], "events": long_story(told["count"]), "events_left_out": {"checkpoints": 1200, "others": 0}})
    for theme, width in VIEWS:
        told["count"] = 412
        with window(browser, home, theme=theme, width=width, height=900) as one:
            page = one.page
            listed(page, [run])
            page.route("**/api/v1/runs/crowd/trial-1", shown)
            page.route("**/api/v1/runs/crowd/trial-1/metrics*", lambda route: route.fulfill(json={"run": "crowd/trial-1", "last_step": 0, "metrics": {}}))
            page.route("**/api/v1/runs/crowd/trial-1/logs*", lambda route: route.fulfill(body="", headers={"X-Next-Offset": "0"}))
            one.open("/run/crowd/trial-1")
            page.wait_for_selector(".events li")
            lines = [" ".join(text.split()) for text in page.locator(".events:not(.events .events) > li").all_inner_texts()]
            assert len(lines) == 8, lines
            assert "138 checkpoints, the last at step 20,600" in lines[0] and "274 checkpoints, the last at step 13,700" in lines[5], lines
            assert "nearly full" in lines[1] and "preempted" in lines[4] and "queued" in lines[7], lines
            assert page.locator("p:text-is('and 1,200 older checkpoints that the daemon does not list')").is_visible()
            page.locator(".fold").first.scroll_into_view_if_needed()
            pictured(page, "events", theme, width)
            page.locator(".fold").first.click()
            inner = page.locator(".folded >> nth=0 >> ol li")
            until(lambda: inner.count() == 138)
            assert "checkpoint of step 20600 is complete" in inner.first.inner_text()
            pictured(page, "events-open", theme, width)
            if (theme, width) != VIEWS[0]:
                continue
            told["count"] = 413
            page.locator(".fold:text-is('139 checkpoints, the last at step 20,650')").wait_for()
            assert inner.count() == 139, "what was opened stays open"


RECORDER = """(() => { const strokes = window.strokes = new Set(), stroke = CanvasRenderingContext2D.prototype.stroke;
  CanvasRenderingContext2D.prototype.stroke = function() { strokes.add(`${this.strokeStyle} ${this.getLineDash().join(" ")}`.trim()); return stroke.apply(this, arguments); }; })()"""
LEGEND = """selector => [...document.querySelectorAll(selector)].map(one => { const context = document.createElement("canvas").getContext("2d");
  context.strokeStyle = getComputedStyle(one.querySelector("path")).stroke; // the same words for a colour as a canvas has
  const dashes = (one.querySelector("path").getAttribute("stroke-dasharray") || "").split(" ").filter(Boolean); if (dashes.length % 2) throw dashes;
  return [one.closest(".chip, .side, .chip-value").innerText.trim().split(/\\s+/).at(-1), `${context.strokeStyle} ${dashes.join(" ")}`.trim()]; })"""


def curve_of(number):
    steps = list(range(10, 241, 2))
    values = [1.2 + 0.13 * number + 3 * math.exp(-step / (40 + 6 * number)) for step in steps]
    return {"step": steps, "time": [1780000100.0 + step for step in steps], "value": values, "total": len(steps)}


def crowd_page(one, runs):
    listed(one.page, runs)
    one.page.route(re.compile(r"/api/v1/runs/crowd/trial-\d+/metrics"), lambda route: route.fulfill(json={
        "run": "x", "last_step": 240, "metrics": {metric: curve_of(int(re.search(r"trial-(\d+)/", route.request.url)[1])) for metric in ("loss", "grad_norm")}}))
    one.page.add_init_script(RECORDER)
    return one.page


def route_of(numbers):
    return "/charts?runs=" + ",".join(f"crowd/trial-{number}" for number in numbers)


def looks(page, selector=".legend .sample"):
    page.wait_for_selector('[data-metric="loss"] canvas')
    return dict(page.evaluate(LEGEND, selector))


def go(page, route):
    page.evaluate("route => { window.strokes.clear(); location.hash = route; }", route)
    page.wait_for_timeout(300)


# Machado, Oliveira and Fernandes (2009), full strength; then distances in OKLab, in hundredths.
SIGHT = {"all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
         "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
         "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
         "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))}


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector)) for row in matrix]


def seen_as(colour, sight):
    light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))]
    cones = times(((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005)),
                  [min(1.0, max(0.0, c)) for c in times(SIGHT[sight], light)])
    return times(((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099), (0.0259040371, 0.7827717662, -0.8086757660)),
                 [c ** (1 / 3) for c in cones])


def nearest(colours):
    """The two that are hardest to tell apart, by whichever eyes."""
    return min((100 * math.dist(seen_as(a, sight), seen_as(b, sight)), sight, a, b) for sight in SIGHT for a, b in itertools.combinations(colours, 2))


def many_curves(browser, home):
    """Twenty curves that can be told apart, by a legend that shows what is drawn; a run keeps its look on every page and in every company."""
    runs = [made_run(number) for number in range(24, 0, -1)]
    for theme, width in VIEWS:
        with window(browser, home, theme=theme, width=width, height=900) as one:
            page = crowd_page(one, runs)
            one.open(route_of(range(1, 21)))
            page.wait_for_selector('[data-metric="loss"] canvas')
            page.wait_for_timeout(300)
            strokes = page.evaluate("[...strokes]")
            assert len(strokes) >= 20, f"twenty curves, and all that is drawn are {strokes}"
            first = looks(page)
            assert len(first) == 20 and len(set(first.values())) == 20, first
            assert set(first.values()) <= set(strokes), "the legend shows other lines than the charts"
            assert looks(page, '[data-metric="loss"] .chip-value .sample') == {name.split("/")[1]: look for name, look in first.items()}
            hues = [page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--curve-{i}').trim()") for i in range(1, 9)]
            assert nearest(hues)[0] > 8, nearest(hues)
            pictured(page, "curves", theme, width)
            if (theme, width) != VIEWS[0]:
                continue
            page.evaluate("strokes.clear()")
            page.hover(".chip >> nth=11")  # where curves are many and noisy, one is found by pointing at it
            full = set(first.values())
            until(lambda: full & set(page.evaluate("[...strokes]")) == {first["crowd/trial-12"]})
            page.evaluate("strokes.clear()")
            page.mouse.move(5, 5)
            until(lambda: full <= set(page.evaluate("[...strokes]")))
            page.click(".chip >> nth=2")
            assert looks(page) == first, "one that is hidden changes no other's look"
            for numbers in ((19, 5, 12), (3, 11), (24, 5)):
                go(page, route_of(numbers))
                now = looks(page)
                assert len(set(now.values())) == len(numbers) and all(first.get(name, now[name]) == now[name] for name in now), (numbers, now)
            later = looks(page)["crowd/trial-24"]
            go(page, "/compare?a=crowd/trial-19&b=crowd/trial-3")
            page.wait_for_selector(".side .sample")
            pair = page.evaluate("[...document.querySelectorAll('.side .sample')].map(one => one.getAttribute('class') + one.firstChild.getAttribute('stroke-dasharray'))")
            page.reload()  # a later visit
            page.wait_for_selector(".side .sample")
            assert pair == page.evaluate("[...document.querySelectorAll('.side .sample')].map(one => one.getAttribute('class') + one.firstChild.getAttribute('stroke-dasharray'))")
            go(page, route_of((24, 3, 19)))
            assert looks(page) == {"crowd/trial-24": later, "crowd/trial-3": first["crowd/trial-3"], "crowd/trial-19": first["crowd/trial-19"]}
            one.faults = [fault for fault in one.faults if "404" not in fault]  # of the comparison, which has nothing to say of made runs


STATES = ["succeeded"] * 12 + ["failed", "cancelled", "queued", "queued", "pending", "running", "timed_out", "running", "succeeded", "succeeded"]


def list_of_many(page, counts):
    states = lambda: page.evaluate("[...document.querySelectorAll('table.runs tbody tr .state span')].map(one => one.textContent)")
    page.wait_for_selector("table.runs tbody tr")
    seen, working, waits = states(), counts["running"], counts["queued"] + counts["pending"]
    assert len(seen) == 500, len(seen)
    assert set(seen[:working]) == {"running"} and set(seen[working:working + waits]) == {"queued", "pending"}, seen[:working + waits]
    assert not {"running", "queued", "pending"} & set(seen[working + waits:]), seen[working + waits:]
    names = page.locator("table.runs tbody tr .run-name a").all_inner_texts()[:working]
    assert names == sorted(names, key=lambda name: -int(name[6:])), "newest first within each"
    page.select_option("select[aria-label=State]", label=f"timed out ({counts['timed_out']})")
    assert states() == ["timed out"] * counts["timed_out"]


def queue_of_many(page, counts):
    page.wait_for_selector("table.queue tbody tr")
    working, waits = counts["running"], counts["queued"] + counts["pending"]
    headings = page.locator("main h2").all_inner_texts()
    assert [heading.lower() for heading in headings] == ["running", "waiting"], headings
    assert f"{working} running · {waits} waiting" in page.inner_text(".page-head")
    assert page.locator(".working li").count() == 8 and page.locator("table.queue tbody tr").count() == waits
    page.click(f"text={working - 8} more of {working}")
    assert page.locator(".working li").count() == working


def many_runs(browser, home):
    """Of many runs those at work come first, then what waits, then what is over, on both pages; and a state can be chosen."""
    runs = [made_run(number, STATES[number % len(STATES)]) for number in range(700, 0, -1)]
    counts = {state: sum(run["state"] == state for run in runs) for state in STATES}
    for theme, width in VIEWS[:2]:
        with window(browser, home, theme=theme, width=width, height=900) as one:
            page = one.page
            listed(page, runs)
            one.open("/runs")
            list_of_many(page, counts)
            top_pictured(page, "many-runs", theme, width)
            page.goto(f"{home.url}/#/queue")
            queue_of_many(page, counts)
            top_pictured(page, "many-queue", theme, width)
    with window(browser, home) as one:  # the last run of a state leaves it: the choice stays
        listed(one.page, [made_run(2, "failed"), made_run(1)])
        one.open("/runs")
        one.page.select_option("select[aria-label=State]", label="failed (1)")
        listed(one.page, [made_run(2), made_run(1)])
        one.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # looks again
        one.page.wait_for_selector("text=No run is in this state now.")
        assert one.page.evaluate("document.querySelector('select[aria-label=State]').selectedOptions[0].textContent") == "failed (0)"
