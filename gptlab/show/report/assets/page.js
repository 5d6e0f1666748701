// The page: tables that sort, filter, hide columns and turn pages, and verdicts for any metric and baseline. The texts of
// the cells are those of gptlab/results/report/columns.py. User text goes into the page as text only, never as HTML.
const FINDINGS = [BETTER, WORSE, DIFFERENT], VERDICTS = [...FINDINGS, EQUIVALENT, UNCLEAR, TOO_FEW, NOT_COMPARABLE];
const PAGE = 100, PRINTED = 2000;
const missing = value => value === null || value === undefined;

function exponent(value, places) { return value.toExponential(places); }
function number(value, digits = 5) {
  if (missing(value)) return "";
  if (!Number.isFinite(value)) return value > 0 ? "\u221e" : "-\u221e";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e7 || size < 1e-4) return exponent(value, digits - 1);
  return value.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
}
function amount(value, exact) {
  if (!missing(value) && exact && Number.isInteger(value) && Math.abs(value) < 1e15)
    return value.toString().replace(/\B(?=(\d{3})+$)/g, ",");
  return number(value);
}
const signed = (value, digits = 3) => missing(value) ? "" : (value > 0 ? "+" : "") + number(value, digits);
const percent = value => missing(value) ? "" : value === 0 ? "=" : signed(value) + "%";
const probability = value => missing(value) ? "" : value < 1e-4 ? "<0.0001" : value.toFixed(value >= 0.1 ? 2 : value >= 0.01 ? 3 : 4);
function places(cell) {
  if (missing(cell.low) || missing(cell.high) || !(cell.low < cell.high && cell.high < Infinity)) return null;
  const wanted = 1 - Math.floor(Math.log10(cell.high - cell.low));
  return wanted <= 8 && Math.max(Math.abs(cell.low), Math.abs(cell.high)) < 1e7 ? Math.max(0, wanted) : null;
}
function placed(value, cell, found) {
  if (cell.scale === "ratio") return "x" + (found === null ? number(value, 3) : value.toFixed(found));
  return found === null ? signed(value) : (value > 0 ? "+" : "") + value.toFixed(found);
}
function difference(cell, exact) {
  if (missing(cell.difference)) return "";
  if (exact) return cell.difference === 0 ? "=" : (cell.difference > 0 ? "+" : "") + amount(cell.difference, true);
  return placed(cell.difference, cell, places(cell));
}
function interval(cell) {
  if (missing(cell.low) || missing(cell.high)) return "";
  const text = `${placed(cell.low, cell, places(cell))} to ${placed(cell.high, cell, places(cell))}`;
  return cell.interval === "range" ? text + " (range)" : text;
}
function runsWords({ counts }) {
  const lost = ["failed", "diverged", "missing"].filter(what => counts[what]).map(what => `${counts[what]} ${what}`);
  return [`${counts.finished} of ${counts.planned}`, ...lost].join(", ");
}
const shortened = text => [...text].length <= 240 ? text : [...text].slice(0, 239).join("") + "\u2026";
const changeWords = row => row.delta
  .map(([key, old, own]) => `${key.replace(/^model\./, "")}: ${shortened(old)} -> ${shortened(own)}`).join("; ");
function verdictWords(row) {
  const cell = row.cell;
  if (row.base < 0) return "baseline";
  if (!cell.verdict) return cell.reason;
  if (cell.verdict === NOT_COMPARABLE) return `${cell.verdict} (${cell.reason})`;
  return cell.exploratory && FINDINGS.includes(cell.verdict) ? `${cell.verdict} (exploratory)` : cell.verdict;
}
function remarks(row) {
  const { verdict } = row.cell, flags = row.findings?.flags ?? [];
  const reason = row.cell.reason.split("; ").filter(part => part !== ONE_SEED && part !== TWO_SEEDS).join("; ");
  return row.base >= 0 && verdict && verdict !== NOT_COMPARABLE && reason ? [reason, ...flags] : flags;
}

// key -> [text, what to sort by] of a row.
const COLUMNS = {
  label: [row => row.label, row => row.label],
  change: [changeWords, changeWords],
  runs: [runsWords, row => row.counts.finished],
  mean: [(row, exact) => amount(row.cell.mean, exact), row => row.cell.mean],
  sd: [row => number(row.cell.sd, 3), row => row.cell.sd],
  difference: [(row, exact) => difference(row.cell, exact), row => row.cell.difference],
  interval: [row => interval(row.cell), row => row.cell.low],
  relative: [row => percent(row.cell.relative), row => row.cell.relative],
  p_corrected: [row => probability(row.cell.p_corrected), row => row.cell.p_corrected],
  verdict: [verdictWords, row => row.base < 0 ? null : VERDICTS.indexOf(row.cell.verdict) + (row.cell.exploratory ? .5 : 0)],
  parameters: [row => percent(row.parameters_percent), row => row.parameters_percent],
  flops: [row => percent(row.flops_forward_per_token_percent), row => row.flops_forward_per_token_percent],
  half_width: [row => number(row.cell.half_width, 3), row => row.cell.half_width],
  p: [row => probability(row.cell.p), row => row.cell.p],
  p_sign_flip: [row => probability(row.cell.p_sign_flip), row => row.cell.p_sign_flip],
  p_equivalence: [row => probability(row.cell.p_equivalence), row => row.cell.p_equivalence],
  correlation: [row => number(row.cell.correlation, 2), row => row.cell.correlation],
  wins: [row => missing(row.cell.wins) ? "" : `${row.cell.wins} of ${row.cell.pairs}`, row => row.cell.wins],
  noise_units: [row => signed(row.cell.noise_units), row => row.cell.noise_units],
  effect: [row => signed(row.cell.effect), row => row.cell.effect],
  detectable: [row => missing(row.cell.detectable) ? "" : (row.cell.scale === "ratio" ? "x" : "") + number(row.cell.detectable, 3),
               row => row.cell.detectable],
  n_needed: [row => missing(row.cell.p) ? "" : missing(row.cell.n_needed) ? ">1000" : String(row.cell.n_needed),
             row => missing(row.cell.p) ? null : row.cell.n_needed ?? Infinity],
};

const make = (tag, text = "", name = "") => {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (name) made.className = name;
  return made;
};
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
    this.hiding = new Set(this.heads.filter(head => "extra" in head.dataset).map(head => head.dataset.key));
    for (const head of this.heads) {
      delete head.dataset.extra;
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
  set(rows) { this.rows = rows; this.words = null; this.update(); }
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
      head.hidden = this.hiding.has(head.dataset.key);
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
  const data = JSON.parse(document.getElementById("data").textContent), evidence = new Evidence(data);
  const exact = metric => data.metrics[metric]?.kind === "exact";
  const state = { metric: data.primary, base: null };

  const verdicts = new Grid(document.getElementById("verdicts"), {
    noun: "variant",
    text: (row, key) => key === "verdict" ? [verdictWords(row), ...remarks(row)].join("\n") : COLUMNS[key][0](row, exact(state.metric)),
    value: (row, key) => COLUMNS[key][1](row),
    fill(cell, row, key) {
      const text = COLUMNS[key][0](row, exact(state.metric)), bold = row.cell.bold;
      if (key === "verdict") {
        const word = row.cell.verdict.replaceAll(" ", "-");
        if (word) cell.append(make("span", text, `verdict ${word}${bold ? " bold" : ""}`)); else cell.textContent = text;
        for (const remark of remarks(row)) cell.append(make("small", remark));
      } else if (bold && key === "difference") cell.append(make("b", text));
      else cell.textContent = text;
    },
  });
  function compare() {
    const about = data.metrics[state.metric], find = verdicts.find;
    let rows = evidence.rows(state.metric, state.base);
    if (state.base !== null) rows = [rows[state.base], ...rows.filter(row => row.variant !== state.base)];
    find(".what").textContent = state.metric;
    find(".unit").textContent = about.unit;
    find(".better").textContent = { lower: "lower is better", higher: "higher is better" }[about.direction] ?? "neither direction is better";
    const bases = new Set(rows.map(row => row.base).filter(base => base >= 0));
    find(".against").textContent = bases.size === 1 ? `Differences to ${data.labels[[...bases][0]]}.`
      : rows.length > 1 ? "Differences to each variant's own baseline." : "";
    verdicts.note = state.base === null && state.metric === data.primary ? ""
      : `${state.metric}, differences to ${state.base === null ? "the planned baseline" : data.labels[state.base]}`;
    verdicts.page = 0;
    verdicts.set(rows);
  }
  const metrics = document.getElementById("metric"), bases = document.getElementById("baseline");
  for (const name of data.shown.length ? data.shown : [data.primary]) metrics.append(new Option(name, name));
  for (const name of data.timing) metrics.append(new Option(`${name} (timing)`, name));
  bases.append(new Option("as planned", ""));
  const fill = () => { // as late as can be: a study may have ten thousand variants
    if (bases.length === 1) bases.append(...data.labels.map((label, place) => new Option(label, place)));
  };
  if (data.labels.length <= 300) fill();
  for (const event of ["focus", "pointerdown"]) bases.addEventListener(event, fill);
  metrics.addEventListener("change", () => { state.metric = metrics.value; compare(); });
  bases.addEventListener("change", () => { state.base = bases.value === "" ? null : Number(bases.value); compare(); });
  compare();

  const errors = new Map(data.errors.map(([variant, seed, text]) => [`${variant}/${seed}`, text]));
  const runs = [];
  for (let variant = 0; variant < data.labels.length; variant++) {
    const states = evidence.pick(data.states, variant);
    evidence.pick(data.seeds, variant).forEach((seed, k) => runs.push({ variant, seed, state: states[k] }));
  }
  const measured = (run, metric) => evidence.values(metric, run.variant).get(run.seed) ?? null;
  const runValue = (run, key) => key === "label" ? data.labels[run.variant] : key === "seed" ? run.seed : key === "state" ? run.state
    : key === "error" ? errors.get(`${run.variant}/${run.seed}`) ?? null : measured(run, key);
  const runText = (run, key) => ["label", "state", "error"].includes(key) ? runValue(run, key) ?? ""
    : key === "seed" ? String(run.seed) : amount(runValue(run, key), exact(key));
  new Grid(document.getElementById("runs"), {
    noun: "run", text: runText, value: runValue,
    fill(cell, run, key) {
      if (key === "state") cell.append(make("span", run.state, `state ${run.state}`)); else cell.textContent = runText(run, key);
      if (key === "error") cell.classList.add("error");
    },
  }).set(runs);
  document.documentElement.dataset.ready = "yes";
}
// After the first paint: the tables in the file can be read by then.
requestAnimationFrame(() => setTimeout(start));
