// heed._core.train: what `heed train` does, with settings of the same names.
#include <chrono>
#include <optional>
#include <set>

#include "bindings.h"
#include "heed/base/check.h"
#include "heed/metrics/metrics.h"
#include "heed/ops/bf16.h"
#include "heed/training/learnt_links.h"
#include "heed/training/recipe.h"
#include "heed/training/run_corpora.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"

namespace heed::python {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kResume = "resume=True";

// What is given of a configuration, by its fields' names.
template <class Config>
std::set<std::string> apply(const py::dict& given, Config& config) {
  std::set<std::string> names;
  fields(config, [&](const char* name, auto& value, const std::string&) {
    if (!given.contains(name)) return;
    using T = std::remove_reference_t<decltype(value)>;
    try {
      value = given[name].template cast<T>();
    } catch (const py::cast_error&) {
      throw py::type_error("train: " + std::string(name) + " wants " +
                           (std::is_same_v<T, std::string> ? "a string"
                            : std::is_same_v<T, bool>      ? "True or False"
                            : std::is_floating_point_v<T>  ? "a number"
                                                           : "a whole number") +
                           ", given " + py::repr(given[name]).cast<std::string>());
    }
    names.insert(name);
  });
  return names;
}

struct Settings {
  py::dict given;
  std::string text(const char* name, const std::string& otherwise = "") const {
    return given.contains(name) ? given[name].cast<std::string>() : otherwise;
  }
  template <class T>
  T number(const char* name, T otherwise) const {
    return given.contains(name) ? given[name].cast<T>() : otherwise;
  }
  bool has(const char* name) const { return given.contains(name); }
};

// Everything of the call in C++'s values: nothing of Python is touched while the lock is free.
struct Call {
  CorpusFiles corpus, valid;
  std::string folder, preset, tokenize, family;
  TokenizerOptions tokenizer;
  GivenVocabulary vocabulary;
  CorpusOptions cleaning;
  bool joint = false, resume = false, anyway = false;
  bool guided_given = false, guided_auto = false, precision_given = false;
  ChosenDevice device;
  int threads = 0;
  std::function<void(ModelConfig&)> set_model;
  std::function<void(TrainConfig&)> set_training;
};

Call call_of(const py::dict& given) {
  Settings s{py::dict(given.attr("copy")())};
  Call c;
  c.guided_given = s.has("guided"), c.precision_given = s.has("precision");
  if (c.guided_given && py::isinstance<py::str>(s.given["guided"]) &&
      s.text("guided") == kAuto) {  // as 'heed train --guided auto'
    c.guided_auto = true;
    s.given["guided"] = kGuidance;
  }
  c.corpus = {s.text("source"), s.text("target"), s.text("alignment")};
  c.valid = {s.text("valid_source"), s.text("valid_target")};
  c.folder = s.text("model"), c.preset = s.text("preset", kAuto);
  c.tokenize = s.text("tokenize", "13a");
  c.resume = s.number("resume", false), c.anyway = s.number("anyway", false);
  c.tokenizer.kind = s.text("tokens", c.tokenizer.kind);
  c.tokenizer.size = s.number("vocabulary", c.tokenizer.size);
  c.tokenizer.min_count = s.number("min_count", c.tokenizer.min_count);
  c.joint = s.number("joint", false);
  if (s.has("tokens")) c.vocabulary.kind = c.tokenizer.kind;
  if (s.has("vocabulary")) c.vocabulary.size = c.tokenizer.size;
  if (s.has("joint")) c.vocabulary.joint = c.joint;
  c.cleaning.max_length = s.number("max_length", c.cleaning.max_length);
  c.cleaning.max_ratio = s.number("max_ratio", c.cleaning.max_ratio);
  c.device = device_named(s.text("device", kAuto));
  c.threads = s.number("threads", 0);
  ModelConfig model;
  TrainConfig training;
  const auto model_given = apply(s.given, model);
  const auto training_given = apply(s.given, training);
  ModelConfig asked;
  c.family = family_asked(asked, apply(s.given, asked));
  // Copies the fields that were given, one by one.
  const auto copy = [](const auto& from, const std::set<std::string>& names, auto& into) {
    std::map<std::string, std::function<void(void*)>> set;
    fields(from, [&](const char* name, const auto& value, const std::string&) {
      using T = std::remove_cvref_t<decltype(value)>;
      if (names.contains(name)) set[name] = [value](void* to) { *static_cast<T*>(to) = value; };
    });
    fields(into, [&](const char* name, auto& value, const std::string&) {
      if (const auto found = set.find(name); found != set.end()) found->second(&value);
    });
  };
  c.set_model = [=](ModelConfig& into) { copy(model, model_given, into); };
  c.set_training = [=](TrainConfig& into) { copy(training, training_given, into); };
  require(!c.corpus.source.empty(), "train: wants source and target");
  require(!c.folder.empty(), "train: wants model, the folder to write to");
  const std::vector<std::string> kinds = tokenizer_kinds(),
                                 presets = preset_names(ModelKind::translator);
  if (std::find(kinds.begin(), kinds.end(), c.tokenizer.kind) == kinds.end())
    fail(unknown_name("tokenizer", c.tokenizer.kind, kinds));
  if (c.preset != kAuto && std::find(presets.begin(), presets.end(), c.preset) == presets.end())
    fail(unknown_name("preset", c.preset, presets));
  make_bleu({.tokenizer = c.tokenize});
  return c;
}

// Python's signal handlers, looked at ten times a second. What one of them, or a callback, raises
// stops the run, which saves a checkpoint.
class Signals {
 public:
  bool raised() {
    const auto now = std::chrono::steady_clock::now();
    if (error_ || now - last_ < std::chrono::milliseconds(100)) return error_.has_value();
    last_ = now;
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) error_.emplace();
    return error_.has_value();
  }
  void keep(const py::error_already_set& error) {
    if (!error_) error_.emplace(error);
  }
  void rethrow() {
    if (error_) throw py::error_already_set(*error_);
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::optional<py::error_already_set> error_;
};

// What Python is called for; each takes the lock.
struct Callbacks {
  py::function log, told;
  Signals& signals;

  void tell(const std::string& text, bool warning = false) const {
    const py::gil_scoped_acquire lock;
    told(text, warning);
  }
  void progress(const Progress& p) const {
    const py::gil_scoped_acquire lock;
    py::dict d;
    d["epoch"] = p.epoch, d["step"] = p.step, d["updates"] = p.updates, d["loss"] = p.loss;
    d["words_a_second"] = p.words_a_second, d["rate"] = p.rate;
    d["gradient_norm"] = p.gradient_norm, d["seconds"] = p.seconds, d["best"] = p.best;
    d["left"] = p.left ? py::object(py::float_(*p.left)) : py::object(py::none());
    if (p.validation) {
      d["valid_loss"] = p.validation->loss;
      if (p.validation->bleu) d["bleu"] = *p.validation->bleu;
    }
    try {
      log(d);
    } catch (const py::error_already_set& error) {
      signals.keep(error);
    }
  }
};

// Without the interpreter's lock, but for the signals that may come meanwhile. Nothing is kept of
// what is given up: `work` owns what it reads.
template <class F>
auto prepared(F work) {
  const py::gil_scoped_acquire lock;
  return interruptibly([work = std::move(work)](const std::atomic<bool>&) { return work(); });
}

using Index = std::shared_ptr<const CorpusIndex>;
// Null where there are no files.
Index index_of(const CorpusFiles& files, Surplus surplus, const std::filesystem::path& kept = {}) {
  if (files.source.empty()) return nullptr;
  return prepared([=] { return std::make_shared<const CorpusIndex>(files, surplus, kept); });
}

// What is guided has one alignment that teaches, and nothing else has one.
void want_teacher(const Call& c, const TrainConfig& training) {
  const bool given = !c.corpus.alignment.empty();
  require(training.guided > 0 ? given != training.guided_auto : !given,
          "train: guided wants alignment, a file with links, or is \"auto\", without one");
}

struct Configured {
  ModelConfig model;
  TrainConfig training;
};

// A preset, or what is chosen for the corpus, where the settings say nothing of it.
Configured configured(Call& c, const Index& index, const Callbacks& python) {
  TrainConfig given;
  c.set_training(given);
  Recipe r;
  if (c.preset != kAuto) {
    r.model = preset(c.preset);
  } else {
    r = recipe_for(
        prepared([index] { return corpus_facts(*index); }),
        {.device = c.device.device,
         .threads = threads(),
         .minutes = given.minutes,
         .steps = given.steps,
         .bf16 = (!c.precision_given || given.precision == "bf16") && bf16_products_are_fast()},
        c.family, c.vocabulary);
    c.tokenizer.kind = r.tokenizer.kind, c.tokenizer.size = r.tokenizer.size, c.joint = r.joint;
    python.tell(r.why);
    if (c.valid.source.empty()) r.training.hold_out = hold_out_of(index->lines());
  }
  Configured out{r.model, r.training};
  c.set_model(out.model);
  if (!has_dropout(out.model)) out.training.rdrop = 0;
  if (!c.corpus.alignment.empty() && c.preset == kAuto) out.training.guided = kGuidance;
  if (!can_be_guided(out.model)) out.training.guided = 0;
  c.set_training(out.training);
  out.training.guided_auto =
      c.guided_auto || (out.training.guided_auto && out.training.guided > 0 && !c.guided_given &&
                        c.corpus.alignment.empty());
  out.model.aligner = wants_aligner(out.model, out.training), c.set_model(out.model);
  if (!c.valid.source.empty()) out.training.hold_out = 0;
  TrainConfig& t = out.training;
  end_by_itself(t, !c.valid.source.empty() || t.hold_out > 0);
  check(out.model);
  check(out.training);
  require(
      !is_language_model(out.model),
      "train: a translator wants at least one of encoder_layers; 'heed lm train' trains language "
      "models");
  want_teacher(c, t);
  return out;
}

TokenizerPair learnt(const Call& c) {
  if (c.joint) {
    const auto both = learn_tokenizer(texts(c.corpus, Side::both), c.tokenizer);
    return {both, both};
  }
  return {learn_tokenizer(texts(c.corpus, Side::source), c.tokenizer),
          learn_tokenizer(texts(c.corpus, Side::target), c.tokenizer)};
}

struct Ended {
  Trainer::End end = Trainer::End::limit;
  int64_t steps = 0;
};

std::shared_ptr<const HeldOut> held_out_of(const Index& index, const TrainConfig& training) {
  if (training.hold_out == 0) return nullptr;
  return prepared([index, one_of = training.hold_out] {
    return std::make_shared<const HeldOut>(*index, one_of);
  });
}

Ended run(Call c, const Callbacks& python) {
  const auto began = std::chrono::steady_clock::now();
  const auto context =
      Context::make({.device = c.device.device, .index = c.device.index, .threads = c.threads});
  const UseContext here(*context);
  const UseDevice device(c.device.device);
  const FolderLock lock(c.folder);
  TrainConfig training;
  CorpusOptions cleaning = c.cleaning;
  Index index, valid_index;
  const std::filesystem::path kept = std::filesystem::path(c.folder) / kCorpusIndex;
  ModelFolder model = [&] {
    if (c.resume) {
      ModelFolder m = resumed_model(c.folder, kResume);
      require(!is_language_model(m.config), c.folder, ": a language model, not a translator");
      ModelConfig asked = m.config;
      c.set_model(asked);
      require(
          to_json(asked) == to_json(m.config), c.folder,
          ": what is resumed stays as it was; leave the model's settings out, or train another");
      training = training_of(c.folder);
      c.set_training(training);
      training.guided_auto = training.guided > 0 && (training.guided_auto || c.guided_auto);
      check(training);
      want_teacher(c, training);
      index = index_of(c.corpus, cleaning.surplus, kept);
      valid_index = index_of(c.valid, cleaning.surplus);
      cleaning.held_out = held_out_of(index, training);
      return m;
    }
    want_new_folder(c.folder, {}, kResume);
    index = index_of(c.corpus, cleaning.surplus), valid_index = index_of(c.valid, cleaning.surplus);
    const Configured made = configured(c, index, python);
    training = made.training;
    cleaning.held_out = held_out_of(index, training);
    python.tell("learning the vocabulary (" + c.tokenizer.kind + ") ...");
    const TokenizerPair tokenizers = prepared([c] { return learnt(c); });
    return create_model(c.folder, made.model, training, tokenizers);
  }();
  lock.clean();
  if (const std::optional<int64_t> most = longest_sentence(model.config))
    cleaning.max_length = std::min(cleaning.max_length, *most);
  std::shared_ptr<const LearntLinks> links;
  if (training.guided_auto) {
    python.tell("aligning words ...");
    links = prepared([files = c.corpus, valid_index, folder = c.folder] {
      return std::make_shared<const LearntLinks>(files, valid_index.get(), folder);
    });
    python.tell(links->told());
    c.corpus.alignment = links->path();
    index = index_of(c.corpus, cleaning.surplus, kept);
  }
  const RunCorpora corpora =
      prepared([index, valid_index, tokenizers = model.tokenizers, cleaning, training] {
        return read_corpora(index, valid_index, tokenizers, cleaning, training);
      });
  python.tell(corpora.found.text());
  for (const CorpusDoubt& doubt : corpora.doubts) {
    require(!doubt.grave || c.anyway || c.resume, doubt.told,
            ". Nothing was trained; anyway=True trains all the same");
    python.tell(doubt.told, /*warning=*/true);
  }
  Trainer trainer(*model.model, model.params, corpora.corpus, training, model.path);
  if (c.resume) trainer.resume();
  const Translator translator(model);
  const auto stops = [&] { return python.signals.raised(); };
  const std::shared_ptr<Ranks> ranks = alone();
  Trainer::Hooks hooks;
  if (corpora.valid_corpus) {
    hooks.validate = [&] {
      return validate(translator, corpora.valid, *ranks,
                      {.tokenize = c.tokenize, .wanted = [&] { return !stops(); }});
    };
    hooks.validation_set = corpora.valid_corpus->identity() + ", " + c.tokenize;
    hooks.validation_cost = validation_cost(corpora.valid, c.device.device);
  }
  hooks.log = [&](const Progress& p) { python.progress(p); };
  hooks.stop = stops;
  hooks.begun = [&] {
    if (!index->was_kept() && index->lines() > cleaning.window) index->keep(kept);
    if (!c.resume) return;
    keep_training(c.folder, training);
    const AlignmentHead taught = model.model->guided_head(), none;
    if (training.guided > 0 && model.alignment == none && taught != none)
      keep_alignment(c.folder, taught);
  };
  hooks.best_begins_anew = [&](const std::string& why) {
    python.tell(why + ": what was best counts no more");
  };
  hooks.spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const Trainer::End end = trainer.run(hooks);
  if (training.guided > 0)
    if (const std::string told = keep_threshold(
            c.folder, links && valid_index ? links->held_out()
                                           : given_links(*index, cleaning.held_out.get()));
        !told.empty())
      python.tell(told);
  return {end, trainer.steps()};
}

py::tuple train(const py::dict& given, const py::function& log, const py::function& told) {
  Call call = call_of(given);
  Signals signals;
  const Callbacks python{log, told, signals};
  Ended ended;
  {
    const py::gil_scoped_release free;
    ended = run(std::move(call), python);
  }
  signals.rethrow();
  const char* const why = ended.end == Trainer::End::limit      ? "limit"
                          : ended.end == Trainer::End::patience ? "patience"
                                                                : "stopped";
  return py::make_tuple(ended.steps, why);
}

template <class Config>
void add_fields(py::list& out, const Config& config, const char* group) {
  fields(config, [&](const char* name, const auto& value, const std::string& what) {
    out.append(py::make_tuple(group, name, py::cast(value), what));
  });
}

}  // namespace

void add_training(py::module_& m) {
  m.def("train", &train, py::arg("settings"), py::arg("log"), py::arg("told"));
  // (group, name, default, what it is) of every field of the configurations.
  m.def("settings", [] {
    py::list out;
    add_fields(out, ModelConfig{}, "model");
    add_fields(out, TrainConfig{}, "training");
    return out;
  });
  m.def("preset", [](const std::string& name) {
    py::dict out;
    const ModelConfig config = preset(name);
    fields(config, [&](const char* field, const auto& value, const std::string&) {
      out[field] = py::cast(value);
    });
    return out;
  });
  m.def("presets", [] { return preset_names(ModelKind::translator); });
}

}  // namespace heed::python
