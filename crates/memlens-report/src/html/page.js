"use strict";
const page = JSON.parse(document.getElementById("profile").textContent);

/** An element with properties, and what it holds. Texts become text nodes: names come from programs. */
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** What stands behind labels. */
function factList(facts) {
  const entries = facts.flatMap(([label, pieces]) => [
    make("dt", {}, label),
    make("dd", {}, ...pieces.map((piece) => make("span", {}, piece))),
  ]);
  return make("dl", {}, ...entries);
}

const textOf = (cell) => (cell === null ? "–" : Array.isArray(cell) ? cell[0] : cell);
const valueOf = (cell) => (cell === null ? null : Array.isArray(cell) ? cell[1] : cell);
/** As in a terminal: a fifth is worth anyone's time; a twentieth may be. */
const heatOf = (share) => (share >= 0.2 ? " hot" : share >= 0.05 ? " warm" : "");

/** Whether a row is shown as a tenth of a percent of what rows are ranked by. */
const isOfWeight = (row) => row.share >= page.least_share;

/** Rows in the order of a column that rises or falls; what is unknown comes last. */
function inOrder(rows, column, rises) {
  const sign = rises ? 1 : -1;
  const compare = (one, other) => {
    const [a, b] = [valueOf(one.cells[column]), valueOf(other.cells[column])];
    const isUnknown = (value) => value === null || value === "";
    if (isUnknown(a) || isUnknown(b)) return isUnknown(a) - isUnknown(b);
    return sign * (typeof a === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0);
  };
  return rows.toSorted ? rows.toSorted(compare) : [...rows].sort(compare);
}

/** A table that can be put in order, filtered, and opened where there is more behind a row. */
class Table {
  constructor(data, { openable = false } = {}) {
    this.data = data;
    this.openable = openable;
    this.sorted = null;
    this.isReversed = false;
    this.filter = "";
    this.shown = new Set(data.columns.flatMap((column, at) => (column.is_more ? [] : [at])));
    const weighty = data.rows.filter((row) => isOfWeight(row) && row.object !== undefined);
    // Of one that is alone there is nothing to choose.
    this.open = new Set(openable && weighty.length === 1 ? [weighty[0].object] : []);
    this.hasTrifles = !data.rows.some(isOfWeight);
    this.element = make("div", { class: "scroll" });
    this.foot = make("p", { class: "foot" });
    this.draw();
  }

  columns() {
    return this.data.columns.map((column, at) => ({ ...column, at })).filter(({ at }) => this.shown.has(at));
  }

  rows() {
    const wanted = this.filter.toLowerCase();
    const matches = (row) => row.cells.some((cell) => typeof cell === "string" && cell.toLowerCase().includes(wanted));
    const rows = wanted ? this.data.rows.filter(matches) : this.hasTrifles ? this.data.rows : this.data.rows.filter(isOfWeight);
    return this.sorted === null ? rows : inOrder(rows, this.sorted, this.rises());
  }

  /** Whether the column that rows are in the order of rises. */
  rises() {
    return this.data.columns[this.sorted].rises !== this.isReversed;
  }

  sortBy(at) {
    this.isReversed = this.sorted === at && !this.isReversed;
    this.sorted = at;
    // What costs little may have most of something else.
    this.hasTrifles = true;
    this.draw();
  }

  toggle(row) {
    if (!this.open.delete(row.object)) this.open.add(row.object);
    this.draw();
  }

  head(columns) {
    const sections = [];
    for (const { section } of columns) {
      const last = sections.at(-1);
      if (last && last.section === section) last.width += 1;
      else sections.push({ section, width: 1 });
    }
    const title = (column) =>
      make(
        "th",
        {
          class: column.is_number ? "number" : "",
          scope: "col",
          "aria-sort": this.sorted === column.at && (this.rises() ? "ascending" : "descending"),
        },
        make("button", { title: column.meaning, onclick: () => this.sortBy(column.at) }, column.title),
      );
    const above = sections.some(({ section }) => section)
      ? make("tr", {}, ...sections.map(({ section, width }) => make("th", { class: "section", colspan: width }, section ?? "")))
      : null;
    return make("thead", {}, above, make("tr", {}, ...columns.map(title)));
  }

  cell(row, column, isFirst) {
    const text = textOf(row.cells[column.at]);
    if (isFirst) {
      const part = Math.min(1, Math.max(0, row.share));
      return make("td", { class: "number share" + heatOf(row.share), "--part": part }, make("i"), text);
    }
    const isDim = text === "–" || text === "0" || ["kind", "type", "where", "source"].includes(column.word);
    const kind = column.is_number ? "number" : `text ${column.word}`;
    return make("td", { class: kind + (isDim ? " dim" : ""), title: column.is_number ? undefined : text }, text);
  }

  body(columns) {
    const lines = [];
    for (const row of this.rows()) {
      const isOpen = this.open.has(row.object);
      const opens = this.openable && row.object !== undefined;
      const onkeydown = (event) => {
        if (event.target !== event.currentTarget || (event.key !== "Enter" && event.key !== " ")) return;
        event.preventDefault();
        this.toggle(row);
        document.getElementById(`object-${row.object}`)?.focus();
      };
      const cells = columns.map((column, at) => this.cell(row, column, at === 0));
      const properties = opens
        ? { class: "opens", tabindex: 0, id: `object-${row.object}`, "aria-expanded": String(isOpen), onclick: () => this.toggle(row), onkeydown }
        : {};
      lines.push(make("tr", properties, ...cells));
      if (opens && isOpen) {
        const inside = make("div", { class: "inside" }, ...detail(page.objects[row.object]));
        lines.push(make("tr", { class: "detail" }, make("td", { colspan: columns.length }, inside)));
      }
    }
    return make("tbody", {}, ...lines);
  }

  draw() {
    const columns = this.columns();
    this.element.replaceChildren(make("table", {}, this.head(columns), this.body(columns)));
    const { all, noun, rows } = this.data;
    const found = this.rows().length;
    const plural = noun + (all === 1 ? "" : noun.endsWith("s") ? "es" : "s");
    const some = rows.length < all ? `${rows.length} of ${all} ${plural} are in this page (--top all for all)` : `${all} ${plural}`;
    const showAll = () => {
      this.hasTrifles = true;
      this.draw();
    };
    const trifles = rows.length - found;
    if (this.filter) this.foot.replaceChildren(`${found} match · ${some}`);
    else if (trifles === 0) this.foot.replaceChildren(some);
    else this.foot.replaceChildren(`${some} · `, make("button", { onclick: showAll }, `show ${trifles} of less than 0.05 %`));
  }

  /** Boxes to tick, one a column that is there on demand. */
  choice() {
    const more = this.data.columns.flatMap((column, at) => (column.is_more ? [{ ...column, at }] : []));
    const box = ({ title, meaning, at }) => {
      const input = make("input", { type: "checkbox" });
      input.checked = this.shown.has(at);
      input.addEventListener("change", () => {
        if (!this.shown.delete(at)) this.shown.add(at);
        this.draw();
      });
      return make("label", { title: meaning }, input, " ", title);
    };
    return more.length ? make("details", { class: "columns" }, make("summary", {}, "more columns"), ...more.map(box)) : null;
  }
}

/** The bytes of a structure, a cache line a row, the warmer the more its fields cost. */
function layout({ bytes, places }) {
  const MOST_LINES = 32;
  const line = page.line_bytes;
  const end = bytes ?? Math.max(...places.map((field) => field.offset + field.bytes));
  const lines = Math.min(MOST_LINES, Math.ceil(end / line));
  const warmest = Math.max(...places.map((field) => field.share), 1e-9);
  const boxes = [];
  for (let at = 0; at < lines; at += 1) {
    const from = at * line;
    const pieces = places.filter((field) => field.offset < from + line && from < field.offset + field.bytes);
    const piece = (field) => {
      const [low, high] = [Math.max(field.offset, from), Math.min(field.offset + field.bytes, from + line, end)];
      const heat = field.share / warmest;
      const title = `${field.name}: ${field.bytes} bytes at ${field.offset}, ${(100 * field.share).toFixed(1)} %`;
      const box = make("b", { title, "--heat": (0.9 * Math.sqrt(heat)).toFixed(3), class: heat > 0.45 ? "is-dark" : "" }, low === field.offset ? field.name : "");
      box.style.left = `${(100 * (low - from)) / line}%`;
      box.style.width = `${(100 * (high - low)) / line}%`;
      return box;
    };
    const row = make("div", {}, ...pieces.map(piece));
    row.style.width = `${(100 * Math.min(line, end - from)) / line}%`;
    boxes.push(make("span", {}, `+${from}`), row);
  }
  const rest = Math.ceil(end / line) - lines;
  const told = `a row is ${line} bytes from the structure's beginning; hatched: not accessed by itself` + (rest > 0 ? `; ${rest} more rows are not drawn` : "");
  return [make("div", { class: "map" }, ...boxes), make("p", { class: "foot" }, told)];
}

/** What is behind an object's row. */
function detail({ title, summary, facts, allocated_at, each, structure, code }) {
  const parts = [make("h3", { class: "code" }, [title, ...summary].join(" · ")), factList(facts)];
  const add = (heading, table) => parts.push(make("h3", {}, heading), table.element, table.foot);
  if (structure) {
    parts.push(make("h3", {}, structure.title));
    if (structure.places.length) parts.push(...layout(structure));
    const fields = new Table(structure.fields);
    fields.sortBy(structure.fields.columns.findIndex(({ word }) => word === "offset"));
    parts.push(fields.element, make("p", { class: "foot" }, structure.wide));
  }
  if (code) add("the code that touches it", new Table(code));
  if (each) add("objects of this name", new Table(each));
  if (allocated_at) {
    const row = ([place, at, inlined, source]) =>
      make("tr", {}, make("td", { class: "text name" }, place), make("td", {}, at), make("td", { class: "dim" }, inlined), make("td", { class: "text source dim" }, source));
    const table = make("table", {}, make("tbody", {}, ...allocated_at.map(row)));
    parts.push(make("h3", {}, "allocated at"), make("div", { class: "scroll" }, table));
  }
  return parts;
}

const tables = page.tables.map((data) => new Table(data, { openable: data.noun === "object" }));
const place = make("div");
const tabs = make("div", { role: "tablist" });
const search = make("input", { type: "search", placeholder: "filter rows", "aria-label": "filter rows" });
let shown = tables[0];

function show(table) {
  shown = table;
  [...tabs.children].forEach((tab, at) => tab.setAttribute("aria-selected", String(tables[at] === table)));
  search.value = table.filter;
  place.replaceChildren(table.element, table.foot, ...[table.choice()].filter(Boolean));
}

/** Opens an object's row, where the address of the page names one. */
function follow() {
  const id = Number(/^#object-(\d+)$/.exec(location.hash)?.[1]);
  if (!(id in page.objects)) return;
  const [objects] = tables;
  objects.open.add(id);
  objects.filter = "";
  objects.draw();
  show(objects);
  document.getElementById(`object-${id}`)?.scrollIntoView({ block: "start" });
}

function finding({ title, gain, evidence, to_do, how, object }, at) {
  const link = object in page.objects ? make("a", { href: `#object-${object}`, onclick: () => setTimeout(follow) }, title) : title;
  return make(
    "article",
    { class: "finding" },
    make("h4", {}, `${at + 1}. `, link, make("span", { class: "gain" }, ` · ${gain}`)),
    ...evidence.map((line) => make("div", { class: "evidence" }, line)),
    make("div", { class: "to-do" }, to_do),
    how ? make("code", { class: "how" }, how) : null,
  );
}

function advice({ before, findings, after, caveat }) {
  const paragraphs = (texts) => texts.map((text) => make("p", {}, text));
  const FIRST = 5;
  const cards = findings.map(finding);
  const rest = cards.length > FIRST ? make("details", {}, make("summary", {}, `${cards.length - FIRST} more`), ...cards.slice(FIRST)) : null;
  const read = caveat ? make("p", { class: "dim" }, caveat) : null;
  return make("section", { class: "notes" }, make("h2", {}, "What to do"), ...paragraphs(before), ...cards.slice(0, FIRST), rest, ...paragraphs(after), read);
}

function meanings() {
  const all = new Map(tables.flatMap(({ data }) => data.columns.map(({ word, title, meaning }) => [word, [title, [meaning]]])));
  return make("details", { class: "notes" }, make("summary", {}, "what the columns mean"), factList([...all.values()]));
}

function notes(texts) {
  const FIRST = 2;
  const paragraph = (text) => make("p", {}, text);
  const rest = texts.slice(FIRST);
  const more = rest.length ? make("details", {}, make("summary", {}, `${rest.length} more notes`), ...rest.map(paragraph)) : null;
  return make("div", { class: "notes dim" }, ...texts.slice(0, FIRST).map(paragraph), more);
}

tables.forEach((table) => tabs.append(make("button", { role: "tab", onclick: () => show(table) }, `by ${table.data.noun}`)));
search.addEventListener("input", () => {
  shown.filter = search.value;
  shown.draw();
});
addEventListener("hashchange", follow);
document.body.append(
  make(
    "main",
    {},
    make("h1", {}, make("span", {}, "memlens "), page.command),
    factList(page.facts),
    notes(page.notes),
    page.advice ? advice(page.advice) : null,
    make("div", { class: "bar-of-tools" }, tabs, search),
    place,
    meanings(),
    make("footer", {}, `memlens ${page.version} · ranked by ${page.ranked_by} · the same in a terminal: memlens report, memlens advise`),
  ),
);
show(tables[0]);
follow();
