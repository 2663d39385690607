// What a server answers, by routes: LibreTranslate's (libretranslate.cpp) and heed's own
// (explain.cpp). No sockets here.
//
// Threads: answer() may be called from any number at once; it takes as long as translating does.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heed/serve/access.h"
#include "heed/serve/counters.h"
#include "heed/serve/downloads.h"
#include "heed/serve/fields.h"
#include "heed/serve/message.h"
#include "heed/serve/models.h"

namespace heed::serve {

struct ServiceOptions {
  TranslateOptions translate = {};
  // Names of its search options that hold whatever a model's makers have (SearchDefaults).
  std::set<std::string> said = {};
  // Limits as LibreTranslate has them; -1: none.
  int64_t char_limit = -1;   // characters of a text
  int64_t batch_limit = -1;  // texts of a request
  // Requests a minute, an hour and a day, of a key or an address.
  int64_t req_limit = -1, hourly_req_limit = -1, daily_req_limit = -1;
  int64_t alternatives_limit = 10;
  int64_t beam_limit = 20;                        // what /v1/translate may ask for
  std::chrono::milliseconds time_limit{600'000};  // of a request
  bool keys = false, require_key = false;         // keys are known; a request needs one
  bool files = true;                              // /translate_file
  bool weblate_check = true;  // Weblate's trial, "test" from en to de, is answered wherever
  bool trust_forwarded_for = false;
  bool log_texts = false;
  std::string url_prefix = {};                       // "/x": before all paths
  std::optional<std::string> cors = "*";             // who may ask from a browser; none: nobody
  std::vector<std::string> hosts = {};               // the Host headers that are served; none: any
  std::function<void(const std::string&)> log = {};  // a line for each answer
  std::function<std::vector<Counters::Gauge>()> gauges = {};  // of the server around it
};

// What all routes share.
struct Shared {
  const ServiceOptions options;
  Models& models;
  Keys keys = {};
  RateLimit rates = {};
  Counters counters = {};
  Downloads downloads = {};
  std::atomic<int64_t> under_way = 0;
};

// A request on its way to an answer.
struct Call {
  const Request& request;
  Reply& reply;
  Shared& shared;
  std::chrono::steady_clock::time_point deadline = {};
  int64_t characters = 0;  // that were translated
  std::string text = {};   // the first of them, for --log-texts

  bool late() const { return std::chrono::steady_clock::now() > deadline; }
  // From one language to another, by the models between them; counts, and keeps to the deadline.
  // Throws Refusal.
  std::vector<TranslatedText> translate(const std::vector<std::string>& texts,
                                        const std::vector<size_t>& way, TextOptions options,
                                        const std::set<std::string>& given = {});
  // The search of the model's makers, but for what the server's flags and the request have `given`.
  void search_as_asked(TranslateOptions& options, const Translator& translator,
                       std::set<std::string> given) const;
  // Loaded, if it was not; the same one as long as the call lasts. Throws Refusal.
  std::shared_ptr<const TextTranslator> model(size_t number);
  std::map<size_t, std::shared_ptr<const TextTranslator>> models = {};  // that it has used
  // Whether the key that comes with the request, or its address, may ask for so much. Its limits;
  // throws Refusal.
  Key admit(const Fields& fields, int64_t cost);
};

class Service {
 public:
  Service(Models& models, ServiceOptions options);

  // Whether it takes no time: nothing is translated.
  bool quick(const Request& request) const;
  // Never throws; always answers.
  void answer(const Request& request, Reply& reply,
              std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now());
  Shared& shared() { return shared_; }
  // Answers that something around it gave, or refused to.
  void refused(int status, const Request& request, Reply& reply, const std::string& words);

 private:
  Shared shared_;
};

// ---- for the files that have routes

// Sends what a route returns; nothing, if it has answered by itself.
struct Route {
  std::string method, path;  // a path that ends with "/" has others below it, but for "/" itself
  bool quick = false;
  std::optional<Response> (*answer)(Call& call) = nullptr;
};
std::vector<Route> libretranslate_routes();
std::vector<Route> explain_routes();

// A field that must be there, as a string. Throws Refusal in LibreTranslate's words.
std::string wanted_text(const Fields& fields, const std::string& name);
// The source language (if it was "auto", detected from the texts) and the target, and the way
// between them. Throws Refusal.
struct Languages {
  std::string source, target;
  std::optional<double> confidence = {};  // if it was detected
  std::vector<size_t> way = {};
};
Languages languages_of(Call& call, const std::string& source, const std::string& target,
                       const std::vector<std::string>& texts);
// Throws Refusal for a text that is too long, or none.
void check_texts(const Call& call, const std::vector<std::string>& texts, const Key& limits);

}  // namespace heed::serve
