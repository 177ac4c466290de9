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

/** Whether a row is shown as a tenth of a percent of anything. */
const isOfWeight = (row) => row.is_of_weight;

/** Characters of a name at most, and how many of them are its end, which tells it from others: `std::_Hashtable<…>::_M_insert`. */
const [MOST_CHARACTERS, LAST_CHARACTERS] = [46, 28];
const NAMES = ["name", "where", "type"];
const shortened = (text) =>
  // Of paths of calls each step may be the one that matters.
  text.length <= MOST_CHARACTERS || text.includes("←") ? text : `${text.slice(0, MOST_CHARACTERS - LAST_CHARACTERS - 1)}…${text.slice(-LAST_CHARACTERS)}`;

/** More are drawn on demand: a browser takes seconds for thousands. */
const MOST_ROWS = 500;

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
  /** `details`: what is behind rows, by the number of their object; `inside`: it is behind a row itself. */
  constructor(data, { details = {}, inside = false } = {}) {
    this.data = data;
    this.details = details;
    this.inside = inside;
    this.made = new Map();
    this.most = MOST_ROWS;
    this.sorted = null;
    this.isReversed = false;
    this.filter = "";
    this.shown = new Set(data.columns.flatMap((column, at) => (column.is_more ? [] : [at])));
    const weighty = data.rows.filter((row) => isOfWeight(row) && row.object !== undefined);
    // Of one that is alone there is nothing to choose.
    this.open = new Set(!inside && weighty.length === 1 ? [weighty[0].object] : []);
    this.hasTrifles = !data.rows.some(isOfWeight);
    this.element = make("div", { class: "scroll" });
    this.foot = make("p", { class: "foot" });
    this.draw();
  }

  columns() {
    return this.data.columns.map((column, at) => ({ ...column, at })).filter(({ at }) => this.shown.has(at));
  }

  rows() {
    const wanted = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    // Texts, and the number that an object is told by.
    const id = this.data.columns.findIndex(({ word }) => word === "id");
    const textsOf = (row) => row.cells.flatMap((cell, at) => (typeof cell === "string" ? [cell] : at === id ? [`#${textOf(cell)}`] : []));
    const matches = (row) => {
      const text = textsOf(row).join("\n").toLowerCase();
      return wanted.every((word) => text.includes(word));
    };
    const rows = wanted.length ? this.data.rows.filter(matches) : this.hasTrifles ? this.data.rows : this.data.rows.filter(isOfWeight);
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
    // The button is another one now.
    this.sortButton?.focus({ preventScroll: true });
  }

  /** As it was at first. */
  asRanked() {
    this.sorted = null;
    this.isReversed = false;
    this.hasTrifles = !this.data.rows.some(isOfWeight);
    this.draw();
  }

  toggle(row) {
    // Who marks a name does not mean the row.
    if (globalThis.getSelection?.()?.isCollapsed === false) return;
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
    this.sortButton = null;
    const button = (column) => {
      const made = make("button", { title: column.meaning, onclick: () => this.sortBy(column.at) }, column.title);
      if (this.sorted === column.at) this.sortButton = made;
      return made;
    };
    const title = (column) =>
      make(
        "th",
        {
          class: column.is_number ? "number" : "",
          scope: "col",
          "aria-sort": this.sorted === column.at && (this.rises() ? "ascending" : "descending"),
        },
        button(column),
      );
    const above = sections.some(({ section }) => section)
      ? make("tr", {}, ...sections.map(({ section, width }) => make("th", { class: "section", colspan: width }, section ?? "")))
      : null;
    return make("thead", {}, above, make("tr", {}, ...columns.map(title)));
  }

  cell(row, column, isFirst, isOpener) {
    const text = textOf(row.cells[column.at]);
    if (isFirst) {
      const part = Math.min(1, Math.max(0, row.share));
      return make("td", { class: "number share" + heatOf(row.share), "--part": part }, make("i"), text);
    }
    const isDim = text === "–" || text === "0" || ["kind", "type", "where", "source"].includes(column.word);
    const kind = (column.is_number ? "number" : `text ${column.word}`) + (isOpener ? " opener" : "");
    return make("td", { class: kind + (isDim ? " dim" : ""), title: column.is_number ? undefined : text }, NAMES.includes(column.word) ? shortened(text) : text);
  }

  body(columns) {
    const lines = [];
    for (const row of this.rows().slice(0, this.most)) {
      const isOpen = this.open.has(row.object);
      const opens = row.object in this.details;
      const id = (this.inside ? "part-" : "object-") + row.object;
      const onkeydown = (event) => {
        if (event.target !== event.currentTarget || (event.key !== "Enter" && event.key !== " ")) return;
        event.preventDefault();
        this.toggle(row);
        document.getElementById(id)?.focus();
      };
      const opener = opens ? columns.findIndex(({ is_number }) => !is_number) : -1;
      const cells = columns.map((column, at) => this.cell(row, column, at === 0, at === opener));
      const properties = opens
        ? { class: "opens", tabindex: 0, id, "aria-expanded": String(isOpen), onclick: () => this.toggle(row), onkeydown }
        : {};
      lines.push(make("tr", properties, ...cells));
      if (opens && isOpen) {
        const made = this.made.get(row.object) ?? make("div", { class: "inside" }, ...detail(this.details[row.object]));
        this.made.set(row.object, made);
        lines.push(make("tr", { class: "detail" }, make("td", { colspan: columns.length }, made)));
      }
    }
    return make("tbody", {}, ...lines);
  }

  draw() {
    const columns = this.columns();
    this.element.replaceChildren(make("table", {}, this.head(columns), this.body(columns)));
    const { all, noun, rows } = this.data;
    const found = this.rows().length;
    const drawn = Math.min(found, this.most);
    const plural = noun + (all === 1 ? "" : noun.endsWith("s") ? "es" : "s");
    const some = rows.length < all ? `${rows.length} of ${all} ${plural} are in this page (--top all for all)` : `${all} ${plural}`;
    const showAll = () => {
      this.hasTrifles = true;
      this.draw();
    };
    const showMore = () => {
      this.most *= 4;
      this.draw();
    };
    const share = this.rows().reduce((sum, row) => sum + row.share, 0);
    // Callers have what those that they call have.
    const part = this.inside || noun === "caller" ? [] : [`${(100 * Math.min(1, share)).toFixed(1)} % of the ${page.ranked_by}`];
    const trifles = rows.length - found;
    const told = [some, ...part, ...(this.data.untouched ? [this.data.untouched] : [])].join(" · ");
    const pieces = [this.filter ? `${found} match · ${told}` : told];
    if (drawn < found) pieces.push(make("button", { onclick: showMore }, `show ${Math.min(found, 4 * drawn) - drawn} more`));
    if (!this.filter && trifles > 0) pieces.push(make("button", { onclick: showAll }, `show ${trifles} of less than 0.05 %`));
    if (this.sorted !== null && !this.inside) pieces.push(make("button", { onclick: () => this.asRanked() }, `as ranked by ${page.ranked_by}`));
    this.foot.replaceChildren(...pieces.flatMap((piece, at) => (at ? [" · ", piece] : [piece])));
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
function detail({ title, summary, facts, allocated_at, each, parts: details, structure, code }) {
  const parts = [make("h3", { class: "code" }, [title, ...summary].join(" · ")), factList(facts)];
  const add = (heading, table) => parts.push(make("h3", {}, heading), table.element, table.foot);
  if (structure) {
    parts.push(make("h3", {}, structure.title));
    if (structure.places.length) parts.push(...layout(structure));
    const fields = new Table(structure.fields, { inside: true });
    fields.sortBy(structure.fields.columns.findIndex(({ word }) => word === "offset"));
    parts.push(fields.element, make("p", { class: "foot" }, structure.wide));
  }
  if (code) add("the code that touches it", new Table(code, { inside: true }));
  if (each) add("objects of this name", new Table(each, { inside: true, details }));
  if (allocated_at) {
    const row = ([place, at, inlined, source]) =>
      make("tr", {}, make("td", { class: "text name" }, place), make("td", {}, at), make("td", { class: "dim" }, inlined), make("td", { class: "text source dim" }, source));
    const table = make("table", {}, make("tbody", {}, ...allocated_at.map(row)));
    parts.push(make("h3", {}, "allocated at"), make("div", { class: "scroll" }, table));
  }
  return parts;
}

const tables = page.tables.map((data) => new Table(data, { details: data.noun === "object" ? page.objects : {} }));
const place = make("div", { role: "tabpanel" });
const tabs = make("div", { role: "tablist", onkeydown: walk });
const search = make("input", { type: "search", placeholder: "filter rows", "aria-label": "filter rows" });
let shown = tables[0];

function show(table) {
  // What is looked for is looked for everywhere.
  if (table.filter !== search.value) {
    table.filter = search.value;
    table.draw();
  }
  shown = table;
  [...tabs.children].forEach((tab, at) => {
    tab.setAttribute("aria-selected", String(tables[at] === table));
    // The key Tab leads to the one that is shown, and on from there to its table.
    tab.setAttribute("tabindex", tables[at] === table ? 0 : -1);
  });
  place.setAttribute("aria-label", `by ${table.data.noun}`);
  place.replaceChildren(table.element, table.foot, ...[table.choice()].filter(Boolean));
}

/** Arrows lead from tab to tab. */
function walk(event) {
  const at = tables.indexOf(shown);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: -1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = (to + tables.length) % tables.length;
  show(tables[next]);
  tabs.children[next].focus();
}

/** Opens an object's row, where the address of the page names one. */
function follow() {
  const wanted = Number(/^#object-(\d+)$/.exec(location.hash)?.[1]);
  // One of several is behind the row of these.
  const ids = Object.keys(page.objects).map(Number);
  const id = wanted in page.objects ? wanted : ids.find((id) => wanted in (page.objects[id].parts ?? {}));
  if (id === undefined) return;
  const [objects] = tables;
  objects.open.add(id);
  search.value = objects.filter = "";
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

/** As reports have it. */
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; bytes >= 1023.5 && at + 1 < units.length; at += 1) bytes /= 1024;
  return `${at === 0 ? bytes : bytes >= 99.95 ? Math.round(bytes) : bytes.toPrecision(3)} ${units[at]}`;
}

/** A part of a picture. */
function svg(tag, properties, ...children) {
  const element = document.createElementNS(document.getElementById("pictures").namespaceURI, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A colour for each object, the same in all charts that have it. */
function colours(charts) {
  const MOST = 8;
  const of = new Map();
  for (const { series } of charts) {
    const objects = series.map(({ object }) => object).filter((object) => object !== undefined).reverse();
    const taken = new Set(objects.map((object) => of.get(object)));
    const free = [...Array(MOST).keys()].filter((colour) => !taken.has(colour));
    for (const object of objects) if (!of.has(object)) of.set(object, free.shift() ?? 0);
  }
  return of;
}

/** What was done when: a column a slice, in which objects lie above each other, those that have most at the bottom. */
function chart({ title, is_bytes, series }, { edges, moments, marks }, colourOf) {
  const [width, height] = [1000, 160];
  const slices = edges.slice(1).map((edge, at) => ({ at, x: edges[at] * width, wide: Math.max((edge - edges[at]) * width, 0.01) }));
  const sums = slices.map(({ at }) => series.reduce((sum, { values }) => sum + values[at], 0));
  // Of costs the height is what there is in a unit of time, as slices are not all of one length.
  const heightOf = (value, { wide }) => (is_bytes ? value : value / wide);
  const most = Math.max(...slices.map((slice) => heightOf(sums[slice.at], slice)), Number.MIN_VALUE);
  const whole = Math.max(sums.reduce((sum, value) => sum + value, 0), 1);
  const level = slices.map(() => height);
  const colour = (at) => (series[at].object === undefined ? "var(--rest)" : `var(--series-${colourOf.get(series[at].object)})`);
  const layers = series.map((_, at) => series.length - 1 - at);
  const rects = layers.flatMap((layer) =>
    slices.flatMap((slice) => {
      const { name, values } = series[layer];
      const value = values[slice.at];
      const high = (heightOf(value, slice) / most) * height;
      if (high < 0.05) return [];
      level[slice.at] -= high;
      const amount = is_bytes ? size(value) : `${((100 * value) / sums[slice.at]).toFixed(0)} % of ${((100 * sums[slice.at]) / whole).toFixed(1)} %`;
      const says = svg("title", {}, `${name}: ${amount}, ${moments[slice.at]} to ${moments[slice.at + 1]}`);
      return [svg("rect", { x: slice.x, y: level[slice.at], width: slice.wide, height: high, fill: colour(layer) }, says)];
    }),
  );
  const lines = marks.map(([at, name]) =>
    svg("line", { x1: at * width, x2: at * width, y1: 0, y2: height, class: "mark" }, svg("title", {}, name)),
  );
  const named = layers.map((layer) => {
    const { object, name } = series[layer];
    const swatch = make("i", {});
    swatch.style.background = colour(layer);
    const text = object in page.objects ? make("a", { href: `#object-${object}`, onclick: () => setTimeout(follow) }, shortened(name)) : shortened(name);
    return make("span", {}, swatch, text);
  });
  const peak = is_bytes ? `, ${size(Math.max(...sums))} at most` : "";
  return make(
    "figure",
    {},
    make("figcaption", {}, title + peak),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": title }, ...rects, ...lines),
    make("div", { class: "edges" }, make("span", {}, moments[0]), make("span", {}, moments.at(-1))),
    make("div", { class: "legend" }, ...named),
  );
}

function overTime(time) {
  const colourOf = colours(time.charts);
  const names = time.marks.length ? make("p", { class: "dim" }, `marks: ${time.marks.map(([, name]) => name).join(", ")}`) : null;
  return make("section", { class: "notes" }, make("h2", {}, "Over time"), make("div", { class: "charts" }, ...time.charts.map((it) => chart(it, time, colourOf))), names);
}

function meanings() {
  const all = new Map();
  const columns = tables.flatMap(({ data }) => data.columns);
  for (const { title, meaning } of columns) if (!all.has(title)) all.set(title, [title, [meaning]]);
  return make("details", { class: "notes" }, make("summary", {}, "what the columns mean"), factList([...all.values()]));
}

function notes(texts) {
  const FIRST = 2;
  const paragraph = (text) => make("p", {}, text);
  const rest = texts.slice(FIRST);
  const more = rest.length ? make("details", {}, make("summary", {}, rest.length === 1 ? "1 more note" : `${rest.length} more notes`), ...rest.map(paragraph)) : null;
  return make("div", { class: "notes dim" }, ...texts.slice(0, FIRST).map(paragraph), more);
}

tables.forEach((table) => tabs.append(make("button", { role: "tab", onclick: () => show(table) }, `by ${table.data.noun}`)));
search.addEventListener("input", () => {
  shown.filter = search.value;
  shown.draw();
});
addEventListener("hashchange", follow);
/** Which run it was. */
const run = [
  page.merged,
  page.started && new Date(1000 * page.started).toISOString().slice(0, 16).replace("T", " ") + " UTC",
  page.host && `on ${page.host}`,
  page.process && `process ${page.process}`,
].filter(Boolean);
/** What is said where nothing can be advised. */
const elsewhere = "This profile says where the program waits, and does not tell why: memlens run --mode burst, or exact, sees accesses, and says what to do.";
document.body.append(
  make(
    "main",
    {},
    make("h1", {}, make("span", {}, "memlens "), page.command),
    factList(run.length ? [["recorded", run], ...page.facts] : page.facts),
    notes(page.notes),
    page.over_time ? overTime(page.over_time) : null,
    page.advice ? advice(page.advice) : page.nothing ? null : make("section", { class: "notes" }, make("p", { class: "dim" }, elsewhere)),
    make("div", { class: "bar-of-tools" }, tabs, search),
    page.nothing ? make("p", {}, page.nothing) : place,
    meanings(),
    make("footer", {}, `memlens ${page.version} · ranked by ${page.ranked_by} · the same in a terminal: memlens report, memlens advise`),
  ),
);
show(tables[0]);
follow();
