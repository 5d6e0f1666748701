// The page: tables that sort, filter, hide columns and turn pages, for any metric, and for any baseline of the primary one.
// Every number was computed and written out before; user text goes into the page as text only, never as HTML.
const PAGE = 100, PRINTED = 2000;
const missing = value => value === null || value === undefined || value === "";
const thousands = value => value.toString().replace(/\B(?=(\d{3})+$)/g, ",");

function unpacked(packed, size) { // see `packed` in payload.py
  if (Array.isArray(packed)) return packed;
  return packed.of ? packed.of.map(place => packed.distinct[place]) : new Array(size).fill(packed.all);
}
function quantity(text) { // what a written number is sorted by: +0.35, x1.02, 1,234, 4/5, >1000
  const value = parseFloat(text.replace(/,/g, "").replace(/^[x>]/, "").replace(/^([+-]?)inf/, "$1Infinity"));
  return Number.isNaN(value) ? null : value;
}

const make = (tag, text = "", name = "") => {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const soft = (element, text) => { // as `_soft` in page.py: lines may break at the joints of a name
  text.split(/(?<=[,+_=/.])(?=[^\s,+_=/.])/).forEach((piece, place) => element.append(...place ? [make("wbr"), piece] : [piece]));
};
const narrow = matchMedia("(max-width: 40rem)").matches;
const collator = new Intl.Collator("en", { numeric: true });
function ordered(a, b) { // both present
  return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
}

class Grid { // rows: any objects; text(row, key), value(row, key) and fill(cell, row, key) say what they show
  constructor(section, { text, value, fill, noun }) {
    Object.assign(this, { section, text, value, fill, noun, rows: [], shown: [], page: 0, size: PAGE, sort: null, down: false });
    this.find = selector => section.querySelector(selector);
    this.heads = [...section.querySelectorAll("thead th")];
    this.body = this.find("tbody");
    this.find(".later")?.remove();
    this.hiding = new Set(this.heads.filter(head => "extra" in head.dataset || (narrow && "wide" in head.dataset)).map(head => head.dataset.key));
    for (const head of this.heads) {
      delete head.dataset.extra;
      delete head.dataset.wide;
      const button = make("button", head.textContent);
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(head.dataset.key));
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
    }
    this.find(".tools").hidden = false;
    this.find("input[type=search]").addEventListener("input", () => { this.page = 0; this.update(); });
    this.find(".before").addEventListener("click", () => this.turn(-1));
    this.find(".after").addEventListener("click", () => this.turn(1));
    this.chooseColumns();
    addEventListener("beforeprint", () => { this.before = [this.page, this.size]; this.page = 0; this.size = PRINTED; this.draw(); });
    addEventListener("afterprint", () => { [this.page, this.size] = this.before; this.draw(); });
  }
  chooseColumns() {
    const list = this.find(".columns fieldset"), menu = this.find(".columns");
    for (const head of this.heads.slice(1)) {
      const label = make("label"), box = make("input"), key = head.dataset.key;
      box.type = "checkbox"; box.checked = !this.hiding.has(key); box.value = key;
      box.addEventListener("change", () => { this.hiding[box.checked ? "delete" : "add"](key); this.draw(); });
      label.append(box, " " + head.textContent);
      list.append(label);
    }
    menu.addEventListener("keydown", event => {
      if (event.key === "Escape" && menu.open) { menu.open = false; menu.querySelector("summary").focus(); }
    });
    document.addEventListener("click", event => { if (!menu.contains(event.target)) menu.open = false; });
  }
  set(rows) {
    this.rows = rows;
    this.words = null;
    this.silent = new Set(this.heads.map(head => head.dataset.key).filter(key => !rows.some(row => this.text(row, key))));
    this.update();
  }
  sortBy(key) {
    if (this.sort !== key) { this.sort = key; this.down = false; }
    else if (!this.down) this.down = true;
    else this.sort = null; // the third time: as it was
    this.page = 0;
    this.update();
  }
  update() {
    const wanted = this.find("input[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (wanted.length && !this.words) {
      const keys = this.heads.map(head => head.dataset.key);
      this.words = new Map(this.rows.map(row => [row, keys.map(key => this.text(row, key)).join("\n").toLowerCase()]));
    }
    this.shown = wanted.length ? this.rows.filter(row => wanted.every(word => this.words.get(row).includes(word))) : this.rows.slice();
    if (this.sort !== null) {
      const keyed = this.shown.map((row, place) => [this.value(row, this.sort), place, row]);
      const sign = this.down ? -1 : 1;
      keyed.sort((a, b) => missing(a[0]) || missing(b[0]) ? missing(a[0]) - missing(b[0]) || a[1] - b[1]
        : sign * ordered(a[0], b[0]) || a[1] - b[1]);
      this.shown = keyed.map(entry => entry[2]);
    }
    this.draw();
  }
  turn(by) { this.page += by; this.draw(); this.find(".scroll").scrollIntoView({ block: "nearest" }); }
  draw() {
    for (const head of this.heads) {
      head.hidden = this.hiding.has(head.dataset.key) || this.silent.has(head.dataset.key);
      head.setAttribute("aria-sort", head.dataset.key !== this.sort ? "none" : this.down ? "descending" : "ascending");
    }
    const heads = this.heads.filter(head => !head.hidden), start = this.page * this.size;
    const rows = this.shown.slice(start, start + this.size).map(row => {
      const line = make("tr");
      heads.forEach((head, place) => {
        const cell = make(place ? "td" : "th", "", head.classList.contains("words") && place ? "words" : "");
        if (!place) cell.scope = "row";
        cell.dataset.key = head.dataset.key;
        this.fill(cell, row, head.dataset.key);
        line.append(cell);
      });
      return line;
    });
    this.body.replaceChildren(...rows);
    this.say(start, rows.length);
  }
  say(start, drawn) {
    const all = this.rows.length, found = this.shown.length, pages = Math.ceil(found / this.size) || 1;
    const head = this.heads.find(one => one.dataset.key === this.sort);
    const words = [found === all ? `${thousands(all)} ${this.noun}${all === 1 ? "" : "s"}` : `${thousands(found)} of ${thousands(all)} ${this.noun}s`];
    if (head) words.push(`sorted by ${head.textContent}, ${this.down ? "falling" : "rising"}`);
    this.find(".status").textContent = words.join("; ") + (this.note ? `; ${this.note}` : "") + ".";
    const nav = this.find(".pages");
    nav.hidden = pages < 2;
    nav.querySelector("span").textContent = `${thousands(start + 1)} to ${thousands(start + drawn)} of ${thousands(found)}`;
    nav.querySelector(".before").disabled = this.page === 0;
    nav.querySelector(".after").disabled = this.page >= pages - 1;
  }
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent), size = data.labels.length;
  const state = { metric: data.primary, base: null };
  const planned = open(data.planned[data.primary]);

  function open(view) {
    const columns = Object.entries(view.columns).map(([key, texts]) => [key, unpacked(texts, size)]);
    return { ...view, columns: Object.fromEntries(columns), words: unpacked(view.words, size), bold: new Set(view.bold) };
  }
  function rowsOf() { // variant -> its texts
    const view = open(state.base === null ? data.planned[state.metric] : data.others[state.base]);
    const order = view.order ?? data.labels.map((_, place) => place);
    const found = order.map((variant, place) => ({ view, place, variant }));
    return { view, rows: found };
  }
  const ofVariant = new Set(data.ofVariant); // what a view lacks of these is the same for all metrics, and of no others
  const text = (row, key) => row.view.columns[key]?.[row.place] ?? (ofVariant.has(key) && !row.view.order ? planned.columns[key]?.[row.variant] ?? "" : "");
  const small = row => row.view.small[row.place] ?? [];
  const isWords = new Set([...document.querySelectorAll("#verdicts-table thead th.words")].map(head => head.dataset.key));

  const verdicts = new Grid(document.getElementById("verdicts"), {
    noun: "variant",
    text: (row, key) => key === "verdict" ? [text(row, key), ...small(row)].filter(Boolean).join("\n") : text(row, key),
    value: (row, key) => {
      if (key === "verdict") return data.verdicts.indexOf(row.view.words[row.place]) < 0 ? null : data.verdicts.indexOf(row.view.words[row.place]);
      return isWords.has(key) && key !== "interval" ? text(row, key) : quantity(text(row, key));
    },
    fill(cell, row, key) {
      const shown = text(row, key), bold = row.view.bold.has(row.place), word = row.view.words[row.place];
      if (key === "verdict") {
        if (word && shown) cell.append(make("span", shown, `verdict ${word}${bold ? " bold" : ""}`)); else cell.textContent = shown;
        for (const line of small(row)) cell.append(make("small", line));
      } else if (bold && key === "difference") cell.append(make("b", shown));
      else if (key === "variant") soft(cell, shown); else cell.textContent = shown;
    },
  });
  function compare() {
    const about = data.metrics[state.metric], find = verdicts.find, { view, rows } = rowsOf();
    find(".what").textContent = state.metric;
    find(".unit").textContent = about.unit;
    find(".better").textContent = about.better;
    find(".against").textContent = view.against;
    verdicts.note = state.base === null && state.metric === data.primary ? ""
      : `${state.metric}, differences to ${state.base === null ? "the planned baseline" : data.labels[state.base]}`;
    verdicts.page = 0;
    verdicts.set(rows);
  }
  const metrics = document.getElementById("metric"), bases = document.getElementById("baseline");
  for (const name of Object.keys(data.planned)) metrics.append(new Option(data.timing.includes(name) ? `${name} (timing)` : name, name));
  bases.append(new Option("as planned", ""), ...data.others.map((_, place) => new Option(data.labels[place], place)));
  bases.closest("label").hidden = !data.others.length;
  metrics.addEventListener("change", () => {
    state.metric = metrics.value;
    if (state.metric !== data.primary) { state.base = null; bases.value = ""; }
    bases.disabled = state.metric !== data.primary; // of other metrics, the planned baseline alone was computed
    compare();
  });
  bases.addEventListener("change", () => { state.base = bases.value === "" ? null : Number(bases.value); compare(); });
  compare();

  const errors = new Map(data.errors.map(([variant, seed, words]) => [`${variant}/${seed}`, words]));
  const seeds = unpacked(data.seeds, size), states = unpacked(data.states, size), runs = [];
  seeds.forEach((own, variant) => own.forEach((seed, k) => runs.push({ variant, seed, state: states[variant][k], place: runs.length })));
  const measured = Object.fromEntries(Object.entries(data.runs).map(([name, texts]) => [name, unpacked(texts, runs.length)]));
  const runText = (run, key) => key === "label" ? data.labels[run.variant] : key === "seed" ? String(run.seed) : key === "state" ? run.state
    : key === "error" ? errors.get(`${run.variant}/${run.seed}`) ?? "" : measured[key][run.place];
  new Grid(document.getElementById("runs"), {
    noun: "run", text: runText,
    value: (run, key) => key === "seed" ? run.seed : key in measured ? quantity(runText(run, key)) : runText(run, key),
    fill(cell, run, key) {
      if (key === "state") cell.append(make("span", run.state, `state ${run.state}`)); else soft(cell, runText(run, key));
      if (key === "error") cell.classList.add("error");
    },
  }).set(runs);
  if (narrow) document.querySelector(".audit")?.removeAttribute("open"); // its count stays; the verdicts come first
  document.documentElement.dataset.ready = "yes";
}
// After the first paint: the tables in the file can be read by then.
requestAnimationFrame(() => setTimeout(start));
