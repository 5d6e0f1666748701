// Differences and verdicts for any baseline, as in gptlab/results/{evidence,checks,comparing}.py; the same test holds.
const BETTER = "better", WORSE = "worse", DIFFERENT = "clear difference", EQUIVALENT = "equivalent within margin", UNCLEAR = "no clear difference",
  TOO_FEW = "too few seeds", NOT_COMPARABLE = "not comparable";
const ONE_SEED = "one seed: cannot be told from noise", TWO_SEEDS = "two seeds: a range, not an interval";
const CONFIRMED_FROM = 5, MATCHED = 0.02;
const thousands = value => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
const joinWords = (words, cell) => cell.reason ? `${words}; ${cell.reason}` : words;

class Evidence {
  constructor(data) {
    this.data = data;
    this.size = data.labels.length;
    this.tables = new Map(); // metric -> variant -> Map(seed -> value)
    this.pick = (table, variant) => table.distinct[Array.isArray(table.of) ? table.of[variant] : table.of];
    this.cache = new Map();
  }
  values(metric, variant) {
    if (!this.tables.has(metric)) this.tables.set(metric, new Array(this.size));
    const known = this.tables.get(metric);
    if (!known[variant]) {
      const stored = this.data.values[metric]?.[variant] ?? null, found = new Map();
      const seeds = this.pick(this.data.seeds, variant), states = this.pick(this.data.states, variant);
      seeds.forEach((seed, k) => {
        const value = Array.isArray(stored) ? stored[k] : states[k] === "finished" ? stored : null;
        if (value !== null) found.set(seed, value);
      });
      known[variant] = found;
    }
    return known[variant];
  }
  delta(own, base) { // [key, the baseline's, its own] for each setting that differs
    return Object.entries(this.data.settings).filter(([, s]) => s.index[own] !== s.index[base])
      .map(([key, s]) => [key, s.words[s.index[base]], s.words[s.index[own]]]);
  }
  baseOf(variant, chosen) { // index of the baseline, or -1
    return chosen === null ? this.data.bases[variant] : chosen === variant ? -1 : chosen;
  }
  count(variant, metric) { return this.values(metric, variant).values().next().value ?? null; }

  rows(metric, chosen) { // chosen: a variant, or null for the planned baselines
    const found = [];
    for (let own = 0; own < this.size; own++) {
      const base = this.baseOf(own, chosen), states = this.pick(this.data.states, own);
      const counts = { planned: states.length, finished: 0, failed: 0, diverged: 0, missing: 0 };
      for (const state of states) counts[state in counts && state !== "planned" ? state : "missing"]++;
      const row = { variant: own, label: this.data.labels[own], base, counts };
      row.delta = base < 0 ? [] : this.delta(own, base);
      for (const name of ["parameters", "flops_forward_per_token"]) {
        const mine = this.count(own, name), its = base < 0 ? null : this.count(base, name);
        const change = mine === null || its === null ? null : mine - its;
        row[name] = mine;
        row[name + "_percent"] = change === null || !its ? null : 100 * change / its;
      }
      found.push(row);
    }
    const cells = this.cells(this.family(metric), chosen);
    found.forEach((row, k) => {
      row.findings = cells[k].findings;
      row.cell = cells[k].cells.get(metric) ?? { metric, n: 0, pairs: 0, scale: "difference", verdict: "", reason: "not measured" };
    });
    return found;
  }

  family(metric) { // metrics that are corrected together
    return metric === this.data.primary ? "primary" : this.data.metrics[metric].kind === "timing" ? "timing" : "exploratory";
  }
  cells(family, chosen) { // all cells of one family of tests
    const key = `${family}/${chosen}`, primary = family === "primary";
    if (this.cache.has(key)) return this.cache.get(key);
    const names = Object.keys(this.data.metrics).filter(name => this.family(name) === family);
    const members = [], tested = [];
    for (let own = 0; own < this.size; own++) {
      const base = this.baseOf(own, chosen), cells = new Map();
      const findings = base < 0 ? null : this.findings(own, base);
      for (const name of names) {
        const values = this.values(name, own);
        if (!values.size && !primary) continue;
        const cell = this.draft(name, values, own, base, findings, primary);
        if (cell.p !== undefined) tested.push(cell);
        cells.set(name, cell);
      }
      members.push({ findings, cells });
    }
    const corrected = (primary ? holm : benjaminiHochberg)(tested.map(cell => cell.p));
    tested.forEach((cell, k) => { cell.p_corrected = corrected[k]; });
    if (primary && this.data.margin) {
      const equivalent = holm(tested.map(cell => cell.p_equivalence));
      tested.forEach((cell, k) => { cell.p_equivalence = equivalent[k]; });
    }
    for (const { cells } of members) for (const cell of cells.values()) this.finish(cell, primary);
    if (this.cache.size > 6) this.cache.clear();
    this.cache.set(key, members);
    return members;
  }

  draft(name, values, own, base, findings, primary) {
    const about = this.data.metrics[name], numbers = [...values.values()];
    const cell = { metric: name, n: numbers.length, pairs: 0, scale: "difference", verdict: "", reason: "" };
    if (numbers.length) {
      cell.mean = mean(numbers);
      if (about.kind !== "exact") {
        cell.sd = sd(numbers);
        cell.half_width = cell.sd === null || numbers.length < 3 ? null
          : tQuantile(numbers.length - 1) * cell.sd / Math.sqrt(numbers.length);
      } else if (range(numbers)[0] !== range(numbers)[1]) cell.reason = "counted, but not the same in every seed";
    }
    if (base < 0) return cell;
    const others = this.values(name, base);
    const seeds = [...values.keys()].filter(seed => others.has(seed)).sort((a, b) => a - b);
    cell.pairs = seeds.length;
    if (about.kind === "exact") {
      if (cell.n && others.size) {
        const before = mean([...others.values()]);
        cell.difference = cell.mean - before;
        cell.relative = before ? 100 * cell.difference / before : null;
      }
      cell.reason ||= "counted, not tested";
      return cell;
    }
    const planned = new Set(this.pick(this.data.seeds, base));
    const expected = this.pick(this.data.seeds, own).filter(seed => planned.has(seed)).length;
    cell.marked = seeds.length < expected;
    const problem = this.problem(findings, about);
    if (problem || !seeds.length) {
      cell.verdict = NOT_COMPARABLE;
      cell.reason = problem || (!values.size ? "no finished run has a finite value"
        : others.size ? "no seed in common with the baseline" : "the baseline has no finite value");
      return cell;
    }
    this.paired(cell, about, seeds.map(seed => values.get(seed)), seeds.map(seed => others.get(seed)), expected, primary);
    return cell;
  }

  paired(cell, about, mine, its, expected, primary) {
    const n = mine.length, ratio = about.kind === "positive_scale", plain = its;
    const back = value => ratio ? (value < 709 ? Math.exp(value) : Infinity) : value;
    cell.scale = ratio ? "ratio" : "difference";
    if (ratio) {
      if (range([...mine, ...its])[0] <= 0) {
        cell.verdict = NOT_COMPARABLE; cell.reason = "a value of zero or below has no ratio";
        return;
      }
      mine = mine.map(Math.log); its = its.map(Math.log);
    }
    const differences = mine.map((value, k) => value - its[k]), middle = mean(differences), before = mean(its);
    cell.difference = back(middle);
    cell.relative = ratio ? 100 * Math.expm1(middle) : before ? 100 * middle / Math.abs(before) : null;
    cell.correlation = correlation(mine, its);
    const noise = sd(its);
    cell.noise_units = noise && !flat(its) ? middle / noise : null;
    if (about.direction !== "neither") cell.wins = differences.filter(d => about.direction === "lower" ? d < 0 : d > 0).length;
    if (cell.marked) cell.reason = `on ${n} of ${expected} seeds`;
    const size = ratio ? 1 : Math.max(...[...mine, ...its].map(Math.abs));
    if (n === 1) {
      cell.verdict = TOO_FEW; cell.reason = joinWords(ONE_SEED, cell);
    } else if (n < 3) {
      const [low, high] = range(differences);
      cell.low = back(low); cell.high = back(high); cell.interval = "range";
      cell.verdict = TOO_FEW; cell.reason = joinWords(TWO_SEEDS, cell);
    } else if (flat(differences, size)) {
      const same = differences.every(d => d === 0);
      cell.verdict = same ? UNCLEAR : NOT_COMPARABLE;
      cell.reason = joinWords(same ? "the same numbers in every seed"
        : "the same difference in every seed: no noise to test it by", cell);
    } else {
      const spread = sd(differences), error = spread / Math.sqrt(n), reach = tQuantile(n - 1) * error;
      cell.low = back(middle - reach); cell.high = back(middle + reach); cell.interval = "t";
      cell.p = Math.min(1, twoSided(middle / error, n - 1));
      cell.effect = middle / spread;
      const table = this.data.detectable; // from three seeds
      cell.detectable = back(table[Math.min(n, table.length + 2) - 3] * spread);
      const needed = table.findIndex(least => least <= Math.abs(cell.effect));
      cell.n_needed = needed < 0 ? null : needed + 3;
      if (primary) this.confirm(cell, about, differences, middle, spread, mean(plain));
    }
  }
  confirm(cell, about, differences, middle, spread, baseline) {
    const n = differences.length, margin = this.data.margin;
    if (n >= FLIP_FROM && n <= FLIP_TO) cell.p_sign_flip = signFlip(differences);
    if (!margin) return;
    const size = about.kind === "positive_scale" ? Math.log1p(margin.size)
      : margin.relative ? margin.size * Math.abs(baseline) : margin.size;
    cell.p_equivalence = equivalence(middle, spread, n, -size, size);
  }
  finish(cell, primary) {
    if (cell.p_corrected === undefined) return;
    const about = this.data.metrics[cell.metric], clear = cell.p_corrected < ALPHA;
    cell.exploratory = !primary || cell.pairs < CONFIRMED_FROM;
    if (cell.p_equivalence < ALPHA) cell.verdict = EQUIVALENT;
    else if (!clear) cell.verdict = UNCLEAR;
    else if (about.direction === "neither") cell.verdict = DIFFERENT;
    else {
      const lower = cell.difference < (cell.scale === "ratio" ? 1 : 0);
      cell.verdict = lower === (about.direction === "lower") ? BETTER : WORSE;
    }
    if (clear && cell.p_sign_flip >= ALPHA) {
      const p = Number(cell.p_sign_flip.toPrecision(2));
      cell.reason = joinWords(`the exact sign-flip test does not agree (p = ${p})`, cell);
      cell.exploratory = true;
    }
    cell.bold = cell.verdict === BETTER && !cell.exploratory && !cell.marked;
  }

  // Whether two variants may be compared at all: same data, same training, same code, same machine.
  findings(own, base) {
    const { facts } = this.data, runs = variant => {
      const found = new Map(), states = this.pick(this.data.states, variant);
      const outcomes = this.pick(this.data.outcomes, variant), places = this.pick(this.data.runFacts, variant);
      this.pick(this.data.seeds, variant).forEach((seed, k) => {
        if (states[k] === "finished") found.set(seed, { facts: places[k], outcome: outcomes[k] });
      });
      return found;
    };
    const mine = runs(own), its = runs(base), pairs = [...mine.keys()].filter(seed => its.has(seed)).sort((a, b) => a - b);
    if (!pairs.length) return { data: "", training: "", leaked: "", machine: "", flags: [] };
    const differing = place => {
      const found = pairs.map(seed => [seed, facts[mine.get(seed).facts][place], facts[its.get(seed).facts][place]])
        .filter(([, a, b]) => a && b && a !== b);
      if (!found.length) return "";
      const seeds = found.slice(0, 5).map(([seed]) => seed).join(", ") + (found.length > 5 ? ", ..." : "");
      const which = found.length === pairs.length ? "" : ` (seed${found.length > 1 ? "s" : ""} ${seeds})`;
      return `${found[0][1]}, baseline ${found[0][2]}${which}`;
    };
    const keys = this.delta(own, base).map(([key]) => key);
    const [data, code, versions, host, threads] = [0, 1, 2, 3, 4].map(differing);
    const flags = [["code", code], ["versions", versions], ["host", host], ["number of threads", threads]]
      .filter(([, found]) => found).map(([what, found]) => `other ${what} than the baseline's: ${found}`);
    const seconds = (side, seed) => facts[side.get(seed).facts][5];
    const timed = seed => seconds(mine, seed) && seconds(mine, seed) === seconds(its, seed);
    const [training, flag] = this.training(own, base, pairs, keys, timed);
    const leaks = [["the variant", mine], ["the baseline", its]]
      .filter(([, side]) => pairs.some(seed => side.get(seed).outcome === "leaked")).map(([who]) => who);
    // Where no entropy is known, no loss tells of a leak; the config does.
    const [, before, after] = this.delta(own, base).find(([key]) => key === "model.causal") || [];
    const seeing = after === "false" ? "the variant" : before === "false" ? "the baseline" : "";
    const collapsed = pairs.filter(seed => mine.get(seed).outcome === "collapsed");
    if (collapsed.length) flags.push(`collapsed: seed ${collapsed.join(", ")}`);
    if (flag) flags.push(flag);
    const tokens = keys.includes("data.tokenizer") ? "data.tokenizer" : "";
    return {
      data: data ? "other data" : tokens ? `other ${tokens}` : "", training, flags,
      leaked: leaks.length ? `${leaks.join(" and ")} leaked` : seeing ? `${seeing} sees the future` : "",
      machine: host ? "other hosts" : threads ? "other number of threads" : "",
    };
  }
  training(own, base, pairs, keys, timed) {
    const get = (variant, metric, seed) => this.values(metric, variant).get(seed);
    const compute = (variant, seed) => get(variant, "flops_training_per_token", seed) * get(variant, "tokens", seed);
    for (const name of ["steps", "tokens"]) for (const seed of pairs) {
      const mine = get(own, name, seed), its = get(base, name, seed);
      if (mine === undefined || its === undefined || mine === its) continue;
      const words = `${thousands(mine)} ${name}, baseline ${thousands(its)}`;
      const spent = [compute(own, seed), compute(base, seed)];
      if (spent[0] && spent[1] && Math.abs(spent[0] / spent[1] - 1) <= MATCHED) return ["", `matched in compute: ${words}`];
      if (timed(seed)) return ["", `matched in time: ${words} (seed ${seed})`];
      if (keys.length && keys.every(key => key.split(".")[0] === "train")) return ["", `other budget: ${words}`];
      return [words, ""];
    }
    return ["", ""];
  }
  problem(findings, about) {
    if (about.kind === "timing") return findings.machine;
    if (!about.tokens && !about.trained) return findings.data;
    return findings.data || (about.trained && !about.masked ? findings.leaked : "") || (about.trained ? findings.training : "");
  }
}
