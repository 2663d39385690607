// What is chosen, kept in the address so that a link restores it. A change is drawn at the next
// frame, however many there were.

// What the whole page shares ...
const shared = {
  pair: "", text: "", beam: 5, sentence: 0, words: 1, ends: 1, scale: 0,
  row: -1, column: -1, step: -1, gold: "", compare: 0, numbers: 0,
};
// ... and what each side of a comparison chooses: which model, what its translation begins with or
// is (in a file: which reading of the same sentence), and whose weights. layer and head -1: those that align; head "mean" and "max": of all heads.
const side = { model: 0, prefix: "", forced: "", reading: -1, kind: "cross", layer: -1, head: -1, overlay: "", shift: 0 };

export const state = { ...shared, sides: [{ ...side }, { ...side }] };
export const hovered = { row: -1, column: -1 }; // not kept

const listeners = [];
let waiting = false;
export const on_change = (listener) => listeners.push(listener);

export function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const listener of listeners) listener();
  });
}

export function choose(change, of = -1) {
  Object.assign(of < 0 ? state : state.sides[of], change);
  history.replaceState(null, "", address());
  redraw();
}

// Where one looks: at a row, a column, both or neither.
export const looked_at = () =>
  hovered.row >= 0 || hovered.column >= 0 ? hovered : { row: state.row, column: state.column };
export function hover(row, column) {
  if (hovered.row === row && hovered.column === column) return;
  Object.assign(hovered, { row, column });
  redraw();
}
export const pin = (row, column) => choose({ row, column, step: -1 });

// ---- the address

export function address() {
  const out = new URLSearchParams();
  const put = (values, standard, mark) => {
    for (const [name, value] of Object.entries(standard))
      if (values[name] !== value) out.set(name + mark, values[name]);
  };
  put(state, shared, "");
  put(state.sides[0], side, "");
  if (state.compare) put(state.sides[1], side, "2");
  return `#${out}`;
}

// A number where the standard is one; texts stay texts, and so does a head's "mean".
function taken(given, standard) {
  if (given === null) return standard;
  if (typeof standard === "number" && /^-?\d+$/.test(given)) return Number(given);
  return typeof standard === "number" && given !== "mean" && given !== "max" ? standard : given;
}

export function read_address(start = {}) {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries({ ...shared, ...start.shared })) state[name] = taken(asked.get(name), value);
  state.sides.forEach((s, i) => {
    for (const [name, value] of Object.entries({ ...side, ...start.side })) s[name] = taken(asked.get(name + (i ? "2" : "")), value);
  });
}
