// The decoding step by step: what was read at each, what else was likely; and leading it elsewhere.

import { $, element, percent, refill, still, word } from "./dom.js";
import { choose, state } from "./state.js";
import { token_of } from "./reading.js";

const joined = (...parts) => parts.filter((p) => p !== "").join(" ");

// A translation up to (not with) piece t and then a chosen piece, as text.
export function beginning(reading, t, choice) {
  const { pieces, words, word: of } = reading.target;
  const w = t < pieces.length ? of[t] : words.length;
  const before = words.slice(0, w).join(" ");
  const inside = pieces.slice(0, t).filter((_, i) => of[i] === w).join("").replaceAll("▁", "");
  const spaces = [...pieces, choice].some((p) => p.includes("▁"));
  if (!spaces) return joined(before, inside, choice);
  if (choice.startsWith("▁")) return joined(before, inside, choice.slice(1));
  return inside ? joined(before, inside + choice) : before + choice;
}
export const before_step = (reading, t) => reading.target.words.slice(0, t < reading.target.pieces.length ? reading.target.word[t] : Infinity).join(" ");

// Steps are of the first side. What has been chosen is where the page goes on from.
export function go_on(reading, t, choice) {
  if (choice === reading.end) return choose({ prefix: "", forced: before_step(reading, t) }, 0);
  choose({ prefix: beginning(reading, t, choice), forced: "" }, 0);
}

const awaited = () => document.body.classList.contains("waiting");

// The step that is looked at: of the scrubber, else of the chosen word, else where the model was
// least sure.
export function step_of(reading, matrix) {
  const count = reading.target.pieces.length + (reading.ends ? 1 : 0);
  if (state.step >= 0) return Math.min(state.step, count - 1);
  if (state.row >= 0 && state.sides[0].kind !== "encoder" && matrix.rows_of[state.row]) return matrix.rows_of[state.row][0];
  let least = 0, lowest = Infinity;
  reading.candidates.forEach((c, i) => {
    const p = probability_of(c) ?? 1;
    if (p < lowest) (lowest = p), (least = i);
  });
  return Math.min(least, Math.max(0, count - 1));
}
const probability_of = (step) => step?.candidates.find((c) => c.piece === step.piece)?.probability ?? null;

let player = 0;
export function stop_playing() {
  clearTimeout(player);
  player = 0;
  $("play").textContent = "Play";
}
function play(count) {
  if (player) return stop_playing();
  $("play").textContent = "Pause";
  const next = () => {
    const at = state.step < 0 || state.step >= count - 1 ? 0 : state.step + 1;
    choose({ step: at, row: -1, column: -1 });
    player = at === count - 1 ? setTimeout(stop_playing, 0) : setTimeout(next, still() ? 1500 : 700);
  };
  player = setTimeout(next, 0);
}

export function draw_steps(reading, matrix, live) {
  if (reading.waiting && !$("steps").hidden) return; // the last ones keep their room, and cannot be pressed
  const count = reading.target.pieces.length + (reading.ends ? 1 : 0);
  const have = state.sides[0].kind !== "encoder" && !reading.past && count > 0;
  $("steps").hidden = !have;
  if (!have) return;
  const t = step_of(reading, matrix), scrub = $("step");
  scrub.max = count - 1;
  scrub.value = t;
  scrub.disabled = count < 2;
  const go_to = (step) => (stop_playing(), choose({ step, row: -1, column: -1 }));
  scrub.oninput = () => go_to(Number(scrub.value));
  // An end where the slider stands already is a step, too.
  scrub.onkeydown = ({ key }) => (key === "Home" ? go_to(0) : key === "End" && go_to(count - 1));
  $("play").onclick = () => play(count);
  $("all").hidden = state.step < 0;
  $("all").onclick = () => (stop_playing(), choose({ step: -1 }));
  const name = t < reading.target.pieces.length ? reading.target.pieces[t] : reading.end;
  const row = token_of(matrix.rows_of, t);
  const read = row >= 0 && matrix.weights ? matrix.weights[row].map((w, j) => [w ?? 0, matrix.columns[j]]).sort((a, b) => b[0] - a[0]) : [];
  scrub.setAttribute("aria-valuetext", `step ${t + 1} of ${count}, writes ${name}`);
  const said = [`Step ${t + 1} of ${count} writes `, element("b", {}, [word(name)])];
  if (read.length) said.push(", reading ", ...read.slice(0, 3).filter(([w], i) => i === 0 || w >= 0.05).flatMap(([w, label], i) => [i ? ", " : "", element("b", {}, [word(label)]), `\u00a0${w.toFixed(2)}`]));
  $("step-said").replaceChildren(...said, ".");
  draw_candidates(reading, t, live);
}

function draw_candidates(reading, t, live) {
  const step = reading.candidates[t], all = (step?.candidates ?? []).filter((c, i) => i < 8 || c.piece === step.piece);
  const most = Math.max(1e-9, ...all.map((c) => c.probability ?? 0));
  $("else").hidden = all.length === 0;
  refill($("candidates"), all.map((c) => {
    const bar = element("span", { className: "bar", aria: { hidden: "true" } });
    bar.style.setProperty("--share", (c.probability ?? 0) / most);
    const content = [element("span", { className: "candidate" }, [word(c.piece)]), bar, element("span", { className: "share" }, [percent(c.probability)])];
    const written = c.piece === step.piece;
    const press = element(live && !written ? "button" : "span", { className: `choice${written ? " written" : ""}` }, content);
    if (live && !written) {
      press.type = "button";
      press.title = "go on from here";
      press.addEventListener("click", () => awaited() || go_on(reading, t, c.piece));
    }
    return element("li", {}, [press]);
  }));
  $("instead").hidden = !live;
  $("instead").onsubmit = (event) => {
    event.preventDefault();
    const typed = $("other").value.trim();
    if (!typed || awaited()) return;
    $("other").value = "";
    if (typed === reading.end) return go_on(reading, t, typed);
    choose({ prefix: joined(before_step(reading, t), typed), forced: "" }, 0);
  };
  const led = state.sides[0].prefix || state.sides[0].forced;
  $("back").hidden = !live || !led;
  $("back").onclick = () => choose({ prefix: "", forced: "" }, 0);
}
