// The arithmetic of a comparison, as in gptlab/results/statistics.py: a test holds the two together to 1e-9.
const ALPHA = 0.05, FLIP_FROM = 8, FLIP_TO = 30, RESOLUTION = 2 ** -23;

function sum(values) { // compensated (Neumaier): as exact as Python's fsum for these few numbers
  let total = 0, rest = 0;
  for (const value of values) {
    const next = total + value;
    rest += Math.abs(total) >= Math.abs(value) ? total - next + value : value - next + total;
    total = next;
  }
  return total + rest;
}
const mean = values => sum(values) / values.length;
function sd(values) {
  if (values.length < 2) return null;
  const middle = mean(values);
  return Math.sqrt(sum(values.map(value => (value - middle) ** 2)) / (values.length - 1));
}
function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
}
function flat(values, size) {
  const [low, high] = range(values);
  return high - low <= 2 * RESOLUTION * (size ?? Math.max(Math.abs(low), Math.abs(high)));
}

// Student's t. Two-sided p = I_x(df/2, 1/2) with x = df / (df + t^2): the regularised incomplete beta function.
const gammaRatios = [NaN, 1 / Math.sqrt(Math.PI), Math.sqrt(Math.PI) / 2]; // gamma((df+1)/2) / gamma(df/2)
function gammaRatio(df) {
  for (let k = gammaRatios.length; k <= df; k++) gammaRatios.push(gammaRatios[k - 2] * (k - 1) / (k - 2));
  return gammaRatios[df];
}
function betaFraction(x, a, b) { // continued fraction by Lentz's method
  const tiny = 1e-300;
  let c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let value = d;
  for (let m = 1; m < 1000; m++) {
    for (const step of [m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                        -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))]) {
      d = 1 + step * d; d = 1 / (Math.abs(d) < tiny ? tiny : d);
      c = 1 + step / c; if (Math.abs(c) < tiny) c = tiny;
      value *= d * c;
    }
    if (Math.abs(d * c - 1) < 1e-16) break;
  }
  return value;
}
function twoSided(t, df) { // P(|T| >= |t|)
  t = Math.abs(t);
  if (t === 0) return 1;
  if (t === Infinity) return 0;
  const x = df / (df + t * t), y = t * t / (df + t * t), a = df / 2, b = 0.5;
  const front = gammaRatio(df) / Math.sqrt(Math.PI) * Math.exp(a * Math.log(x) + b * Math.log(y));
  return x < (a + 1) / (a + b + 2) ? front * betaFraction(x, a, b) / a : 1 - front * betaFraction(y, b, a) / b;
}
const tBelow = (t, df) => t < 0 ? twoSided(t, df) / 2 : 1 - twoSided(t, df) / 2; // P(T <= t)
const quantiles = new Map();
function tQuantile(df) { // two-sided 95 %, by bisection: once for each number of seeds
  if (!quantiles.has(df)) {
    let low = 1.9, high = 13;
    for (let k = 0; k < 60; k++) {
      const middle = (low + high) / 2;
      if (twoSided(middle, df) > ALPHA) low = middle; else high = middle;
    }
    quantiles.set(df, (low + high) / 2);
  }
  return quantiles.get(df);
}
function equivalence(middle, spread, n, low, high) {
  const error = spread / Math.sqrt(n);
  return Math.max(tBelow(-(middle - low) / error, n - 1), tBelow((middle - high) / error, n - 1));
}
function correlation(one, two) {
  if (one.length < 3 || flat(one) || flat(two)) return null;
  const a = mean(one), b = mean(two);
  const products = sum(one.map((x, k) => (x - a) * (two[k] - b)));
  const squares = sum(one.map(x => (x - a) ** 2)) * sum(two.map(y => (y - b) ** 2));
  return squares ? Math.max(-1, Math.min(1, products / Math.sqrt(squares))) : null;
}
function signFlip(differences) { // exact: all 2^n sums, through the sums of two halves
  const sizes = differences.map(Math.abs);
  let target = Math.abs(sum(differences));
  target -= 1e-14 * sum(sizes) + 100 * Number.EPSILON * target;
  let left = [0], right = [0];
  sizes.forEach((size, place) => {
    const before = place % 2 ? left : right, after = [];
    for (const value of before) after.push(value - size, value + size);
    if (place % 2) left = after; else right = after;
  });
  left = Float64Array.from(left).sort(); right = Float64Array.from(right).sort();
  let count = 0, above = right.length, below = right.length; // right[above..] >= target - left; right[..below) <= -target - left
  for (const value of left) {
    while (above > 0 && right[above - 1] >= target - value) above--;
    while (below > 0 && right[below - 1] > -target - value) below--;
    count += right.length - above + below;
  }
  return Math.min(1, count / 2 ** sizes.length);
}
function holm(ps) {
  const order = ps.map((_, k) => k).sort((a, b) => ps[a] - ps[b]), adjusted = [];
  let highest = 0;
  order.forEach((place, rank) => {
    adjusted[place] = highest = Math.max(highest, Math.min(1, (ps.length - rank) * ps[place]));
  });
  return adjusted;
}
function benjaminiHochberg(ps) {
  const order = ps.map((_, k) => k).sort((a, b) => ps[b] - ps[a]), adjusted = [];
  let lowest = 1;
  order.forEach((place, rank) => {
    adjusted[place] = lowest = Math.min(lowest, ps.length / (ps.length - rank) * ps[place]);
  });
  return adjusted;
}
