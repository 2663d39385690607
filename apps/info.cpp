// heed info: what a model is.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/inference.h"
#include "heed/data/text.h"
#include "heed/exchange/describe.h"
#include "heed/translation/translator.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder;
  bool json = false, speed = true;
  Inference machine;
};

// Tokens a second of a greedy search, one sentence at a time, over about a second.
double speed(const Options& o) {
  const Translator translator(opened(o.folder, o.machine));
  const Tokenizer& tokenizer = *translator.model().tokenizers.source;
  const SpecialIds special = translator.model().tokenizers.target->special();
  SearchOptions search{.begin = special.begin,
                       .end = special.end,
                       .pad = special.pad,
                       .unknown = special.unknown,
                       .beam = 1};
  search.min_length = search.max_length = 20;
  if (const auto most = longest_sentence(translator.model().config))
    search.min_length = search.max_length = std::min<int64_t>(20, *most);
  search.max_ratio = 0, search.max_extra = 20;
  std::vector<Id> words;
  for (int i = 0; i < 10; ++i) words.push_back(static_cast<Id>((7 * i + 11) % tokenizer.size()));
  Engine::Request request;
  request.source = framed(words, tokenizer.special());
  request.options = search;
  using Clock = std::chrono::steady_clock;
  double best = 0;
  const auto begin = Clock::now();
  do {
    const auto from = Clock::now();
    translator.loaded().engine().decode({request});
    const double seconds = std::chrono::duration<double>(Clock::now() - from).count();
    best = std::max(best, double(search.max_length) / seconds);
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < 0.5);
  return best;
}

// A number as people read it: 3,958,272 and 96.31; anything else as it is.
std::string readable(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.4g", value.get<double>());
    return text.data();
  }
  if (value.is_number_integer() && value > 9999) return grouped(value.get<int64_t>());
  return value.dump();
}

void print(const std::string& name, const nlohmann::ordered_json& value) {
  std::string text;
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      text += (text.empty() ? "" : ", ") + key + " " + readable(inner);
  } else {
    text = readable(value);
  }
  std::string head = name + ": " + text;
  std::replace(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(name.size()), '_', ' ');
  std::cout << head << '\n';
}

void run(const Options& o) {
  want(!o.folder.empty(), "a model's folder is required");
  use(o.machine);
  nlohmann::ordered_json all = describe(o.folder);
  const bool translator = all["kind"].get<std::string>().starts_with("translator");
  if (o.speed && translator && all.contains("parameters"))
    all["tokens_a_second"] = std::llround(speed(o));
  if (o.json) {
    std::cout << all.dump(1) << '\n';
    return;
  }
  for (const auto& [name, value] : all.items()) {
    if (name != "parameters_by_part") {
      print(name, value);
      continue;
    }
    for (const auto& [part, count] : value.items())
      std::cout << "  " << part << ": " << grouped(count.get<int64_t>()) << '\n';
  }
}

}  // namespace

void add_info(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "info",
      "what a model is: sizes, vocabulary, origin, training, checksums, memory, speed here\n"
      "Examples:\n"
      "  heed info m\n"
      "  heed info m --json | jq .parameters\n");
  command->add_option("model", o->folder, "the model's folder");
  command->add_flag("--json", o->json, "one JSON object");
  command->add_flag("--speed,!--no-speed", o->speed,
                    "greedy search of one sentence at a time is measured, for half a second");
  add_inference_flags(*command, o->machine);
  command->callback([o] { run(*o); });
}

}  // namespace heed::apps
