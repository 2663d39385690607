// The beam as a tree. The winner is the straight line on top; what else was kept hangs below the
// word where it forked, late forks above early ones, so that no two lines cross. Numbers are the
// scores that decide: log probabilities divided as the search divides them. Words along which
// nothing happens, and ways that ended at once, are folded; every word is a place to go on from.

import { $, decimals, direction, element, label_of, large, refill, roving, word } from "./dom.js";
import { choose, state } from "./state.js";
import { text_width } from "./scene.js";
import { colors } from "./palette.js";

const pad = 12, fork = 22, longest_run = 4, least_fold = 3, many = 10, trunk = 3; // where first words fork
let size = 15, row_height = 26; // as page.css has them
const open = new Set(); // of folded places, by node
let shown = null, drawn = ""; // the tree that they are of, and what of it is on screen

// Children by node, the winner's way first, then by score.
function branches(tree) {
  const children = tree.map(() => []), roots = [];
  tree.forEach((n, i) => (n.parent < 0 ? roots : children[n.parent]).push(i));
  const depth = [];
  tree.forEach((n, i) => (depth[i] = n.parent < 0 ? 0 : depth[n.parent] + 1));
  const score = (i) => tree[i].score ?? tree[i].log_probability / (depth[i] + 1);
  const order = (a, b) => tree[b].best - tree[a].best || score(b) - score(a);
  for (const list of [roots, ...children]) list.sort(order);
  // How long the longest way below a node is, and whether one of them ended as a translation.
  const height = tree.map(() => 1), ends = tree.map((n) => n.finished);
  for (let i = tree.length - 1; i >= 0; --i)
    if (tree[i].parent >= 0) {
      const p = tree[i].parent;
      height[p] = Math.max(height[p], height[i] + 1);
      ends[p] ||= ends[i];
    }
  return { children, roots, depth, score, height, ends };
}

const text_of = (tree, node) => {
  const pieces = [];
  for (let i = node; i >= 0; i = tree[i].parent) pieces.unshift(tree[i].piece);
  return pieces.some((p) => p.includes("▁")) ? pieces.join("").replaceAll("▁", " ").trim() : pieces.join(" ");
};

// Places of words and of folds, lane by lane; and the lines that join lanes.
function lay_out(tree, narrow) {
  const b = branches(tree), words = [], joints = [];
  const folds = tree.length > many * 2, deepest = Math.max(...b.depth);
  let lanes = 0;
  // Of the ways that leave a node's first: those that ended at once, which are folded, and the others.
  const leaving = (node) => {
    const rest = b.children[node].slice(1);
    const shut = folds && !open.has(node) ? rest.filter((c) => b.height[c] < 2 && !b.ends[c] && b.depth[c] < deepest) : [];
    return { shut, shown: rest.filter((c) => !shut.includes(c)) };
  };
  // Nothing happens at a word that leads to one other only.
  const happens = (node) => tree[node].finished || b.children[node].length === 0 || leaving(node).shown.length > 0;
  const lane_of = (from, x, joint) => {
    const lane = lanes++, forks = [];
    if (joint) joints.push({ ...joint, lane });
    let run = 0; // words since something happened
    for (let node = from; node !== undefined; ) {
      run = node === from || happens(node) ? 0 : run + 1;
      if (folds && run > (narrow ? 0 : longest_run) && !open.has(`r${node}`)) {
        const nodes = [];
        for (let n = node; !happens(n); n = b.children[n][0]) nodes.push(n);
        if (nodes.length >= least_fold) {
          words.push({ x, lane, folded: nodes.length, node, width: 40, depth: b.depth[node] });
          x += 40 + pad;
          node = b.children[nodes.at(-1)][0];
          continue;
        }
      }
      if (open.has(`r${node}`)) run = -Infinity; // unfolded up to where something happens
      const { shut, shown } = leaving(node), next = b.children[node][0];
      const { piece, best, finished } = tree[node], width = Math.min(200, text_width(piece, size, "serif", best ? 600 : 400));
      const here = { x, lane, node, piece, width, best, finished, more: shut.length, depth: b.depth[node] };
      words.push(here);
      const end = x + width;
      x = end + pad + (shut.length ? 34 : 0);
      if (shown.length) forks.push({ from: end + 4, children: shown });
      if (next === undefined || finished) here.score = b.score(node);
      node = finished ? undefined : next;
    }
    // Late forks first: their lanes lie above.
    for (const f of forks.reverse()) for (const child of f.children) lane_of(child, f.from + fork, { x: f.from, from: lane, depth: b.depth[child] });
  };
  const first = b.roots.length > 1 ? trunk + 10 : 8;
  b.roots.forEach((root, i) => lane_of(root, i ? trunk + fork : first, i ? { x: trunk, from: 0, depth: 0 } : null));
  return { words, joints, lanes };
}

// While it grows, what was there before keeps its room, so nothing below moves.
export function draw_tree(reading, live) {
  const tree = reading.tree, growing = reading.waiting;
  if (growing && tree.length < 2) return;
  $("beam-tree").hidden = tree.length < 2;
  if (tree.length < 2) return;
  if (shown !== tree) (shown = tree), open.clear(), (drawn = "");
  const key = JSON.stringify([tree.length, growing, state.step, [...open], live, innerWidth]);
  if (drawn === key) return;
  drawn = key;
  [size, row_height] = large() ? [18, 30] : [15, 26];
  $("tree").style.minHeight = growing ? `${$("tree").clientHeight}px` : "";
  const { words, joints, lanes } = lay_out(tree, $("tree").parentElement.clientWidth < 480);
  const width = Math.max(...words.map((w) => w.x + w.width + (w.score !== undefined ? 5 * size : 24))), height = lanes * row_height + 8;
  // Of a translation from right to left, so does the tree.
  const box = $("tree"), back = direction(tree.filter((n) => n.best).map((n) => n.piece)) === "rtl";
  const across = (x) => (back ? width - x : x), way = back ? -1 : 1;
  box.dir = back ? "rtl" : "ltr";
  box.parentElement.dir = back && width > box.parentElement.clientWidth ? "rtl" : "ltr"; // begins in sight
  box.style.width = `${width}px`, box.style.height = `${height}px`;
  const y = (lane) => lane * row_height + row_height / 2 + 2;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", width), svg.setAttribute("height", height), svg.setAttribute("aria-hidden", "true");
  const sharp = (x) => Math.floor(across(x)) + 0.5, begins = (j) => (j.x === trunk ? `M${sharp(j.x) + 7 * way} ${y(0)}h${-7 * way}` : `M${sharp(j.x)} ${y(j.from) + 6}`);
  const lines = joints.map((j) => `${begins(j)}V${y(j.lane) - 7}q0 7 ${7 * way} 7h${(fork - 12) * way}`);
  const not_yet = (depth) => state.step >= 0 && depth > state.step;
  lines.forEach((d, i) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", d), path.setAttribute("class", not_yet(joints[i].depth) ? "joint ahead" : "joint");
    svg.append(path);
  });
  const placed = (item, w) => {
    item.style[back ? "right" : "left"] = `${w.x}px`, item.style.top = `${w.lane * row_height}px`;
    return item;
  };
  const items = words.map((w) => {
    const late = not_yet(w.depth) ? " ahead" : "";
    const fold = (key, text, what) => element("button", { type: "button", className: `fold${late}`, title: what, aria: { label: `unfold ${what}` }, on: { click: () => (open.add(key), choose({})) } }, [text]);
    if (w.folded) return placed(fold(`r${w.node}`, `⋯${w.folded}`, `${w.folded} words`), w);
    const score = w.score === undefined ? [] : [element("span", { className: "score" }, [decimals(w.score, 3)])];
    const more = w.more ? [fold(w.node, `+${w.more}`, `${w.more} more`)] : [];
    const can = live && !w.finished;
    const name = element(can ? "button" : "span", { className: "node" }, [word(w.piece)]);
    if (can) {
      name.type = "button";
      name.title = `go on from “${label_of(text_of(tree, w.node))}”`;
      name.addEventListener("click", () => growing || choose({ prefix: text_of(tree, w.node), forced: "", row: -1, column: -1, step: -1 }, 0));
    }
    return placed(element("span", { className: `place${w.best ? " best" : ""}${w.finished ? " finished" : ""}${late}` }, [name, ...more, ...score]), w);
  });
  refill(box, [svg, ...items]);
  const buttons = [...box.querySelectorAll("button")];
  roving(box, buttons, Math.max(0, buttons.indexOf(document.activeElement)));
  box.scene = (c = colors()) => ({
    width, height, name: "The beam as a tree",
    shapes: [
      { rect: [0, 0, width, height], fill: c.paper }, ...lines.map((path) => ({ path, stroke: c.quiet, width: 1 })),
      ...words.map((w) => ({ text: w.folded ? `⋯${w.folded}` : w.piece, x: across(w.x), y: y(w.lane) + 5, size, fill: w.best ? c.text : c.quiet, weight: w.best ? 600 : 400, anchor: back ? "end" : "start" })),
      ...words.filter((w) => w.more).map((w) => ({ text: `+${w.more}`, x: across(w.x + w.width + 6), y: y(w.lane) + 5, size: 12, face: "sans", fill: c.quiet, anchor: back ? "end" : "start" })),
      ...words.filter((w) => w.score !== undefined).map((w) => ({ text: decimals(w.score, 3), x: across(w.x + w.width + 8), y: y(w.lane) + 5, size: 12, face: "sans", fill: c.quiet, anchor: back ? "end" : "start" })),
    ],
  });
}
