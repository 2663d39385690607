// Why this weight: from query and key to the score, from the row of scores to the weights, from
// those to what is read; each with its formula, which depends on the model's score, and its
// numbers. Letters as in the notes: s the decoder's state, h the encoder's, e scores, alpha weights.

import { $, decimals, element, exact, word } from "./dom.js";
import { looked_at, state } from "./state.js";
import { layers_of, shown_head, token_of } from "./reading.js";
import { colors, signed_color } from "./palette.js";
import { paint, prepare } from "./scene.js";
import { reveal } from "./lines.js";
import { step_of } from "./steps.js";
import { overlaid } from "./panel.js";

// ---- formulas, as MathML

const mathml = "http://www.w3.org/1998/Math/MathML";
function math_element(name, ...children) {
  const made = document.createElementNS(mathml, name);
  made.append(...children);
  return made;
}
const id = (name) => math_element("mi", name);
const op = (sign) => math_element("mo", sign);
const row = (...parts) => math_element("mrow", ...parts);
const below = (base, index) => math_element("msub", id(base), row(...[...index].map(id)));
const turned = (base) => (base.localName === "msub" ? math_element("msubsup", ...base.children, id("⊤")) : math_element("msup", base, id("⊤")));
// Fonts without a table for mathematics have no root that grows: this one is a sign and a line.
const root = (inside) => row(math_element("mtext", "√"), Object.assign(row(inside), { className: "rooted" }));
const call = (name, ...inside) => row(math_element("mi", name), op("("), ...inside, op(")"));
const number = (value) => math_element("mn", typeof value === "string" ? value : decimals(value, 3));
const formula = (...parts) => {
  const math = math_element("math", ...parts);
  math.setAttribute("display", "block");
  return math;
};
const state_of = () => below("s", "t"), annotation = () => below("h", "j");

// score_table() of attention/score.cpp.
const score_formulas = {
  additive: () => row(turned(id("v")), call("tanh", id("W"), state_of(), op("+"), id("U"), annotation())),
  tanh: () => call("tanh", turned(math_element("msub", id("w"), number("2"))), state_of(), op("+"), turned(math_element("msub", id("w"), number("1"))), annotation()),
  bilinear: () => row(turned(state_of()), id("W"), annotation()),
  dot: () => row(turned(below("q", "t")), below("k", "j")),
  scaled_dot: () => math_element("mfrac", row(turned(below("q", "t")), below("k", "j")), root(id("d"))),
  cosine: () => row(id("g"), call("cos", below("q", "t"), op(","), below("k", "j"))),
  static: () => below("W", "tj"),
  location: () => math_element("msub", row(op("("), id("W"), state_of(), op(")")), id("j")),
  factorized: () => call("log", turned(below("a", "t")), below("b", "j")),
};
// What the two strips are, by score: what is multiplied or added, component by component.
const strip_names = {
  additive: ["W s", "U h"], tanh: ["w₂ᵀs", "w₁ᵀh"], bilinear: ["Wᵀs", "h"], dot: ["q", "k"], scaled_dot: ["q", "k"],
  cosine: ["g q/|q|", "k/|k|"], static: ["", ""], location: ["s", "Wⱼ"], factorized: ["a = softmax(A s)", "b = softmax(B h)"],
};

// ---- numbers

// What each component adds to a score.
export function score_terms({ form, q, k, v, scale }, i, j) {
  const [a, b] = [q[i] ?? [], k[j] ?? []];
  if (form === "additive") return a.map((x, n) => v[n] * Math.tanh(x + b[n]));
  return a.map((x, n) => (form === "dot" ? scale : 1) * x * b[n]);
}
export function score_of(terms, i, j) {
  const sum = score_terms(terms, i, j).reduce((s, x) => s + x, 0);
  return (terms.form === "log_dot" ? terms.scale * Math.log(sum) : sum) + (terms.bias?.[i]?.[j] ?? 0);
}

// Which layer and head a weight is of, and which pieces. A mean has no one score: then the head of
// its layer that weighs the pair most.
function pair_of(reading, matrix, side) {
  const over = overlaid(reading, side);
  let { layer, head } = over[0] ?? shown_head(reading, side);
  let shift = side.shift;
  if (layer < 0) {
    // The head that aligns, found by its weights, which may be those of the next step.
    const layers = layers_of(reading, side), same = (a, b) => a?.every((w, j) => Math.abs(w - b[j]) < 1e-4);
    for (const later of [0, 1])
      layers.forEach((l, n) => l.heads.forEach((rows, h) => {
        if (layer < 0 && reading.chosen.slice(0, -1).every((r, i) => same(rows[i + later], r))) (layer = n), (head = h), (shift = later);
      }));
  }
  if (layer < 0) layer = layers_of(reading, side).length - 1;
  const of_mean = typeof head !== "number" || head < 0;
  // Of a row alone the column that it reads most, of a column alone the row that reads it most.
  const look = looked_at(), most = (list) => list.indexOf(Math.max(...list.map((w) => w ?? 0)));
  const given = look.column >= 0 && look.column < matrix.columns.length;
  let row_at = Math.max(0, token_of(matrix.rows_of, step_of(reading, matrix)));
  if (look.row >= 0 && look.row < matrix.rows.length) row_at = look.row;
  else if (given && state.step < 0) row_at = most(matrix.weights.map((row) => row[look.column]));
  const column_at = given ? look.column : most(matrix.weights[row_at]);
  const heads = layers_of(reading, side)[layer].heads;
  const at = (h) => Math.max(...matrix.columns_of[column_at].map((n) => heads[h][Math.min(matrix.rows_of[row_at][0] + shift, heads[h].length - 1)][n] ?? 0));
  if (of_mean) head = heads.map((_, h) => h).reduce((a, b) => (at(b) > at(a) ? b : a));
  const rows = heads[head];
  const i = Math.min(matrix.rows_of[row_at][0] + shift, rows.length - 1);
  // Of a word's pieces the one that weighs most.
  const j = matrix.columns_of[column_at].reduce((a, b) => (rows[i][b] > rows[i][a] ? b : a));
  return { layer, head, i, j, weights: rows[i], of_mean: of_mean && heads.length > 1, first_of: over.length };
}

// ---- drawing

function strip(values, most, width = 320) {
  const canvas = element("canvas", { className: "strip", aria: { hidden: "true" } });
  const each = width / Math.max(1, values.length);
  paint(prepare(canvas, width, 16), values.map((x, n) => ({ rect: [n * each, 0, Math.max(0.7, each - (each > 3 ? 0.6 : 0)), 16], fill: signed_color(x, most) })));
  return canvas;
}
const largest = (...lists) => Math.max(1e-9, ...lists.flat().map(Math.abs));
const line = (...parts) => element("div", { className: "strips" }, parts);
const name_of = (text) => element("b", {}, [word(text)]);
const link = (number_at, title, ...parts) => element("li", {}, [element("h3", {}, [element("span", { className: "step-number" }, [`${number_at}`]), title]), ...parts]);

function bars(labels, values, chosen, text) {
  const low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
  const long = labels.length > 14 ? { tabIndex: 0, aria: { label: "numbers of the row" } } : {};
  return element("ul", { className: long.aria ? "bars long" : "bars", ...long }, labels.map((l, j) => {
    const bar = element("span", { className: "signed", aria: { hidden: "true" } });
    bar.style.setProperty("--from", (Math.min(0, values[j]) - low) / span);
    bar.style.setProperty("--to", (Math.max(0, values[j]) - low) / span);
    return element("li", { className: j === chosen ? "chosen" : "" }, [element("span", { className: "bar-name" }, [word(l)]), bar, element("span", { className: "bar-value" }, [text(values[j])])]);
  }));
}

// Pieces, those that are whole words as these: an unknown word has its own name.
const named = ({ pieces, words, word: of }) => pieces.map((p, n) => (of[n] >= 0 && of[n] !== of[n - 1] && of[n] !== of[n + 1] ? words[of[n]] ?? p : p));

export function draw_why(reading, matrix, world) {
  const side = state.sides[0], box = $("chain");
  const can = side.kind === "cross" && !reading.past && matrix.weights && matrix.rows.length > 0 && (world.live || reading.why);
  $("why").hidden = !can;
  if (!can) return;
  const pair = pair_of(reading, matrix, side);
  const hint = (text) => (delete box.dataset.key, box.replaceChildren(element("p", { className: "hint" }, [text])));
  if (!reading.why) return world.ask_why(reading), hint("…");
  const terms = reading.why.layers[pair.layer]?.[pair.head];
  if (!terms) return hint("This model’s score has no parts that can be shown.");
  // What is read may have a begin before the words and no end after them.
  const { before = 0 } = reading.why, all = pair.weights.reduce((a, b) => a + b, 0);
  const source = [...Array(before).fill(reading.begin), ...named(reading.source), reading.end].slice(0, terms.values.length);
  const { i } = pair, j = pair.j + before, weights = [...Array(before).fill(1 - all), ...pair.weights];
  const key = JSON.stringify([pair.layer, pair.head, pair.of_mean, pair.first_of, i, j, matrix.rows.length, reading.target.text, reading.source.text, colors().paper, state.words]);
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const target = [...named(reading.target), reading.end];
  const whose = pair.of_mean ? `A mean of heads has no one score; this is head ${pair.head + 1} of layer ${pair.layer + 1}, which weighs the pair most.`
    : pair.first_of > 1 ? `Of heads that are laid over each other the first: head ${pair.head + 1} of layer ${pair.layer + 1}.` : "";
  const which = element("p", {}, ["How much ", name_of(target[i]), " reads ", name_of(source[j]), `: ${exact(weights[j])}`]);
  box.replaceChildren(which, element("p", { className: "hint" }, [whose]), chain(reading, terms, { source, target, i, j, weights: weights.slice(0, source.length) }));
  for (const list of box.querySelectorAll(".long")) reveal(list, list.querySelector(".chosen"));
}

function chain(reading, terms, { i, j, weights, source, target }) {
  const { score, weigh, temperature } = reading.why;
  const parts = score_terms(terms, i, j), scores = source.map((_, n) => score_of(terms, i, n));
  const [asks, offers] = strip_names[score] ?? ["q", "k"];
  const list = element("ol", { className: "chain" });
  let count = 0;
  const q = terms.q[i] ?? [], k = terms.k[j] ?? [], most = largest(q, k);
  if (q.length > 0)
    list.append(link(++count, "Query and key",
      line(name_of(target[i]), ` asks ${asks}`, strip(q, most)), line(name_of(source[j]), ` offers ${offers}`, strip(k, most)),
      element("p", { className: "hint" }, [`${q.length} number${q.length > 1 ? "s" : ""} each; blue above zero, orange below.`])));
  const made = [element("p", {}, [formula(row(below("e", "tj"), op("="), score_formulas[score]?.() ?? id(score), op("="), number(scores[j])))])];
  if (parts.length > 1) {
    const order = parts.map((x, n) => [x, n]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, 5);
    const names = order.map(([, n]) => `${n + 1}`), values = order.map(([x]) => x), more = parts.length > order.length;
    if (more) names.push("others"), values.push(parts.reduce((s, x) => s + x, 0) - values.reduce((s, x) => s + x, 0));
    made.push(element("p", { className: "hint" }, [more ? "The largest of its terms, by their numbers, and the sum of the others:" : "Its terms, by their numbers:"]),
      bars(names, values, -1, (x) => decimals(x, 3)));
  }
  list.append(link(++count, "The score", ...made));
  list.append(link(++count, "The row of scores", bars(source, scores, j, (x) => decimals(x, 2))));
  const hot = scores.map((e) => Math.exp((e - Math.max(...scores)) / temperature)), sum = hot.reduce((a, b) => a + b, 0);
  const soft = weigh === "soft" || weigh === "gumbel";
  const cooled = (inside) => (temperature === 1 ? row(inside) : math_element("mfrac", inside, number(`${temperature}`)));
  const softmax = soft
    ? formula(row(below("α", "tj"), op("="), math_element("mfrac", call("exp", cooled(below("e", "tj"))), row(math_element("msub", op("∑"), id("k")), call("exp", cooled(below("e", "tk"))))),
        op("="), math_element("mfrac", number(hot[j].toPrecision(hot[j] < 1e-3 ? 2 : 4).replace("-", "−")), number(sum.toPrecision(4))), op("="), number(exact(weights[j]))))
    : formula(row(below("α", "tj"), op("="), math_element("msub", call(weigh === "entmax" ? "1.5-entmax" : weigh, below("e", "t")), id("j")), op("="), number(exact(weights[j]))));
  list.append(link(++count, soft ? "Softmax" : "From scores to weights", element("p", {}, [softmax]),
    ...(soft ? [element("p", { className: "hint" }, ["Both are divided by the largest exponential, as computers do."])] : []),
    bars(source, weights.map((w) => w ?? 0), j, (w) => decimals(w, 3))));
  const m = terms.values[0]?.length ?? 0;
  if (m > 0) {
    const read = Array.from({ length: m }, (_, n) => terms.values.reduce((s, v, at) => s + (weights[at] ?? 0) * v[n], 0));
    const top = weights.map((w, at) => [w ?? 0, at]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([w], n) => n === 0 || w >= 0.01);
    const bound = largest(read, ...top.map(([, at]) => terms.values[at]));
    list.append(link(++count, "What is read",
      element("p", {}, [formula(row(below("c", "t"), op("="), math_element("munder", op("∑"), id("j")), below("α", "tj"), below("v", "j")))]),
      ...top.map(([w, at]) => line(`${exact(w)} × `, name_of(source[at]), strip(terms.values[at], bound))),
      line("the mixed value", strip(read, bound)), element("p", { className: "hint" }, [`${m} numbers, on which the next word depends.`])));
  }
  return list;
}
