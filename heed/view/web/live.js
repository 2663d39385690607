// What the server is asked: languages, models, translations while they are written.

let key = ""; // an API key, where the server wants one
export const set_key = (given) => (key = given);

async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}
export const ask_settings = () => get("frontend/settings");
export const ask_models = async () => (await get("v1/models")).models;
export const ask_languages = () => get("languages");

// Server-sent events of a body: [name, data], one after the other.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const [name, data] = text.slice(0, end).split("\n");  // "event: ", "data: "
      yield [name.slice(7), JSON.parse(data.slice(6))];
    }
  }
}

// The answer of POST /v1/translate; `partial` is told what is written so far.
export async function ask_translation(question, { signal, partial }) {
  const body = { ...question, stream: true };
  if (key) body.api_key = key;
  const response = await fetch("v1/translate", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The server cannot be reached.");
  });
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream"))
    throw new Error((await response.json()).error ?? `the server said ${response.status}`);
  for await (const [name, data] of events(response.body)) {
    if (name === "partial") partial?.(data);
    else if (name === "translation") return data;
    else throw new Error(data.error ?? "the server ended the translation");
  }
  throw new Error("the server has gone");
}
