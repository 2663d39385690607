// LibreTranslate's routes: names, fields, order of checks and words are its own, so that its
// clients find what they know (docs/serve.md).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "heed/base/unicode.h"
#include "heed/serve/documents.h"
#include "heed/serve/embedded.h"
#include "heed/serve/languages.h"
#include "heed/serve/service.h"
#include "heed/serve/spec.h"
#include "heed/view/page.h"

namespace heed::serve {
namespace {

using nlohmann::json;

struct Query {
  std::vector<std::string> texts;
  bool list = false;  // answered by a list
};

// "q": a text or, in JSON, a list of them.
Query query_of(const Fields& fields) {
  const json& q = fields["q"];
  if (!q.is_array()) {
    const std::string text = wanted_text(fields, "q");
    return {{fields.json ? text : with_plain_line_ends(text)}, false};
  }
  if (q.empty()) throw Refusal(400, "Invalid request: missing q parameter");
  Query out{.texts = {}, .list = true};
  for (const json& text : q) {
    if (!text.is_string())
      throw Refusal(400, "Invalid request: q parameter has what is not a string");
    out.texts.push_back(text);
  }
  return out;
}

int64_t alternatives_of(const Fields& fields, const ServiceOptions& o) {
  const json& given = fields["alternatives"];
  if (!fields.values.contains("alternatives")) return 0;
  int64_t count = 0;
  if (given.is_number_integer()) {
    // Beyond 64 bits it is too much as well.
    count = given.is_number_unsigned() && given.get<uint64_t>() > INT64_MAX ? INT64_MAX
                                                                            : given.get<int64_t>();
  } else if (given.is_number() && std::trunc(given.get<double>()) == given.get<double>()) {
    count = static_cast<int64_t>(std::clamp(given.get<double>(), -1., 1e6));  // 3.0 is 3
  } else {
    const std::string text = given.is_string() ? given.get<std::string>() : "none";
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (failed != std::errc() || end != text.data() + text.size())
      throw Refusal(400, "Invalid request: alternatives parameter is not a number");
  }
  // Each is a hypothesis more in the beam: without a limit of the operator's there is one all the
  // same.
  constexpr int64_t kMost = 100;
  const int64_t limit = o.alternatives_limit >= 0 ? o.alternatives_limit : kMost;
  if (count > limit)
    throw Refusal(400,
                  "Invalid request: alternatives parameter must be <= " + std::to_string(limit));
  return std::max<int64_t>(0, count);
}

json detected(const Languages& languages) {
  return {{"confidence", *languages.confidence}, {"language", languages.source}};
}

// Weblate tries every server with "test" from English to German before it uses it, whatever the
// server translates.
bool is_weblate_check(const Call& call, const Query& q, const std::string& source,
                      const std::string& target) {
  const Models& models = call.shared.models;
  return call.shared.options.weblate_check && q.texts == std::vector<std::string>{"test"} &&
         source == "en" && target == "de" && !models.way("en", "de");
}

std::optional<Response> translate(Call& call) {
  const Fields fields = fields_of(call.request);
  const json& q = fields["q"];
  const Key limits = call.admit(fields, q.is_array() ? std::max<int64_t>(1, std::ssize(q)) : 1);
  const Query query = query_of(fields);
  const std::string source = wanted_text(fields, "source");
  const std::string target = wanted_text(fields, "target");
  TextOptions options{.translate = call.shared.options.translate};
  options.alternatives = alternatives_of(fields, call.shared.options);
  check_texts(call, query.texts, limits);
  json out;
  if (is_weblate_check(call, query, source, target)) {
    out["translatedText"] = query.list ? json(query.texts) : json(query.texts[0]);
    return json_response(out);
  }
  const Languages languages = languages_of(call, source, target, query.texts);
  const json& format = fields["format"];
  if (format.is_string() && format == "html") {
    options.format = TextOptions::Format::html;
  } else if (!format.is_null() && !(format.is_string() && (format == "text" || format == ""))) {
    throw Refusal(400, (format.is_string() ? format.get<std::string>() : format.dump()) +
                           " format is not supported");
  }
  const bool want_alternatives = options.alternatives > 0;
  if (options.format == TextOptions::Format::html) options.alternatives = 0;
  const std::vector<TranslatedText> found = call.translate(query.texts, languages.way, options);
  json texts = json::array(), alternatives = json::array(), languages_found = json::array();
  for (const TranslatedText& t : found) {
    texts.push_back(t.text);
    json others = json::array();
    for (const std::string& other : t.alternatives)
      if (!other.empty() && other != t.text) others.push_back(other);
    alternatives.push_back(std::move(others));
    if (languages.confidence) languages_found.push_back(detected(languages));
  }
  out["translatedText"] = query.list ? texts : texts[0];
  if (want_alternatives) out["alternatives"] = query.list ? alternatives : alternatives[0];
  if (languages.confidence)
    out["detectedLanguage"] = query.list ? languages_found : languages_found[0];
  return json_response(out);
}

std::optional<Response> detect(Call& call) {
  const Fields fields = fields_of(call.request);
  const Key limits = call.admit(fields, 1);
  const Query query = query_of(fields);
  check_texts(call, query.texts, limits);
  std::string all;
  for (const std::string& t : query.texts) all += t + "\n";
  json out = json::array();
  if (!has_no_words(all))
    for (const Detected& d : detect_languages(all, call.shared.models.languages()))
      out.push_back({{"confidence", d.confidence}, {"language", d.language}});
  if (out.empty()) out.push_back({{"confidence", 0.0}, {"language", "en"}});
  return json_response(out);
}

std::optional<Response> languages(Call& call) {
  const Models& models = call.shared.models;
  json out = json::array();
  for (const std::string& code : models.languages())
    out.push_back(
        {{"code", code}, {"name", language_name(code)}, {"targets", models.targets(code)}});
  return json_response(out);
}

std::optional<Response> settings(Call& call) {
  const ServiceOptions& o = call.shared.options;
  const std::string target = call.shared.models.pairs().front().target;
  return json_response(
      {{"apiKeys", o.keys},
       {"charLimit", o.char_limit},
       {"filesTranslation", o.files},
       {"frontendTimeout", 500},
       {"keyRequired", o.require_key},
       {"language",
        {{"source", {{"code", "auto"}, {"name", "Auto Detect"}}},
         {"target", {{"code", target}, {"name", language_name(target)}}}}},
       {"suggestions", false},
       {"supportedFilesFormat", o.files ? json(document_kinds()) : json::array()}});
}

std::optional<Response> suggest(Call&) {
  throw Refusal(403, "Suggestions are disabled on this server.");
}
std::optional<Response> health(Call&) { return json_response({{"status", "ok"}}); }
std::optional<Response> spec(Call& call) {
  return Response{.body = spec_of(call.shared.models, call.shared.options)};
}

// The page, and what it loads (view/page.h).
std::optional<Response> page(Call&) {
  return Response{.type = "text/html; charset=utf-8",
                  .body = live_page(),
                  .headers = {{"Content-Security-Policy",
                               std::string(kLivePolicy) + "; frame-ancestors 'none'"}}};
}

std::optional<Response> page_part(Call& call) {
  const std::string& path = call.request.path;
  const std::string name = path.substr(path.rfind('/') + 1);
  const auto content = page_file(name);
  if (!content) throw Refusal(404, "There is nothing at " + path);
  return Response{
      .type = name.ends_with(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8",
      .body = std::string(*content),
      .headers = {{"Cache-Control", "no-cache"}}};
}

// The page as a file, which takes sentences along.
std::optional<Response> offline_page(Call&) {
  return Response{.type = "text/html; charset=utf-8",
                  .body = empty_page(),
                  .headers = {{"Content-Security-Policy", "sandbox; default-src 'none'"}}};
}

// What may stand in a URL's path as it is.
std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    char hex[4];
    std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned char>(c));
    out += plain ? std::string(1, c) : hex;
  }
  return out;
}

// A file's own name: no folders, nothing that a header or a system would stumble over.
std::string safe_name(const std::string& given) {
  std::string out;
  for (const char c : given.substr(given.find_last_of("/\\") + 1))
    out += static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\x7f' ? '_' : c;
  while (out.starts_with('.')) out.erase(0, 1);
  return out;
}

std::optional<Response> translate_file(Call& call) {
  const ServiceOptions& o = call.shared.options;
  Fields fields = fields_of(call.request);
  // A part without a file's name is a text that is given as it is.
  if (const nlohmann::json& text = fields["file"]; text.is_string())
    fields.files.try_emplace("file", Fields::File{"text.txt", text.get<std::string>()});
  const auto given = fields.files.find("file");
  const int64_t bytes = given == fields.files.end() ? 0 : std::ssize(given->second.content);
  call.admit(fields, o.char_limit > 0 ? std::max<int64_t>(1, bytes / o.char_limit) : 1);
  if (!o.files) throw Refusal(403, "Files translation are disabled on this server.");
  const std::string source = wanted_text(fields, "source");
  const std::string target = wanted_text(fields, "target");
  if (given == fields.files.end()) throw Refusal(400, "Invalid request: missing file parameter");
  const std::string name = safe_name(given->second.name);
  if (name.empty()) throw Refusal(400, "Invalid request: empty file");
  const size_t dot = name.rfind('.');
  std::string kind = dot == std::string::npos ? "" : name.substr(dot);
  for (char& c : kind)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (!is_document_kind(kind)) throw Refusal(400, "Invalid request: file format not supported");
  const std::string& content = given->second.content;
  if (const auto trouble = encoding_trouble(content))
    throw Refusal(400, "Invalid request: the file is " + *trouble);
  const Languages languages = languages_of(call, source, target, {content});
  const auto translated = [&](const std::vector<std::string>& texts, TextOptions::Format format) {
    std::vector<std::string> out;
    TextOptions options{.translate = o.translate, .format = format};
    for (TranslatedText& t : call.translate(texts, languages.way, options))
      out.push_back(std::move(t.text));
    return out;
  };
  const std::string made = name.substr(0, dot) + "_" + languages.target + name.substr(dot);
  const std::string key = call.shared.downloads.keep(
      {.name = made, .content = translate_document(kind, content, translated)});
  const bool secure = o.trust_forwarded_for && call.request.header("x-forwarded-proto") == "https";
  return json_response(
      {{"translatedFileUrl", std::string(secure ? "https://" : "http://") +
                                 std::string(call.request.header("host")) + o.url_prefix +
                                 "/download_file/" + percent_encoded(key)}});
}

std::optional<Response> download_file(Call& call) {
  const std::string& path = call.request.path;
  const auto file = call.shared.downloads.find(path.substr(path.rfind('/') + 1));
  if (!file) throw Refusal(404, "Invalid filename");
  return Response{.type = "application/octet-stream",
                  .body = file->content,
                  .headers = {{"Content-Disposition",
                               "attachment; filename*=UTF-8''" + percent_encoded(file->name)}}};
}

std::optional<Response> metrics(Call& call) {
  Shared& shared = call.shared;
  if (shared.options.require_key) {
    constexpr std::string_view kBearer = "Bearer ";
    const std::string_view given = call.request.header("authorization");
    if (!given.starts_with(kBearer) || !shared.keys.find(std::string(given.substr(kBearer.size()))))
      throw Refusal(401, "Unauthorized");
  }
  std::vector<Counters::Gauge> gauges;
  if (shared.options.gauges) gauges = shared.options.gauges();
  gauges.push_back(
      {"heed_requests_under_way", "Requests that are being answered.", double(shared.under_way)});
  std::vector<Counters::Gauge> loaded, steps, sentences, waiting;
  for (size_t i = 0; i < shared.models.pairs().size(); ++i) {
    const LanguagePair& p = shared.models.pairs()[i];
    size_t same = 1;  // of this pair so far
    for (size_t j = 0; j < i; ++j) {
      const LanguagePair& other = shared.models.pairs()[j];
      same += other.source == p.source && other.target == p.target;
    }
    const std::string labels = "{model=\"" + p.source + "-" + p.target +
                               (same > 1 ? ":" + std::to_string(same) : "") + "\"}";
    const auto model = shared.models.loaded(i);
    Engine::Load load;
    if (model) load = model->translator().loaded().engine().load();
    loaded.push_back(
        {"heed_model_loaded", "Whether it is in memory.", model ? 1.0 : 0.0, false, labels});
    steps.push_back({"heed_decoder_steps_total", "Steps of the decoder since it was loaded.",
                     double(load.steps), true, labels});
    sentences.push_back({"heed_decoder_sentences_total",
                         "Sentences in those steps: by steps, how full the batch is.",
                         double(load.sentences), true, labels});
    waiting.push_back({"heed_decoder_waiting", "Sentences that wait to join the batch.",
                       double(load.waiting), false, labels});
  }
  for (auto& group : {loaded, steps, sentences, waiting})
    gauges.insert(gauges.end(), group.begin(), group.end());
  gauges.push_back(
      {"process_resident_memory_bytes", "Memory of the process.", double(resident_bytes())});
  return Response{.type = "text/plain; version=0.0.4; charset=utf-8",
                  .body = shared.counters.text(gauges)};
}

}  // namespace

std::vector<Route> libretranslate_routes() {
  return {{"POST", "/translate", false, translate},
          {"POST", "/detect", false, detect},
          {"GET", "/languages", true, languages},
          {"POST", "/suggest", true, suggest},
          {"GET", "/frontend/settings", true, settings},
          {"GET", "/health", true, health},
          {"GET", "/spec", true, spec},
          {"GET", "/", true, page},
          {"GET", "/web/", true, page_part},
          {"GET", "/view.html", true, offline_page},
          {"POST", "/translate_file", false, translate_file},
          {"GET", "/download_file/", true, download_file},
          {"GET", "/metrics", true, metrics}};
}

}  // namespace heed::serve
