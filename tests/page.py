#!/usr/bin/env python3
"""The page of `memlens report --html`, in as much of a browser as it needs (tests/page/browser.mjs, run by node).

    tests/page.py [--memlens FILE]

What it shows is held against the tables and the JSON of the same profile. The last line is `N passed, N failed`.
"""

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import expect, run_each

ROOT = Path(__file__).resolve().parent.parent


class Page:
    def __init__(self, memlens, folder, mode):
        self.memlens, self.profile, self.file = memlens, folder / f"{mode}.memlens", folder / f"{mode}.html"
        program = folder / "records"
        if not program.exists():
            command = ["cc", "-O1", "-g", "-o", program, ROOT / "tests/page/records.c"]
            subprocess.run(list(map(str, command)), check=True)
        # Samples need some time; counts of exact mode do not.
        rounds = ["400"] if mode == "sample" else []
        record = [memlens, "record", "--mode", mode, "-q", "--out", self.profile, "--", program, "</script><b>", *rounds]
        subprocess.run(list(map(str, record)), check=True, stdout=subprocess.DEVNULL)
        self.report("--html", self.file)

    def report(self, *words):
        command = list(map(str, [self.memlens, "report", self.profile, *words]))
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def rows(self, *words):
        return list(csv.DictReader(io.StringIO(self.report("--format", "csv", *words))))

    def do(self, *steps):
        command = ["node", str(ROOT / "tests/page/browser.mjs"), str(self.file)]
        result = subprocess.run(command, input=json.dumps([*steps, {}]), capture_output=True, text=True)
        expect(result.returncode == 0, result.stderr)
        return json.loads(result.stdout)[-1]

    def ranked_by(self):
        return "stalls" if any(row["stall_share"] for row in self.rows()) else "wait"

    def row(self, name):
        return next(row for row in self.rows() if row["name"] == name)


def names(seen):
    table = seen["tables"][0]
    at = next(i for i, title in enumerate(table["columns"]) if title in ("object", "line", "field"))
    return [row[at] for row in table["rows"]]


def the_table_is_that_of_the_terminal(page):
    seen = page.do()
    weighty = [row["name"] for row in page.rows() if float(row["stall_share"] or row["share"] or row["time"]) >= 0.0005]
    expect(names(seen) == weighty and "records" in weighty, f"{names(seen)} {weighty}")
    expect("</script><b>" in seen["text"], "the program's argument is not in the page")


def columns_put_rows_in_order(page):
    rows = page.rows("--sort", "loads")
    most = [row["name"] for row in rows[:5]]
    seen = page.do({"click": "loads"})
    expect(names(seen)[:5] == most, f"{names(seen)[:5]} {most}")
    again = page.do({"click": "loads"}, {"click": "loads"})
    expect(names(again)[-1] == most[0], f"{names(again)[-3:]} {most[0]}")
    by_name = page.do({"click": "object"})
    expect(names(by_name) == sorted(names(by_name)), f"{names(by_name)[:9]}")


def a_filter_finds_what_costs_nothing_too(page):
    seen = page.do({"filter": "UNSIGNED INT"})
    expect("order" in names(seen) and "records" not in names(seen), f"{names(seen)}")
    expect(f"{len(names(seen))} match" in seen["text"], seen["text"][-400:])
    number = page.row("order")["id"]
    found = page.do({"filter": f"#{number} unsigned"})
    expect(names(found) == ["order"], f"{names(found)}")
    carried = page.do({"filter": "records.c"}, {"click": "by line"})
    expect(all("records.c" in " ".join(row) for row in carried["tables"][0]["rows"]), "the filter is not the tabs'")


def it_can_be_seen_as_at_first(page):
    first = names(page.do())
    button = next(word for word in ("as ranked by stalls", "as ranked by wait") if word.endswith(page.ranked_by()))
    again = page.do({"click": "loads"}, {"click": button})
    expect(names(again) == first, f"{names(again)} {first}")
    expect("% of the " + page.ranked_by() in again["text"], "what the rows make together is not told")


def objects_of_one_name_are_behind_their_row(page):
    ids = {object["name"]: [] for object in json.loads(page.report("--format", "json"))["objects"]}
    for object in json.loads(page.report("--format", "json"))["objects"]:
        ids[object["name"]].append(object["id"])
    first, second = ids["twins"]
    both = page.do({"follow": f"#object-{second}"}) if page.row("twins")["id"] == str(first) else page.do({"follow": f"#object-{first}"})
    expect("objects of this name" in both["text"], "the row of both is not open")
    for number in (first, second):
        one = page.do({"follow": f"#object-{first}"}, {"follow": f"#object-{second}"}, {"open": f"part-{number}"})
        expect(f"#{number} twins" in one["text"], f"#{number} is not behind the row")
        expect("allocated at" in one["text"], "its calls are not shown")


def the_run_is_told(page):
    run = json.loads(page.report("--format", "json"))["run"]
    text = page.do()["text"]
    expect(f"process {run['pid']}" in text and run["hostname"] in text, text[:300])


def other_tables_are_behind_tabs(page):
    lines = [row["name"] for row in page.rows("--by", "line")]
    seen = page.do({"click": "by line"})
    expect(names(seen)[0] == lines[0] and set(names(seen)) <= set(lines), f"{names(seen)} {lines[:5]}")
    expect(any(name.startswith("records.c:") for name in names(seen)), f"{names(seen)}")


def keys_lead_from_tab_to_tab(page):
    first = page.do()["tab"]
    second = page.do({"click": first}, {"key": "ArrowRight"})
    expect(second["tab"] == second["focused"] != first, f"{second['tab']} {second['focused']}")
    expect(second["tables"] != page.do()["tables"], "its table is not shown")
    last = page.do({"click": first}, {"key": "End"})["tab"]
    around = page.do({"click": last}, {"key": "ArrowRight"})["tab"], page.do({"click": first}, {"key": "ArrowLeft"})["tab"]
    expect(around == (first, last) and last not in (first, second["tab"]), f"{around} {last}")
    expect(page.do({"click": first}, {"key": "a"})["tab"] == first, "any key leads to another tab")


def a_structure_is_drawn_by_cache_lines(page):
    number = page.row("records")["id"]
    for step in ({"open": f"object-{number}"}, {"follow": f"#object-{number}"}):
        seen = page.do(step)
        # count begins at 48 and lies in one line; of 72 bytes rest is in two, if it is there at all.
        expect(any(box.startswith("price: 8 bytes at 0,") for box in seen["boxes"]), f"{seen['boxes']}")
        expect(any(box.startswith("count: 8 bytes at 48,") for box in seen["boxes"]), f"{seen['boxes']}")
        fields, code = seen["tables"][1], seen["tables"][2]
        offsets = [int(row[fields["columns"].index("offset")]) for row in fields["rows"]]
        expect(offsets == sorted(offsets) and offsets[0] == 0, f"{offsets}")
        expect("source" in code["columns"] and "sum += records" in json.dumps(code), f"{code}")
        expect("calloc(RECORDS" in seen["text"], "the allocation's line is not shown")
    closed = page.do({"open": f"object-{number}"}, {"open": f"object-{number}"})
    expect(len(closed["tables"]) < len(seen["tables"]), "a second click does not close it")


def advice_is_that_of_advise(page):
    advice = subprocess.run([page.memlens, "advise", page.profile, "--format", "json"], check=True, capture_output=True, text=True)
    findings = json.loads(advice.stdout)["findings"]
    expect(findings, "nothing is advised: the program is no test of this")
    seen = page.do()
    for finding in findings:
        expect(finding["title"] in seen["text"], f"{finding['title']} is not in the page")
    # Its title leads to the object.
    opened = page.do({"click": findings[0]["title"]})
    expect("allocated at" in opened["text"], "the finding leads nowhere")


def charts_show_what_was_when(page):
    report = json.loads(page.report("--format", "json"))
    slices = report["over_time"]["slices"]
    costs, live = page.do()["charts"]
    expect(costs["title"] == "wait for misses" and live["title"] == "live heap", f"{costs['title']} {live['title']}")
    heights, columns = {}, {}
    for part in live["parts"]:
        columns.setdefault(part["x"], []).append(part)
        heights[part["x"]] = heights.get(part["x"], 0) + float(part["height"])
    known = [piece["live_bytes"] for piece in slices if piece["live_bytes"]]
    expect(len(columns) == len(known), f"{len(columns)} columns, {len(known)} slices with live blocks")
    # The highest column is as high as the chart, the others in proportion; small layers are left out.
    wanted = [160 * live_bytes / max(known) for live_bytes in known]
    got = [heights[x] for x in sorted(heights, key=float)]
    expect(all(abs(one - other) < 1 for one, other in zip(wanted, got)), f"{wanted} {got}")
    expect(any(part["says"].startswith("records: ") for part in costs["parts"]), f"{costs['parts'][:5]}")
    # A name below leads to the object.
    opened = page.do({"click": "records"})
    expect("allocated at" in opened["text"], "the name leads nowhere")


def samples_have_a_page(page):
    seen = page.do()
    expect("records" in names(seen) and "What to do" not in seen["text"], f"{names(seen)}")
    expect("time %" in seen["tables"][0]["columns"], f"{seen['tables'][0]['columns']}")


CHECKS = [
    ("exact", the_table_is_that_of_the_terminal),
    ("exact", columns_put_rows_in_order),
    ("exact", a_filter_finds_what_costs_nothing_too),
    ("exact", it_can_be_seen_as_at_first),
    ("exact", objects_of_one_name_are_behind_their_row),
    ("exact", the_run_is_told),
    ("exact", other_tables_are_behind_tabs),
    ("exact", keys_lead_from_tab_to_tab),
    ("exact", a_structure_is_drawn_by_cache_lines),
    ("exact", advice_is_that_of_advise),
    ("exact", charts_show_what_was_when),
    ("sample", samples_have_a_page),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memlens", type=Path, default=ROOT / "target/release/memlens")
    arguments = parser.parse_args()
    memlens = arguments.memlens.resolve()
    # With round figures, whatever was measured on this machine.
    os.environ["MEMLENS_CALIBRATION"] = "none"
    with tempfile.TemporaryDirectory() as folder:
        pages = {}

        def page(mode):
            return pages.get(mode) or pages.setdefault(mode, Page(memlens, Path(folder), mode))

        return run_each((check.__name__, lambda check=check, mode=mode: check(page(mode))) for mode, check in CHECKS)


if __name__ == "__main__":
    sys.exit(main())
