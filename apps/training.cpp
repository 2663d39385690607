#include "apps/training.h"

#include <cmath>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/flags.h"
#include "heed/base/check.h"
#include "heed/data/text.h"
#include "heed/files/lines.h"
#include "heed/models/config_json.h"
#include "heed/training/recipe.h"

namespace heed::apps {
namespace {

volatile std::sig_atomic_t stop_asked = 0;  // the signal
void ask_to_stop(int signal) {
  stop_asked = signal;
  std::signal(signal, SIG_DFL);  // who asks twice does not want to wait
}

// The line that can be trusted.
std::string line(const Progress& p) {
  std::string out = "epoch " + std::to_string(p.epoch) + "  step " + std::to_string(p.step) + "  ";
  if (p.updates > 0) {
    char text[256];
    std::snprintf(text, sizeof text, "loss %.3f  ppl %.2f  %.0f words/s  rate %.2e  norm %.2f  ",
                  p.loss, std::exp(p.loss), p.words_a_second, p.rate, p.gradient_norm);
    out += text;
    if (const int n = ranks()->count(); n > 1) {
      std::snprintf(text, sizeof text, "%d ranks: %.0f words/s each, %.0f %% waiting  ", n,
                    p.words_a_second / n, 100 * p.waiting);
      out += text;
    }
  }
  out += duration(p.seconds);
  if (p.left) out += ", " + duration(*p.left) + " left";
  return out;
}

std::string json_line(const Progress& p) {
  nlohmann::ordered_json out{{"epoch", p.epoch}, {"step", p.step}};
  if (p.updates > 0) {
    out["loss"] = p.loss, out["words_a_second"] = p.words_a_second;
    out["rate"] = p.rate, out["gradient_norm"] = p.gradient_norm;
    if (p.replayed) out["replayed"] = *p.replayed;
  }
  out["seconds"] = p.seconds;
  if (p.validation) {
    out["valid_loss"] = p.validation->loss;
    if (p.validation->bleu) out["valid_bleu"] = *p.validation->bleu;
    out["best"] = p.best;
  }
  return out.dump();
}

std::vector<Scalar> scalars(const Progress& p) {
  std::vector<Scalar> out;
  if (p.updates > 0)
    out = {{"train/loss", p.loss},
           {"train/rate", p.rate},
           {"train/gradient_norm", p.gradient_norm},
           {"train/words_per_second", p.words_a_second}};
  if (p.validation) {
    out.push_back({"valid/loss", p.validation->loss});
    if (p.validation->bleu) out.push_back({"valid/bleu", *p.validation->bleu});
  }
  return out;
}

// What is written goes to the end of the file: of a corpus, say, that would be lost.
void want_log(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return;
  const std::optional<std::string> first = LineReader(path).next();
  const auto json = parse_json<nlohmann::json>(first.value_or(""));
  require(!first || (json.is_object() && json.contains("step")), path,
          ": heed did not write it, and will not write at its end; choose another file for --log");
}

void tell(const Progress& p, StatusLine& status) {
  if (!p.validation) {
    if (stderr_is_terminal())
      status.show(line(p));
    else
      std::fprintf(stderr, "%s\n", line(p).c_str());
    return;
  }
  status.clear();
  std::fprintf(stderr, "%s\n  valid: loss %.3f  ppl %.2f", line(p).c_str(), p.validation->loss,
               std::exp(p.validation->loss));
  if (p.validation->bleu) std::fprintf(stderr, "  BLEU %.1f", *p.validation->bleu);
  std::fprintf(stderr, "%s\n", p.best ? "  (best so far, saved)" : "");
}

}  // namespace

void print_tables(ModelKind kind) {
  const auto line = [](const std::string& name, const std::string& what) {
    std::printf("  %-17s %s\n", name.c_str(), what.c_str());
  };
  std::printf("scores:\n");
  for (const ScoreRow& row : score_table()) {
    line(row.name, row.formula);
    if (row.alias) line(row.alias, std::string("another name of ") + row.name);
  }
  line(kNoScore, "no attention (rnn only)");
  std::printf("weigh:\n");
  for (const WeighRow& row : weigh_table())
    if (row.kind != Weigh::Kind::reinforce)  // wants a reward, which there is none of here
      line(row.name, row.formula);
  std::printf("presets:\n");
  for (const std::string& name : preset_names(kind))
    line(name, flags_of(preset(name), {"family", "size", "encoder_layers", "decoder_layers",
                                       "dropout", "score"}));
  if (kind == ModelKind::translator) line("auto", "chosen by these rules, where no flag says it:");
  if (kind == ModelKind::translator)
    for (const Rule& rule : recipe_rules()) line("  " + std::string(rule.what), rule.by);
  line("(otherwise)",
       flags_of(ModelConfig{}, {"weigh", "temperature", "heads", "positions", "cell",
                                "bidirectional", "wiring", "inner", "norm", "position"}));
}

void share_updates(TrainConfig& training, bool given) {
  const int n = ranks()->count();
  if (!given) training.accumulate = std::max<int64_t>(training.accumulate, n);
  want(n <= training.accumulate, "--accumulate " + std::to_string(training.accumulate) +
                                     " has no work for " + std::to_string(n) +
                                     " ranks; start at most so many, or give --accumulate " +
                                     std::to_string(n));
}

void want_same_settings(const ModelConfig& model, const TrainConfig& training) {
  std::vector<std::string> mine;
  const auto add = [&](const auto& config) {
    for (const auto& [name, value] : field_values(config))
      mine.push_back(flag_of(name) + " is " + value);
  };
  add(model), add(training);
  const auto all = ranks()->gather("the settings", mine);
  for (size_t r = 1; r < all.size(); ++r)
    for (size_t i = 0; i < std::min(all[r].size(), all[0].size()); ++i)
      require(all[r][i] == all[0][i], ranks()->name(static_cast<int>(r)),
              ": the flags must be the same on all ", all.size(), " ranks; here ", all[r][i],
              ", on ", ranks()->name(0), " ", all[0][i]);
}

void add_deadline_flag(CLI::App& command, double& seconds) {
  command
      .add_option("--deadline", seconds,
                  "of several ranks: seconds after which one that does not answer ends the run")
      ->check(above_zero());
}

void want_of_family(const ModelConfig& config, const std::set<std::string>& given) {
  const std::string other = config.family == "rnn" ? "transformer" : "rnn";
  fields(config, [&](const char* name, const auto& value, const std::string& what) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, bool>)
      if (!value) return;
    want(!given.contains(name) || !(what.starts_with(other + ":") || what.starts_with(other + ",")),
         flag_of(name) + " is for --family " + other + "; this model is of " + config.family);
  });
  want(!given.contains("input_feeding") || !config.input_feeding || config.wiring == "after",
       "--input-feeding is for --wiring after");
  const ScoreRow* const score = find_score_row(config.score);
  std::string with_rank;
  for (const ScoreRow& row : score_table())
    if (row.facts.rank) with_rank += (with_rank.empty() ? "" : ", ") + std::string(row.name);
  want(!given.contains("rank") || config.rank == 0 || (score && score->facts.rank),
       "--rank is for --score " + with_rank + "; this model's is " + config.score);
}

void want_draws(const ModelConfig& config, const TrainConfig& training) {
  want(training.rdrop == 0 || has_dropout(config),
       "--rdrop compares two draws of dropout, and this model drops nothing; give --dropout 0.1, "
       "say, or leave --rdrop out");
}

ModelConfig chosen_preset(const std::string& name, ModelKind kind) {
  const std::vector<std::string> names = preset_names(kind);
  if (std::find(names.begin(), names.end(), name) == names.end())
    want(false, unknown_name("preset", name, names));
  return preset(name);
}

ModelFolder model_of_first_rank(const std::string& folder) {
  return open_model(folder, Parameters::leave);
}

void check_resumed(const ModelFolder& model, const Asked& asked) {
  const auto check_same = [&](const auto& stored, const auto& wanted,
                              const std::set<std::string>& names,
                              const std::set<std::string>& given) {
    const auto was = field_values(stored), now = field_values(wanted);
    for (const std::string& name : names)
      want(was.at(name) == now.at(name),
           flag_of(name) + " is " + was.at(name) + " in " + model.path.string() + ", given " +
               now.at(name) + (given.contains(name) ? "" : " by --preset " + asked.preset) +
               "; what is resumed stays as it was: leave the flag out, or train another model");
  };
  std::set<std::string> names = asked.model_given, fixed;
  if (!asked.preset.empty())
    for (const auto& [name, value] : field_values(asked.model))
      if (name != "aligner") names.insert(name);  // no preset's: it follows from --guided
  check_same(model.config, asked.model, names, asked.model_given);
  // Where in the corpus a run is, is counted in batches of the seed's order and pieces; and a
  // checkpoint has the mean that was asked for.
  for (const char* name :
       {"seed", "batch_tokens", "sampling", "average", "average_last", "hold_out"})
    if (asked.training_given.contains(name)) fixed.insert(name);
  check_same(training_of(model.path), asked.training, fixed, asked.training_given);
  const TokenizerPair& t = model.tokenizers;
  // Subwords have the bytes beside what was asked for.
  const auto learnt = [](const Tokenizer& tokenizer) {
    return tokenizer.size() - (tokenizer.writes_all() ? kBytePieces : 0);
  };
  const bool other_kind = t.source->kind() != asked.tokens || t.target->kind() != asked.tokens;
  const std::string trouble =
      !asked.tokens.empty() && other_kind   ? "--tokens " + asked.tokens
      : asked.joint && t.source != t.target ? "--joint"
      : asked.vocabulary > 0 && std::min(learnt(*t.source), learnt(*t.target)) > asked.vocabulary
          ? "--vocabulary " + std::to_string(asked.vocabulary)
          : "";
  want(trouble.empty(), trouble + " is not what " + model.path.string() +
                            " has; what is resumed stays as it was: leave the flag out, or train "
                            "another model");
}

void tell_learning(const TokenizerOptions& tokenizer, int64_t lines) {
  const bool subwords = tokenizer.kind == "bpe" || tokenizer.kind == "unigram";
  std::string from;
  if (subwords && lines > tokenizer.sentences)
    from = " from " + grouped(tokenizer.sentences) + " of " + grouped(lines) + " lines";
  std::fprintf(stderr, "learning the vocabulary (%s)%s ...\n", tokenizer.kind.c_str(),
               from.c_str());
}

void want_files(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    want_file(path);
    const LineReader opened(path);
  }
}

TrainingLog::TrainingLog(const std::string& json, const std::string& tensorboard) {
  if (!json.empty()) {
    want_log(json);
    json_.open(json, std::ios::app);
    require(json_.good(), json, ": cannot be written to");
  }
  if (!tensorboard.empty()) events_.emplace(tensorboard);
}

void TrainingLog::write(const Progress& p) {
  if (json_.is_open() && !(json_ << json_line(p) << std::endl)) {
    json_.close();
    std::fprintf(stderr,
                 "the log cannot be written to any more, and ends here; the training goes on\n");
  }
  if (events_) events_->write(p.step, scalars(p));
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

std::function<bool()> stop_on_signal() {
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  // mpirun gives it to its ranks, as it does not give the others.
  if (ranks()->count() > 1) std::signal(SIGUSR1, [](int) { ask_to_stop(SIGTERM); });
  // A terminal that is closed, unless nohup says that it does not matter.
  if (std::signal(SIGHUP, ask_to_stop) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  return [] { return stop_asked != 0; };
}

int stop_signal() { return stop_asked; }

void run_training(Trainer& trainer, const TrainingRun& run) {
  if (trainer.steps() > 0)
    std::fprintf(stderr, "going on from step %lld\n", static_cast<long long>(trainer.steps()));
  StatusLine status;
  Trainer::Hooks hooks;
  hooks.stop = stop_on_signal();
  hooks.begun = run.begun;
  hooks.validation_set = run.validation_set;
  hooks.best_begins_anew = [](const std::string& why) {
    std::fprintf(stderr, "%s: what was best counts no more\n", why.c_str());
  };
  hooks.validation_cost = run.validation_cost;
  hooks.spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - run.since).count();
  hooks.log = [&](const Progress& p) {
    tell(p, status);
    run.log.write(p);
  };
  if (run.validate)
    hooks.validate = [&] {
      status.clear();
      return run.validate();
    };
  const int64_t before = trainer.steps();
  ranks()->meet("the corpus");
  set_deadline(run.deadline);
  const Trainer::End end = trainer.run(hooks);
  status.clear();
  if (end == Trainer::End::stopped) {
    std::fprintf(stderr, "stopped at step %lld; the checkpoint is saved, --resume goes on\n",
                 static_cast<long long>(trainer.steps()));
    return;
  }
  if (before > 0 && trainer.steps() == before)
    std::fprintf(stderr,
                 "there was nothing left to train: the run had ended already; more --minutes, "
                 "--steps, --epochs or --patience let it go on\n");
  std::fprintf(stderr, "done after %lld steps%s; the model is in %s\n",
               static_cast<long long>(trainer.steps()),
               end == Trainer::End::patience ? " (no better model came)" : "", run.folder.c_str());
}

}  // namespace heed::apps
