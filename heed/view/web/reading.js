// A translated sentence as it is shown: tokens of both sides, and weights of any attention. Made of
// what POST /v1/translate answers or, the same, of what a file holds.

const begin_mark = "<s>", end_mark = "</s>";

const half = (given) => ({
  text: given.text ?? (given.words ?? given.pieces).map((w) => w.text ?? w).join(" "),
  pieces: given.pieces,
  words: (given.words ?? given.pieces).map((w) => w.text ?? w),
  word: given.piece_words ?? given.pieces.map((_, i) => i), // of each piece
});

export function reading_of(sentence) {
  const kinds = {
    cross: sentence.layers ?? (sentence.weights ? [{ layer: 0, heads: [sentence.weights] }] : []),
    encoder: sentence.encoder_self ?? [],
    decoder: sentence.decoder_self ?? [],
  };
  return {
    source: half(sentence.source), target: half(sentence.target), kinds,
    chosen: sentence.weights ?? null, // of the head that aligns, at its step
    log_probability: sentence.log_probability ?? null, score: sentence.score ?? null,
    candidates: sentence.candidates ?? [], tree: sentence.tree ?? [], best: sentence.best ?? [],
    gold: sentence.gold ?? null, why: sentence.why ?? null,
    ends: sentence.ends ?? true,
    // Some models read no end: then it reads nothing itself.
    source_ends: !kinds.encoder[0]?.heads[0]?.at(-1)?.every((w) => w === 0),
    begin: sentence.begin ?? begin_mark, end: sentence.end ?? end_mark,
    past: sentence.past ?? false, // a language model's: columns are what it has said
    waiting: sentence.waiting ?? false, note: sentence.note ?? "", cut: sentence.cut ?? false, number: sentence.number ?? null,
    model: sentence.model ?? "",
  };
}

export const kind_names = {
  cross: "target reads source", encoder: "source reads itself", decoder: "target reads its past",
};
export const layers_of = (reading, side) => reading.kinds[side.kind] ?? [];

// Which layer and head a side shows, as they are there to be shown.
export function shown_head(reading, side) {
  const layers = layers_of(reading, side);
  if (side.kind === "cross" && side.layer < 0 && side.head === -1 && reading.chosen) return { layer: -1, head: -1 };
  const layer = side.layer < 0 ? layers.length - 1 : Math.min(side.layer, layers.length - 1);
  const heads = layers[layer]?.heads.length ?? 0;
  if (side.head === "max" || side.head === "mean") return { layer, head: heads > 1 ? side.head : 0 };
  return { layer, head: side.head < 0 ? (heads > 1 ? "mean" : 0) : Math.min(side.head, heads - 1) };
}

// [rows][columns] of a head, or of all heads of its layer joined.
export function rows_of(reading, side, { layer, head } = shown_head(reading, side)) {
  if (layer === -1 && head === -1) return reading.chosen;
  const heads = layers_of(reading, side)[layer]?.heads;
  if (!heads) return null;
  if (head !== "mean" && head !== "max") return heads[head];
  return heads[0].map((row, i) => row.map((_, j) => {
    const all = heads.map((h) => h[i][j]);
    if (all.includes(null)) return null;
    return head === "max" ? Math.max(...all) : all.reduce((a, b) => a + b) / all.length;
  }));
}

// The tokens of one side of a matrix: pieces, or words joined of them; the end, where it is shown.
// `of` has for each token the pieces that it is made of.
function tokens(half_side, { joined, end, begin }) {
  const out = { labels: [], of: [] };
  if (begin) out.labels.push(begin), out.of.push([0]);
  const first = begin ? 1 : 0;
  half_side.pieces.forEach((piece, i) => {
    const w = half_side.word[i];
    if (joined && i > 0 && w >= 0 && w === half_side.word[i - 1]) return out.of.at(-1).push(i + first);
    out.labels.push(joined && w >= 0 ? half_side.words[w] ?? piece : piece);
    out.of.push([i + first]);
  });
  if (end) out.labels.push(end), out.of.push([half_side.pieces.length + first]);
  return out;
}

export function sides_of(reading, side, { words, ends }) {
  const whole = { joined: words, end: ends && reading.ends ? reading.end : null };
  const source = tokens(reading.source, reading.source_ends ? whole : { ...whole, end: null }), target = tokens(reading.target, reading.waiting ? { ...whole, end: null } : whole);
  if (side.kind === "encoder") return { rows: source, columns: source };
  if (side.kind !== "decoder") return { rows: target, columns: source };
  // What a step has read of the target: the begin mark, and every word before.
  return { rows: target, columns: tokens(reading.target, { joined: words, begin: reading.begin, end: null }) };
}

// The matrix that is drawn: labels, weights row by row (null: none), and what a row's darkest is.
// A word that joins pieces adds up columns and has the mean of rows. shift: rows are those of so
// many steps later; the last ones, which have none, stay.
const made = new WeakMap(); // of a reading: its matrices, which all views share
export function matrix_of(reading, side, options, head = shown_head(reading, side)) {
  if (!made.has(reading)) made.set(reading, new Map());
  const known = made.get(reading), key = JSON.stringify([side.kind, side.shift, head, options]);
  if (!known.has(key)) known.set(key, new_matrix(reading, side, options, head));
  return known.get(key);
}
function new_matrix(reading, side, options, head) {
  const { rows, columns } = sides_of(reading, side, options);
  const given = rows_of(reading, side, head);
  const out = {
    rows: rows.labels, columns: columns.labels, rows_of: rows.of, columns_of: columns.of,
    weights: null, whole: [],
  };
  if (!given || given.length === 0) return out;
  const aligning = head.layer === -1 && head.head === -1; // these are at their step already
  const shift = side.kind === "cross" && !aligning ? side.shift : 0;
  const later = (i) => given[Math.min(i + shift, given.length - 1)];
  out.weights = rows.of.map((pieces) => columns.of.map((of) => {
    let sum = 0;
    for (const i of pieces) for (const j of of) {
      const w = later(i)?.[j];
      if (w === null || w === undefined) return later(i) && j >= later(i).length ? 0 : null;
      sum += w;
    }
    return sum / pieces.length;
  }));
  out.whole = out.weights.map((row) => (options.scale ? Math.max(1e-9, ...row.map((w) => w ?? 0)) : 1));
  return out;
}

// Which token of a side a piece is in.
export const token_of = (of, piece) => of.findIndex((pieces) => pieces.includes(piece));

// "0-0 1p2": links between words, as Pharaoh files have them; as pairs of tokens that are shown.
export function links_of(text, matrix, reading) {
  const out = [];
  for (const [, s, kind, t] of `${text}`.matchAll(/(\d+)([-p])(\d+)/g)) {
    const column = matrix.columns_of.findIndex((of) => reading.source.word[of[0]] === Number(s));
    const row = matrix.rows_of.findIndex((of) => reading.target.word[of[0]] === Number(t));
    const all = (list, word, number) => list.flatMap((of, k) => (of[0] < word.length && word[of[0]] === number ? [k] : []));
    if (row < 0 || column < 0) continue;
    for (const i of all(matrix.rows_of, reading.target.word, Number(t)))
      for (const j of all(matrix.columns_of, reading.source.word, Number(s))) out.push({ row: i, column: j, sure: kind === "-" });
  }
  return out;
}
