// heed's own routes: a translation with where each word came from, what else was considered, and
// words while they appear.
#include <algorithm>
#include <cmath>

#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/models/config.h"
#include "heed/serve/service.h"

namespace heed::serve {
namespace {

using nlohmann::json;

// ---- what is asked

template <class T>
constexpr const char* kind_name() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_integral_v<T>) return "a whole number";
  if constexpr (std::is_floating_point_v<T>) return "a number";
  return "a string";
}

// A field of JSON, if it is there. Throws Refusal for one of another type.
template <class T>
std::optional<T> field(const Fields& fields, const std::string& name) {
  const json& value = fields[name];
  if (value.is_null()) return std::nullopt;
  bool fits = false;
  if constexpr (std::is_same_v<T, bool>)
    fits = value.is_boolean();
  else if constexpr (std::is_integral_v<T>)
    // 3.0 is one, too. Not beyond what any option means.
    fits = value.is_number() && std::abs(value.get<double>()) <= 1e15 &&
           std::trunc(value.get<double>()) == value.get<double>();
  else if constexpr (std::is_floating_point_v<T>)
    fits = value.is_number();
  else
    fits = value.is_string();
  if (!fits) throw Refusal(400, "Invalid request: " + name + " wants " + kind_name<T>());
  return value.get<T>();
}

struct Question {
  std::vector<std::string> texts;
  bool list = false, stream = false, tree = false, candidates = false, self_attention = false;
  bool why = false;
  enum class Which { none, chosen, all } weights = Which::none;
  std::optional<std::string> prefix, forced;
  TextOptions options;
  std::set<std::string> given;  // what it says of the search, by name
};

void read_search(const Fields& fields, const ServiceOptions& limits, Question& out) {
  SearchOptions& s = out.options.translate.search;
  const auto number = [&](const char* name, auto& value, double least, double most) {
    using T = std::remove_reference_t<decltype(value)>;
    const auto given = field<T>(fields, name);
    if (!given) return;
    if (!(double(*given) >= least && double(*given) <= most)) {
      std::ostringstream words;
      words << "Invalid request: " << name << " wants " << least << " to " << most << ", given "
            << *given;
      throw Refusal(400, words.str());
    }
    value = *given;
    out.given.insert(name);
  };
  const double widest = double(std::max(limits.translate.search.beam, limits.beam_limit));
  number("beam", s.beam, 1, widest);
  number("best", s.best, 1, widest);
  s.beam = std::max(s.beam, s.best);
  number("patience", s.patience, 1e-3, 1e6);
  number("normalize", s.normalize, 0, 10);
  number("coverage", s.coverage, 0, 10);
  number("min_length", s.min_length, 0, 10000);
  number("max_ratio", s.max_ratio, 0, 10);
  number("no_repeat", s.no_repeat, 0, 1000);
  number("temperature", s.temperature, 1e-3, 1000);
  number("top_k", s.top_k, 0, 1e9);
  number("top_p", s.top_p, 1e-6, 1);
  int64_t seed = 1;
  number("seed", seed, 0, 1e15);
  s.seed = static_cast<uint64_t>(seed);
  s.sample = field<bool>(fields, "sample").value_or(false);
  if (s.sample && s.best != 1)
    throw Refusal(400, "Invalid request: sample draws one translation; best is for searches");
}

const std::vector<std::string> kFields = {
    "text",           "source",   "target",      "format",   "api_key",    "beam",
    "best",           "patience", "normalize",   "coverage", "min_length", "max_ratio",
    "no_repeat",      "sample",   "temperature", "top_k",    "top_p",      "seed",
    "weights",        "tree",     "candidates",  "prefix",   "forced",     "stream",
    "self_attention", "why",      "model"};

Question question_of(const Fields& fields, const ServiceOptions& limits) {
  if (!fields.json) throw Refusal(415, "A JSON object is wanted, as application/json");
  for (const auto& [name, value] : fields.values.items())
    if (std::find(kFields.begin(), kFields.end(), name) == kFields.end())
      throw Refusal(400, "Invalid request: " + unknown_name("field", name, kFields));
  Question out;
  out.options.translate = limits.translate;
  const json& text = fields["text"];
  out.list = text.is_array();
  if (!out.list) out.texts = {wanted_text(fields, "text")};
  if (out.list && text.empty()) throw Refusal(400, "Invalid request: missing text parameter");
  if (out.list)
    for (const json& one : text) {
      if (!one.is_string()) throw Refusal(400, "Invalid request: text has what is not a string");
      out.texts.push_back(one);
    }
  const std::string format = field<std::string>(fields, "format").value_or("text");
  if (format != "text" && format != "html") throw Refusal(400, format + " format is not supported");
  if (format == "html") out.options.format = TextOptions::Format::html;
  read_search(fields, limits, out);
  out.stream = field<bool>(fields, "stream").value_or(false);
  out.tree = field<bool>(fields, "tree").value_or(false);
  out.candidates = field<bool>(fields, "candidates").value_or(false);
  out.self_attention = field<bool>(fields, "self_attention").value_or(false);
  out.why = field<bool>(fields, "why").value_or(false);
  const std::string weights = field<std::string>(fields, "weights").value_or("none");
  if (weights == "chosen")
    out.weights = Question::Which::chosen;
  else if (weights == "all")
    out.weights = Question::Which::all;
  else if (weights != "none")
    throw Refusal(
        400, "Invalid request: " + unknown_name("weights", weights, {"none", "chosen", "all"}));
  out.prefix = field<std::string>(fields, "prefix");
  out.forced = field<std::string>(fields, "forced");
  const bool one = !out.list && out.options.format == TextOptions::Format::text;
  if ((out.prefix || out.forced) && !one)
    throw Refusal(400, "Invalid request: prefix and forced want one text, a sentence");
  if (out.prefix && out.forced) throw Refusal(400, "Invalid request: prefix or forced, not both");
  for (const auto& given : {out.prefix, out.forced})
    if (given && encoding_trouble(*given)) throw Refusal(400, "Invalid request: not UTF-8");
  if (out.stream && out.list) throw Refusal(400, "Invalid request: stream wants one text");
  return out;
}

// ---- what is answered

// Where the words of a sentence stand in the whole text, in characters (code points).
struct Span {
  int64_t begin = 0, end = 0;
};

int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// A text whose bytes are counted in characters. Asked for places in their order, it reads the text
// once.
class Characters {
 public:
  explicit Characters(std::string_view text) : text_(text) {}
  std::string_view text() const { return text_; }
  int64_t before(size_t byte) {
    count_ += byte >= at_ ? characters_in(text_.substr(at_, byte - at_))
                          : -characters_in(text_.substr(byte, at_ - byte));
    at_ = byte;
    return count_;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t count_ = 0;
};

// One side of a sentence: the whole text, and which bytes of it are the sentence's.
struct Place {
  Characters& whole;
  size_t begin = 0, end = 0;
};

// A word that is not there (it was put in place of something that must not change) stands where
// the one before it ends.
std::vector<Span> spans_of(std::string_view sentence, const Place& place) {
  std::vector<Span> out;
  const std::string_view text = place.whole.text().substr(0, place.end);
  size_t at = place.begin;
  for (const std::string_view word : split_words(sentence)) {
    const size_t found = text.find(word, at);
    const bool there = found != std::string_view::npos;
    const int64_t begin = place.whole.before(there ? found : at);
    if (there) at = found + word.size();
    out.push_back({begin, place.whole.before(at)});
  }
  return out;
}

json side(const Tokenizer& tokenizer, const Sentence& sentence, const std::vector<Span>& spans,
          const Place& place) {
  json words = json::array();
  const auto texts = split_words(sentence.text);
  for (size_t i = 0; i < texts.size(); ++i)
    words.push_back({{"text", texts[i]}, {"begin", spans[i].begin}, {"end", spans[i].end}});
  const int64_t begin = place.whole.before(place.begin);
  return {{"text", sentence.text},
          {"begin", begin},
          {"end", place.whole.before(place.end)},
          {"words", words},
          {"pieces", tokenizer.pieces(sentence.ids)},
          {"piece_words", sentence.word}};
}

// JSON has no infinity: what cannot be has no number.
json number(double value) { return std::isfinite(value) ? json(value) : json(); }

json tree_of(const Tokenizer& target, const std::vector<SearchNode>& tree) {
  json out = json::array();
  for (const SearchNode& n : tree)
    out.push_back({{"piece", target.piece(n.token)},
                   {"parent", n.parent},
                   {"log_probability", number(n.log_probability)},
                   {"score", number(n.score)},
                   {"finished", n.finished},
                   {"best", n.best}});
  return out;
}

// Along the way that won: what might have stood there instead.
json candidates_of(const Tokenizer& target, const std::vector<SearchNode>& tree) {
  json out = json::array();
  for (const SearchNode& n : tree) {
    if (!n.best) continue;
    json all = json::array();
    for (const SearchNode::Candidate& c : n.candidates)
      all.push_back(
          {{"piece", target.piece(c.token)}, {"probability", number(std::exp(c.log_probability))}});
    out.push_back({{"piece", target.piece(n.token)}, {"candidates", all}});
  }
  return out;
}

json layers_json(const std::vector<Weights>& layers) {
  json out = json::array();
  for (const Weights& w : layers) {  // [1, H, rows, columns]
    const std::vector<double> values = w.values.values();
    const Shape shape = w.values.shape();
    json heads = json::array();
    size_t at = 0;
    for (int64_t h = 0; h < shape[1]; ++h) {
      json rows = json::array();
      for (int64_t i = 0; i < shape[2]; ++i) {
        json row = json::array();
        for (int64_t j = 0; j < shape[3]; ++j) row.push_back(static_cast<float>(values[at++]));
        rows.push_back(std::move(row));
      }
      heads.push_back(std::move(rows));
    }
    out.push_back({{"layer", w.layer}, {"heads", std::move(heads)}});
  }
  return out;
}

// Rows of `columns` numbers, in f32: more digits than the model has are for nobody.
json matrix_json(const std::vector<double>& values, int64_t columns) {
  json rows = json::array();
  for (size_t at = 0; columns > 0 && at < values.size(); at += static_cast<size_t>(columns)) {
    json row = json::array();
    for (size_t j = 0; std::cmp_less(j, columns); ++j)
      row.push_back(number(double(static_cast<float>(values[at + j]))));
    rows.push_back(std::move(row));
  }
  return rows;
}

json why_json(const ModelConfig& config, const Translator::Attentions& all) {
  json layers = json::array();
  for (const std::vector<Translator::HeadTerms>& heads : all.terms) {
    json layer = json::array();
    for (const Translator::HeadTerms& h : heads) {
      const int64_t keys = static_cast<int64_t>(h.values.size()) / h.value_size;
      layer.push_back({{"form", h.form},
                       {"scale", h.scale},
                       {"q", matrix_json(h.q, h.size)},
                       {"k", matrix_json(h.k, h.size)},
                       {"v", h.v},
                       {"bias", matrix_json(h.bias, keys)},
                       {"values", matrix_json(h.values, h.value_size)}});
    }
    layers.push_back(std::move(layer));
  }
  return {{"score", config.score},
          {"weigh", config.weigh},
          {"temperature", config.temperature},
          {"before", all.before},
          {"layers", std::move(layers)}};
}

json sentence_json(const Translator& translator, const Translation& t, const Place& source,
                   const Place& target, const Question& q) {
  const TokenizerPair& tokenizers = translator.model().tokenizers;
  const Translation::Candidate& best = t.best();
  const auto from = spans_of(t.source.text, source), to = spans_of(best.target.text, target);
  json out{{"source", side(*tokenizers.source, t.source, from, source)},
           {"target", side(*tokenizers.target, best.target, to, target)},
           {"score", number(best.score)},
           {"log_probability", number(best.log_probability)}};
  if (t.cut) out["cut"] = true;
  if (!best.weights.empty()) {
    const Links links = word_alignment(translator.model(), t.source, best.target, best.weights);
    out["alignment"] = to_pharaoh(links);
    json characters = json::array();
    for (const Link& l : links) {
      const auto s = static_cast<size_t>(l.source), e = static_cast<size_t>(l.target);
      if (s >= from.size() || e >= to.size()) continue;
      characters.push_back(
          {{"source", {from[s].begin, from[s].end}}, {"target", {to[e].begin, to[e].end}}});
    }
    out["characters"] = std::move(characters);
    if (q.weights != Question::Which::none) out["weights"] = best.weights;
  }
  const bool layers = q.weights == Question::Which::all && !best.weights.empty();
  if ((layers || q.self_attention || q.why) && !t.source.ids.empty()) {
    const Translator::Attentions all = translator.attentions(t);
    if (layers) out["layers"] = layers_json(all.cross);
    if (q.why) out["why"] = why_json(translator.model().config, all);
    if (q.self_attention) {
      out["encoder_self"] = layers_json(all.encoder_self);
      out["decoder_self"] = layers_json(all.decoder_self);
    }
  }
  if (q.options.translate.search.best > 1) {
    json all = json::array();
    for (const Translation::Candidate& c : t.candidates)
      all.push_back({{"text", c.text},
                     {"score", number(c.score)},
                     {"log_probability", number(c.log_probability)}});
    out["best"] = std::move(all);
  }
  if (q.tree) out["tree"] = tree_of(*tokenizers.target, t.tree);
  if (q.candidates) out["candidates"] = candidates_of(*tokenizers.target, t.tree);
  return out;
}

json text_json(const Translator& translator, const std::string& source, const TranslatedText& t,
               const Question& q) {
  json sentences = json::array();
  Characters from(source), to(t.text);
  for (const TranslatedText::Part& p : t.parts) {
    if (p.translation.candidates.empty()) continue;
    sentences.push_back(sentence_json(translator, p.translation,
                                      {from, p.source_begin, p.source_end},
                                      {to, p.target_begin, p.target_end}, q));
  }
  return {{"text", t.text}, {"sentences", std::move(sentences)}};
}

// One sentence that must begin with something, or whose translation is given.
TranslatedText sentence(Call& call, const Translator& translator, const Question& q) {
  TranslateOptions o = q.options.translate;
  call.search_as_asked(o, translator, q.given);
  o.wanted = [&call] { return call.reply.wanted() && !call.late(); };
  std::vector<Translation> found;
  if (q.forced) {
    found = translator.score(q.texts, {*q.forced}, o);
  } else {
    o.search.prefixes = {translator.model().tokenizers.target->encode(*q.prefix).ids};
    found = translator.translate(q.texts, o);
  }
  TranslatedText out;
  out.text = found[0].best().text;
  out.parts.push_back({0, q.texts[0].size(), 0, out.text.size(), std::move(found[0]), 0});
  return out;
}

std::string event(const char* name, const json& data) {
  return std::string("event: ") + name + "\ndata: " + json_line(data) + "\n";
}

void begin_stream(Call& call) {
  call.reply.begin({.type = "text/event-stream",
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

std::optional<Response> sent(Call& call, const json& out, const Question& q) {
  if (!q.stream) return json_response(out);
  call.reply.write(event("translation", out));
  call.reply.end();
  return std::nullopt;
}

std::optional<Response> explain(Call& call) {
  const Fields fields = fields_of(call.request);
  const json& text = fields["text"];
  const Key limits =
      call.admit(fields, text.is_array() ? std::max<int64_t>(1, std::ssize(text)) : 1);
  Question q = question_of(fields, call.shared.options);
  const std::string source = wanted_text(fields, "source"), target = wanted_text(fields, "target");
  check_texts(call, q.texts, limits);
  const Languages languages = languages_of(call, source, target, q.texts);
  const std::vector<LanguagePair>& pairs = call.shared.models.pairs();
  const auto asked = field<int64_t>(fields, "model");
  if (asked && (*asked < 0 || std::cmp_greater_equal(*asked, pairs.size())))
    throw Refusal(400, "Invalid request: model wants the number of one of /v1/models, given " +
                           std::to_string(*asked));
  json out{{"source", languages.source}, {"target", languages.target}};
  if (languages.confidence) out["confidence"] = *languages.confidence;
  if (languages.way.empty()) {  // the same language: as it is
    out["translations"] = json::array();
    for (const std::string& same : q.texts)
      out["translations"].push_back({{"text", same}, {"sentences", json::array()}});
    if (q.stream) begin_stream(call);
    return sent(call, out, q);
  }
  // What is explained is the last model's; what it reads is told where it is not the text itself.
  if (languages.way.size() > 1) {
    TextOptions plain{.translate = call.shared.options.translate, .format = q.options.format};
    json pivot = json::array();
    for (TranslatedText& t : call.translate(q.texts, {languages.way[0]}, plain))
      pivot.push_back(t.text);
    q.texts = pivot.get<std::vector<std::string>>();
    out["pivot"] = {{"language", call.shared.models.pairs()[languages.way[0]].target},
                    {"text", q.list ? pivot : pivot[0]}};
  }
  size_t model = languages.way.back();
  if (asked) {
    const LanguagePair& own = pairs[static_cast<size_t>(*asked)];
    if (own.source != pairs[model].source || own.target != pairs[model].target)
      throw Refusal(409, "Invalid request: model wants the number of one of /v1/models from " +
                             pairs[model].source + " to " + pairs[model].target + ", given " +
                             std::to_string(*asked));
    model = static_cast<size_t>(*asked);
  }
  const auto translator = call.model(model);
  SearchOptions& search = q.options.translate.search;
  search.want_weights = has_attention(translator->translator().model().config);
  search.want_tree = q.tree || q.candidates;
  if ((q.why || q.weights != Question::Which::none) && !search.want_weights)
    throw Refusal(409, "Invalid request: weights are wanted of a model that has no attention");
  if (q.self_attention && translator->translator().model().config.family != "transformer")
    throw Refusal(409,
                  "Invalid request: self_attention is wanted of a recurrent model, which reads "
                  "itself by its states; Transformers have it");
  if (q.stream) {
    begin_stream(call);
    const Tokenizer& target_side = *translator->translator().model().tokenizers.target;
    q.options.translate.partial =
        [&call, &target_side, tree = q.tree, before = std::map<size_t, std::string>()](
            size_t line, const std::string& so_far, const std::vector<SearchNode>& grown) mutable {
          const bool same = std::exchange(before[line], so_far) == so_far;
          if (same && (!tree || grown.empty())) return;
          json told{{"sentence", line}, {"text", so_far}};
          if (tree) told["tree"] = tree_of(target_side, grown);
          call.reply.write(event("partial", told));
        };
  }
  json all = json::array();
  if (q.prefix || q.forced) {
    const TranslatedText one = sentence(call, translator->translator(), q);
    call.characters += characters_in(q.texts[0]);
    all.push_back(text_json(translator->translator(), q.texts[0], one, q));
  } else {
    const std::vector<TranslatedText> found = call.translate(q.texts, {model}, q.options, q.given);
    for (size_t i = 0; i < found.size(); ++i)
      all.push_back(text_json(translator->translator(), q.texts[i], found[i], q));
  }
  out["translations"] = std::move(all);
  return sent(call, out, q);
}

std::optional<Response> models(Call& call) {
  const Models& all = call.shared.models;
  json out = json::array();
  for (size_t i = 0; i < all.pairs().size(); ++i) {
    const LanguagePair& p = all.pairs()[i];
    json one{{"source", p.source}, {"target", p.target}, {"loaded", all.loaded(i) != nullptr}};
    // What it is made of; one that was taken away since is found out by who asks for it.
    try {
      const ModelConfig config = read_model_config(p.folder);
      one["family"] = config.family;
      one["score"] = config.score;
    } catch (const std::exception&) {
    }
    out.push_back(std::move(one));
  }
  return json_response({{"models", out}});
}

}  // namespace

std::vector<Route> explain_routes() {
  return {{"POST", "/v1/translate", false, explain}, {"GET", "/v1/models", true, models}};
}

}  // namespace heed::serve
