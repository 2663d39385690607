// Two lines of words and ribbons between them, as thick as the weights. A row's ribbons are one
// word thick together, since its weights sum to one; where a word is read by many, they narrow
// towards it. Several heads lie side by side, each in its colour.

import { colors, head_color, shade } from "./palette.js";
import { element, still } from "./dom.js";
import { draw_line, extents, fit } from "./lines.js";
import { raster } from "./raster.js";

const weakest = 0.004, most_of_row = 14; // what is thinner is not drawn
const most_at_rest = 1600, most_in_motion = 360; // ribbons, so that a frame is in time
const move_time = 260; // ms

export const make_ribbons = () => {
  const figure = element("div", { className: "ribbons" }, [
    element("div", { className: "line source", role: "group" }),
    element("div", { className: "between" }, [element("canvas", { aria: { hidden: "true" } })]),
    element("div", { className: "line target", role: "group" }),
  ]);
  figure.motion = { from: null, to: null, begin: 0, frame: 0 };
  return figure;
};

// At most so many of [weight, ...], none of equals left out while another is drawn; all, if all are
// equal.
export function strongest(list, most) {
  if (list.length <= most) return list;
  const least = list.map(([w]) => w).sort((a, b) => b - a)[most], kept = list.filter(([w]) => w > least);
  return kept.length > 0 ? kept : list;
}

// The ribbons of some heads, [{ weights, whole }], between words at these places. Each is [row,
// column, head, weight and the eight numbers of its shape].
export function ribbon_shapes(heads, rows, columns, { down, length, most = most_at_rest }) {
  const links = [], each = Math.max(1, Math.min(most_of_row, Math.floor(most / (rows.length * heads.length))));
  heads.forEach(({ weights, whole }, h) => weights.forEach((row, i) => {
    const kept = row.map((w, j) => [Math.min(1, (w ?? 0) / whole[i]), j]).filter(([w]) => w > weakest);
    for (const [w, j] of strongest(kept, each)) links.push({ i, j, h, w });
  }));
  const middle = ([a, b]) => (a + b) / 2, size = ([a, b]) => b - a;
  const thick = Math.min(26, ...rows.map((r) => size(r) * 0.8)) / heads.length;
  const sum_of = (key, count) => {
    const sums = new Array(count).fill(0);
    for (const l of links) sums[l[key]] += l.w * thick;
    return sums;
  };
  const in_row = sum_of("i", rows.length), in_column = sum_of("j", columns.length);
  const narrow = in_column.map((sum, j) => (sum > size(columns[j]) * 0.9 ? (size(columns[j]) * 0.9) / sum : 1));
  const row_at = rows.map((r, i) => middle(r) - in_row[i] / 2);
  const column_at = columns.map((c, j) => middle(c) - (in_column[j] * narrow[j]) / 2);
  // Ends lie in the order of the words at their other ends, so that ribbons of a word do not cross.
  const by_column = [...links].sort((a, b) => a.h - b.h || middle(columns[a.j]) - middle(columns[b.j]));
  for (const l of by_column) (l.t0 = row_at[l.i]), (l.t1 = row_at[l.i] += l.w * thick);
  const by_row = [...links].sort((a, b) => a.h - b.h || middle(rows[a.i]) - middle(rows[b.i]));
  for (const l of by_row) (l.s0 = column_at[l.j]), (l.s1 = column_at[l.j] += l.w * thick * narrow[l.j]);
  for (const l of links) l.shape = down ? [l.s0, 0, l.s1, 0, l.t1, length, l.t0, length] : [0, l.s0, 0, l.s1, length, l.t1, length, l.t0];
  return links;
}

// As shapes of a scene: those that are looked at above the others, in few colours so that thousands
// take few calls.
export function ribbon_scene(links, { heads, look, dim, down }) {
  const some = look.row >= 0 || look.column >= 0;
  const groups = new Map();
  for (const l of links) {
    const lit = some && (look.row < 0 || l.i === look.row) && (look.column < 0 || l.j === look.column);
    const share = shade(l.w), step = Math.ceil(share * 5) / 5;
    const ahead = l.i > dim;
    const alpha = ahead ? 0.05 : some && !lit ? 0.05 + 0.13 * step : 0.2 + 0.65 * step;
    const fill = heads > 1 ? head_color(l.h) : lit ? colors().lit : colors().ink;
    const key = `${lit ? 1 : 0} ${fill} ${alpha}`;
    if (!groups.has(key)) groups.set(key, { lit, ribbons: [], fill, alpha, down });
    groups.get(key).ribbons.push(l.shape);
  }
  return [...groups.values()].sort((a, b) => a.lit - b.lit || a.alpha - b.alpha);
}

// Rows and columns as far as `share` of the way between two matrices of the same words.
const between = (from, to, share) => to.map((head, h) => ({
  whole: head.whole,
  weights: head.weights.map((row, i) => row.map((w, j) => {
    const before = from?.[h]?.weights[i]?.[j] ?? 0;
    return before + ((w ?? 0) - before) * share;
  })),
}));

// `matrices`: one, or one for each head. `target_extra`: what pressing a target word does.
export function draw_ribbons(figure, { matrices, key, look, dim, forced, names, on_row, waiting }) {
  const [source, frame, target] = figure.children, canvas = frame.firstChild;
  const { rows, columns } = matrices[0];
  const room = waiting ? [...rows, ...columns.slice(rows.length)] : rows;
  const { down, size } = fit([columns, room], figure.clientWidth);
  figure.classList.toggle("down", down);
  figure.style.setProperty("--size", `${size}px`);
  draw_line(source, { labels: columns, axis: "column", name: names.columns });
  draw_line(target, { labels: rows, axis: "row", name: names.rows, grey: dim, forced, on_press: on_row });
  const motion = figure.motion;
  const to = matrices[0].weights ? matrices : [];
  if (motion.key !== key) {
    // Between matrices of the same words weights move; others grow from nothing.
    const words = (m) => `${m?.rows.join("\n")}\n\n${m?.columns.join("\n")}`;
    motion.from = motion.to && words(motion.to[0]) === words(to[0]) ? motion.to : null;
    Object.assign(motion, { key, to, begin: performance.now() });
  }
  const box = frame.getBoundingClientRect();
  const length = down ? box.width : box.height;
  const places = { rows: extents(target, frame, down), columns: extents(source, frame, down) };
  // Words may stand on one side of the frame while ribbons lie inside it.
  const step = (now) => {
    const share = still() ? 1 : Math.min(1, (now - motion.begin) / move_time);
    const eased = 1 - (1 - share) ** 3;
    const heads = share < 1 ? between(motion.from, to, eased) : to;
    const links = heads.length ? ribbon_shapes(heads, places.rows, places.columns, { down: !down, length, most: share < 1 ? most_in_motion : most_at_rest }) : [];
    figure.scene = () => whole_scene(figure, { links, heads: heads.length, look, dim, down, size });
    raster(canvas, ribbon_scene(links, { heads: heads.length, look, dim, down: !down }), { width: box.width, height: box.height, down: !down, paper: colors().paper });
    motion.frame = share < 1 ? requestAnimationFrame(step) : 0;
  };
  cancelAnimationFrame(motion.frame);
  step(performance.now());
}

// With its words, to be taken along.
function whole_scene(figure, { links, heads, look, dim, down, size }) {
  const box = figure.getBoundingClientRect(), frame = figure.children[1].getBoundingClientRect();
  const [x, y] = [frame.left - box.left, frame.top - box.top];
  const moved = links.map((l) => ({ ...l, shape: l.shape.map((v, i) => v + (i % 2 ? y : x)) }));
  const words = [...figure.querySelectorAll(".token")].map((item) => {
    const b = item.getBoundingClientRect();
    return {
      text: item.dataset.label, size, fill: colors().text, anchor: "middle",
      x: (b.left + b.right) / 2 - box.left, y: (b.top + b.bottom) / 2 - box.top + size * 0.33,
    };
  });
  return {
    width: box.width, height: box.height, name: "Attention between two sentences",
    shapes: [{ rect: [0, 0, box.width, box.height], fill: colors().paper }, ...ribbon_scene(moved, { heads, look, dim, down: !down }), ...words],
  };
}
