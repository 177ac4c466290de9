// As much of a browser as the page of `memlens report --html` asks for: elements in a tree, events, an address.
//
//     node tests/page/browser.mjs PAGE < STEPS
//
// STEPS is a list in JSON: {"click": WORDS}, {"open": ID}, {"filter": WORDS}, {"follow": "#object-1"}, {"key": NAME}, {}; what is seen after each is printed as a
// list. Keys go to what has the focus: what was clicked or focused last. An element that the page does not have is a mistake of the test's.
import { readFileSync } from "node:fs";
import { runInNewContext } from "node:vm";

let focused = null;

class Node {
  constructor(tag) {
    Object.assign(this, { tag, children: [], attributes: {}, listeners: {}, parent: null, value: "", checked: false });
    const properties = {};
    this.style = new Proxy({ setProperty: (name, value) => (properties[name] = value) }, { set: () => true });
  }
  set className(words) { this.attributes.class = words; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  append(...children) {
    for (const child of children) {
      if (child instanceof Node) child.parent = this;
      this.children.push(child);
    }
  }
  replaceChildren(...children) { this.children = []; this.append(...children); }
  get textContent() { return this.children.map((child) => (child instanceof Node ? child.textContent : String(child))).join(""); }
  set textContent(text) { this.children = [text]; }
  scrollIntoView() {}
  focus() { focused = this; }
  *all() {
    yield this;
    for (const child of this.children) if (child instanceof Node) yield* child.all();
  }
  fire(name, more = {}) {
    // It reaches the first that listens.
    for (let node = this; node; node = node.parent) {
      if (node.listeners[name]) return node.listeners[name]({ target: this, currentTarget: node, preventDefault() {}, ...more });
    }
    throw new Error(`nothing listens to ${name} on ${this.tag} ${this.textContent}`);
  }
}

const html = readFileSync(process.argv[2], "utf8");
const scripts = [...html.matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)];
const [data, code] = [scripts.find(([, kind]) => kind.includes("json")), scripts.find(([, kind]) => !kind.includes("json"))];
const body = new Node("body");
const holder = new Node("script");
holder.textContent = data[2];
// Browsers give it to what stands in the page as <svg>.
const PICTURES = html.includes('<svg id="pictures"') ? "of pictures" : undefined;
const windows = new Node("window");
const location = { hash: "" };
const document = {
  body,
  createElement: (tag) => new Node(tag),
  createElementNS: (space, tag) => (space === PICTURES ? new Node(tag) : new Node("unknown")),
  getElementById: (id) => (id === "profile" ? holder : id === "pictures" ? { namespaceURI: PICTURES } : [...body.all()].find((node) => node.attributes.id === id) ?? null),
};
runInNewContext(code[2], {
  document, location, setTimeout: (then) => then(), addEventListener: (name, then) => windows.addEventListener(name, then), JSON, console,
});

const find = (is, what) => [...body.all()].find(is) ?? (() => { throw new Error(`the page has no ${what}`); })();
const classOf = (node) => (node.attributes.class ?? "").split(" ");

function seen() {
  const tables = [...body.all()].filter((node) => node.tag === "table");
  const lines = (table) => [...table.all()].filter((node) => node.tag === "tr" && node.parent.tag === "tbody" && !classOf(node).includes("detail"));
  const of = (table) => {
    const rows = lines(table).filter((line) => line.parent.parent === table);
    const titles = [...table.all()].filter((node) => node.tag === "th" && node.attributes.scope && node.parent.parent.parent === table);
    return {
      columns: titles.map((title) => title.textContent),
      rows: rows.map((row) => row.children.map((cell) => cell.textContent)),
    };
  };
  const charts = [...body.all()].filter((node) => node.tag === "svg").map((chart) => ({
    title: chart.attributes["aria-label"],
    parts: [...chart.all()].filter((node) => node.tag === "rect").map((rect) => ({ says: rect.textContent, ...rect.attributes })),
  }));
  const boxes = [...body.all()].filter((node) => node.tag === "b").map((node) => node.attributes.title);
  const tab = find((node) => node.attributes["aria-selected"] === "true", "tab that is selected");
  return { tables: tables.map(of), boxes, charts, text: body.textContent, tab: tab.textContent, focused: focused?.textContent, search: find((node) => node.tag === "input" && node.attributes.type === "search", "search").value };
}

const answers = [];
for (const step of JSON.parse(readFileSync(0, "utf8"))) {
  if (step.click) {
    const target = find((node) => ["button", "a"].includes(node.tag) && node.textContent === step.click, `button ‘${step.click}’`);
    // What a link leads to, and what waits until it is there.
    if (target.attributes.href) location.hash = target.attributes.href;
    target.focus();
    target.fire("click");
  }
  if (step.open) find((node) => node.attributes.id === step.open, `row ‘${step.open}’`).fire("click");
  if (step.filter !== undefined) {
    const search = find((node) => node.tag === "input" && node.attributes.type === "search", "search");
    search.value = step.filter;
    search.fire("input");
  }
  if (step.follow) {
    location.hash = step.follow;
    windows.fire("hashchange");
  }
  if (step.key) focused.fire("keydown", { key: step.key });
  answers.push(seen());
}
console.log(JSON.stringify(answers));
