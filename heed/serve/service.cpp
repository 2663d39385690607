#include "heed/serve/service.h"

#include <algorithm>
#include <ctime>
#include <new>

#include "heed/base/unicode.h"
#include "heed/serve/languages.h"

namespace heed::serve {

using Clock = std::chrono::steady_clock;

namespace {

const std::vector<Route>& routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> out = libretranslate_routes();
    for (Route& r : explain_routes()) out.push_back(std::move(r));
    return out;
  }();
  return all;
}

bool fits(const Route& route, const std::string& path) {
  if (route.path.size() > 1 && route.path.ends_with('/'))
    return path.starts_with(route.path) && path.size() > route.path.size();
  return path == route.path;
}

// The path without the prefix; nothing if it has another.
std::optional<std::string> inner_path(const ServiceOptions& o, const std::string& path) {
  if (!path.starts_with(o.url_prefix)) return std::nullopt;
  const std::string rest = path.substr(o.url_prefix.size());
  if (rest.empty()) return "/";
  if (rest[0] != '/') return std::nullopt;
  return rest;
}

// "[::1]:5000": "::1". What a browser was told the server's name is.
std::string host_name(std::string_view header) {
  if (header.starts_with('[')) return std::string(header.substr(1, header.find(']') - 1));
  return std::string(header.substr(0, header.find(':')));
}

void add_cors(const ServiceOptions& o, Response& r) {
  if (!o.cors) return;
  r.headers.emplace_back("Access-Control-Allow-Origin", *o.cors);
  r.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type");
  r.headers.emplace_back("Access-Control-Expose-Headers", "Authorization");
  r.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST");
  r.headers.emplace_back("Access-Control-Allow-Credentials", "true");
  r.headers.emplace_back("Access-Control-Max-Age", "1728000");
  if (*o.cors != "*") r.headers.emplace_back("Vary", "Origin");
}

struct Found {
  const Route* route = nullptr;
  std::string name = "other";  // for the counters
  Response refusal = {};       // where there is none
};

Found find_route(const Shared& shared, const Request& request) {
  const ServiceOptions& o = shared.options;
  Found out;
  if (!o.hosts.empty()) {
    // A page of somebody else's whose name was made to mean this machine (DNS rebinding).
    const std::string host = host_name(request.header("host"));
    const bool known = std::any_of(o.hosts.begin(), o.hosts.end(), [&](const std::string& name) {
      return !AnyCase()(name, host) && !AnyCase()(host, name);
    });
    if (!known) {
      out.refusal = error_response(
          421, host.empty()
                   ? "The request does not say what server it is for (Host)"
                   : "This server is not '" + host + "'; --allow-host lets it be called so");
      return out;
    }
  }
  const std::optional<std::string> path = inner_path(o, request.path);
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string others;
  for (const Route& r : routes()) {
    if (!path || !fits(r, *path)) continue;
    out.name = r.path;
    if (r.method == method) {
      out.route = &r;
      return out;
    }
    others += (others.empty() ? "" : ", ") + r.method;
  }
  if (others.empty()) {
    out.refusal = error_response(404, "There is nothing at " + request.path);
    return out;
  }
  if (request.method == "OPTIONS") {  // what a browser asks before it asks
    out.refusal = {.status = 200, .type = "text/html; charset=utf-8"};
    add_cors(o, out.refusal);
  } else {
    out.refusal = error_response(405, request.path + " wants " + others);
  }
  out.refusal.headers.emplace_back("Allow", others + ", OPTIONS");
  return out;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

void log(const Shared& shared, const Request& request, int status, double seconds,
         const Call* call) {
  if (!shared.options.log) return;
  nlohmann::ordered_json line{{"time", time_now()},
                              {"method", request.method},
                              {"path", request.path},
                              {"status", status},
                              {"ms", std::round(seconds * 1e5) / 100},
                              {"bytes", request.body.size()},
                              {"peer", request.peer}};
  if (call && call->characters > 0) line["characters"] = call->characters;
  if (shared.options.log_texts && call && !call->text.empty()) line["text"] = call->text;
  shared.options.log(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// A reply that remembers what it was.
class Watched : public Reply {
 public:
  Watched(Reply& inner, const ServiceOptions& options) : inner_(inner), options_(options) {}
  void send(Response r) override {
    finish(r);
    inner_.send(std::move(r));
  }
  void begin(Response head) override {
    finish(head);
    inner_.begin(std::move(head));
  }
  void write(std::string part) override { inner_.write(std::move(part)); }
  void end() override { inner_.end(); }
  bool wanted() const override { return inner_.wanted(); }

  bool begun = false;
  int status = 0;

 private:
  void finish(Response& r) {
    begun = true;
    status = r.status;
    add_cors(options_, r);
    r.headers.emplace_back("X-Content-Type-Options", "nosniff");
  }

  Reply& inner_;
  const ServiceOptions& options_;
};

}  // namespace

Service::Service(Models& models, ServiceOptions options)
    : shared_{.options = std::move(options), .models = models} {}

bool Service::quick(const Request& request) const {
  const Found found = find_route(shared_, request);
  return !found.route || found.route->quick;
}

void Service::refused(int status, const Request& request, Reply& reply, const std::string& words) {
  const Found found = find_route(shared_, request);
  shared_.counters.answered(found.name, status, 0);
  log(shared_, request, status, 0, nullptr);
  Response r = error_response(status, words);
  add_cors(shared_.options, r);
  r.headers.emplace_back("Retry-After", "1");
  reply.send(std::move(r));
}

void Service::answer(const Request& request, Reply& reply, Clock::time_point since) {
  struct UnderWay {
    std::atomic<int64_t>& count;
    ~UnderWay() { --count; }
  } under_way{shared_.under_way};
  ++shared_.under_way;
  Watched watched(reply, shared_.options);
  Call call{.request = request, .reply = watched, .shared = shared_};
  call.deadline = since + shared_.options.time_limit;
  const Found found = find_route(shared_, request);
  const auto refuse = [&](int status, const std::string& words) {
    if (!watched.begun) return watched.send(error_response(status, words));
    // An answer that has begun cannot become another: its last event says it.
    watched.write("event: error\ndata: " + json_line({{"error", words}}) + "\n");
    watched.end();
  };
  try {
    if (!found.route) {
      watched.status = found.refusal.status;
      reply.send(found.refusal);
    } else if (std::optional<Response> response = found.route->answer(call)) {
      watched.send(std::move(*response));
    }
  } catch (const Refusal& refusal) {
    refuse(refusal.status(), refusal.what());
  } catch (const OutOfMemory& error) {
    refuse(503, error.what());
  } catch (const std::bad_alloc&) {
    refuse(503, "out of memory");
  } catch (const std::exception& error) {
    if (!reply.wanted())
      refuse(503, "The client has gone");
    else if (call.late())
      refuse(503, "The translation took longer than the server lets it");
    else
      refuse(500, error.what());
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
  shared_.counters.answered(found.name, watched.status, seconds);
  log(shared_, request, watched.status, seconds, &call);
}

Key Call::admit(const Fields& fields, int64_t cost) {
  const ServiceOptions& o = shared.options;
  std::string key;
  if (const nlohmann::json& given = fields["api_key"]; given.is_string()) key = given;
  constexpr std::string_view kBearer = "Bearer ";
  if (const std::string_view header = request.header("authorization");
      key.empty() && header.starts_with(kBearer))
    key = header.substr(kBearer.size());
  Key limits;
  std::string who = request.peer;
  if (o.trust_forwarded_for)
    if (const std::string_view forwarded = request.header("x-forwarded-for"); !forwarded.empty())
      who = forwarded.substr(0, forwarded.find(','));
  if (o.keys && !key.empty()) {
    const std::optional<Key> known = shared.keys.find(key);
    if (!known) throw Refusal(403, "Invalid API key");
    limits = *known;
    who = "key " + key;
  } else if (o.require_key) {
    throw Refusal(400, "Please contact the server operator to get an API key");
  }
  // A key's own limit is one of a minute; of an hour and a day, where they are limited, as much.
  const auto limit = [&](int64_t everybody, int64_t minutes) -> std::optional<int64_t> {
    if (everybody < 0 && !(limits.requests && minutes == 1)) return std::nullopt;
    const int64_t own = limits.requests.value_or(-1);
    if (limits.requests && own < 0) return std::nullopt;
    return limits.requests ? own * minutes : everybody;
  };
  const Rates rates{.minute = limit(o.req_limit, 1),
                    .hour = limit(o.hourly_req_limit, 60),
                    .day = limit(o.daily_req_limit, 24 * 60)};
  if (const auto passed = shared.rates.take(who, cost, rates))
    throw Refusal(429, "Slowdown: " + *passed);
  return limits;
}

std::shared_ptr<const TextTranslator> Call::model(size_t number) {
  if (const auto used = models.find(number); used != models.end()) return used->second;
  try {
    return models[number] = shared.models.use(number);
  } catch (const std::exception& error) {
    // Its folder is nobody's business but the operator's.
    const LanguagePair& p = shared.models.pairs()[number];
    if (shared.options.log) shared.options.log(nlohmann::json{{"error", error.what()}}.dump());
    throw Refusal(500, "The model from " + p.source + " to " + p.target + " cannot be loaded");
  }
}

void Call::search_as_asked(TranslateOptions& options, const Translator& translator,
                           std::set<std::string> given) const {
  given.insert(shared.options.said.begin(), shared.options.said.end());
  take_search_defaults(options, translator.model(), std::move(given));
}

std::vector<TranslatedText> Call::translate(const std::vector<std::string>& texts,
                                            const std::vector<size_t>& way, TextOptions options,
                                            const std::set<std::string>& given) {
  int64_t asked = 0;
  for (const std::string& t : texts) asked += std::ssize(decode_utf8(t));
  characters += asked;
  if (!texts.empty() && shared.options.log_texts) text = texts.front();
  std::vector<TranslatedText> out;
  if (way.empty()) {  // the same language: as it is
    for (const std::string& t : texts) out.push_back({.text = t, .alternatives = {}});
    return out;
  }
  options.translate.wanted = [this] { return reply.wanted() && !late(); };
  const int64_t alternatives = std::exchange(options.alternatives, 0);
  const int64_t best = std::exchange(options.translate.search.best, 1);
  const SearchOptions search = options.translate.search;
  std::vector<std::string> now = texts;
  for (size_t step = 0; step < way.size(); ++step) {
    const auto translator = model(way[step]);
    options.translate.search = search;
    options.source_language = shared.models.pairs()[way[step]].source;
    if (step + 1 == way.size())
      options.alternatives = alternatives, options.translate.search.best = best;
    search_as_asked(options.translate, translator->translator(), given);
    out.clear();
    // A few at a time, so that whoever asks for little need not wait for who asks for much.
    constexpr size_t kTogether = 64;
    for (size_t at = 0; at < now.size(); at += kTogether) {
      const auto begin = now.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end =
          now.begin() + static_cast<std::ptrdiff_t>(std::min(at + kTogether, now.size()));
      for (TranslatedText& t : translator->translate({begin, end}, options))
        out.push_back(std::move(t));
    }
    int64_t read = 0, written = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      now[i] = out[i].text;
      for (const TranslatedText::Part& part : out[i].parts) {
        read += std::ssize(part.translation.source.ids);
        if (!part.translation.candidates.empty())
          written += std::ssize(part.translation.best().target.ids);
      }
    }
    shared.counters.translated(step == 0 ? asked : 0, read, written);
  }
  return out;
}

std::string wanted_text(const Fields& fields, const std::string& name) {
  const nlohmann::json& value = fields[name];
  if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()))
    throw Refusal(400, "Invalid request: missing " + name + " parameter");
  if (!value.is_string())
    throw Refusal(400, "Invalid request: " + name + " parameter is not a string");
  return value;
}

void check_texts(const Call& call, const std::vector<std::string>& texts, const Key& limits) {
  const auto too_many = [](int64_t given, int64_t limit) {
    throw Refusal(400, "Invalid request: request (" + std::to_string(given) +
                           ") exceeds text limit (" + std::to_string(limit) + ")");
  };
  const ServiceOptions& o = call.shared.options;
  if (o.batch_limit >= 0 && std::ssize(texts) > o.batch_limit)
    too_many(std::ssize(texts), o.batch_limit);
  const int64_t limit = limits.characters.value_or(o.char_limit);
  for (const std::string& text : texts) {
    if (const auto trouble = encoding_trouble(text))
      throw Refusal(400, "Invalid request: a text is " + *trouble);
    if (const int64_t count = std::ssize(decode_utf8(text)); limit >= 0 && count > limit)
      too_many(count, limit);
  }
}

Languages languages_of(Call& call, const std::string& source, const std::string& target,
                       const std::vector<std::string>& texts) {
  Models& models = call.shared.models;
  Languages out;
  if (language_code(source) == "auto") {
    std::string all;
    for (const std::string& t : texts) all += t + "\n";
    const std::vector<std::string> known = models.languages();
    const std::vector<Detected> found =
        has_no_words(all) ? std::vector<Detected>() : detect_languages(all, known);
    // What cannot be told is English, where that is known.
    out.source = found.empty() ? models.find("en").value_or(models.pairs().front().source)
                               : found.front().language;
    out.confidence = found.empty() ? 0 : found.front().confidence;
  } else if (const auto code = models.find(source)) {
    out.source = *code;
  } else {
    throw Refusal(400, language_code(source) + " is not supported");
  }
  const auto code = models.find(target);
  if (!code) throw Refusal(400, language_code(target) + " is not supported");
  out.target = *code;
  const auto way = models.way(out.source, out.target);
  if (!way)
    throw Refusal(400, language_name(out.target) + " (" + out.target +
                           ") is not available as a target language from " +
                           language_name(out.source) + " (" + out.source + ")");
  out.way = *way;
  return out;
}

}  // namespace heed::serve
