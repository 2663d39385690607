// heed lm: language models, trained, scored, and asked to go on.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/inference.h"
#include "apps/training.h"
#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/files/lines.h"
#include "heed/language/language_model.h"
#include "heed/training/recipe.h"
#include "heed/training/run_corpora.h"

namespace heed::apps {
namespace {

// ---- train

struct TrainOptions {
  std::string text, valid_text, folder, preset = "lm-transformer", log, tensorboard, vocabulary;
  double valid_share = 0, deadline = 300;
  int64_t context = 0, sample_length = 200;
  bool resume = false, list = false, preset_given = false;
  bool tokens_given = false, vocabulary_given = false;
  TokenizerOptions tokenizer{.kind = "characters"};
  Machine machine;
};

struct Parts {
  TextPart train;
  std::optional<TextPart> valid;
};

Parts parts_of(const TrainOptions& o) {
  if (o.valid_share == 0) {
    Parts parts{.train = {.path = o.text}, .valid = {}};
    if (!o.valid_text.empty()) parts.valid = TextPart{.path = o.valid_text};
    return parts;
  }
  auto [train, valid] = split_text(o.text, o.valid_share);
  return {train, valid};
}

void check_usage(const TrainOptions& o, const ModelConfig& config, const TrainConfig& training,
                 const std::set<std::string>& given) {
  want(!o.text.empty(), "--text is required, a file to learn from");
  want(!o.folder.empty(), "--model is required, the folder to write to");
  want(o.valid_text.empty() || o.valid_share == 0,
       "--valid-text and --valid-share are two ways to say the same; give one");
  want(o.valid_share >= 0 && o.valid_share < 1, "--valid-share wants a share in [0, 1)");
  want(o.context >= 0, "--context wants a number above 0");
  want(o.context == 0 || !given.contains("positions"),
       "--context and --positions are two names for the same; give one");
  want(is_language_model(config), "a language model has no encoder; leave --encoder-layers out");
  want(o.resume || training.patience == 0 || !o.valid_text.empty() || o.valid_share > 0,
       "--patience wants --valid-text or --valid-share");
  const int64_t longest = longest_sentence(config).value_or(0);
  want(o.resume || training.batch_tokens > longest,
       "--batch-tokens " + std::to_string(training.batch_tokens) + " does not hold a context of " +
           std::to_string(longest) + " pieces (--context) and its end");
  want(training.guided == 0, "--guided is for translators");
  want(training.sampling == 0, "--sampling is for translators");
  want(training.hold_out == 0,
       "--hold-out is for translators; --valid-share holds out the end of --text");
  const std::vector<std::string> kinds = tokenizer_kinds();
  if (std::find(kinds.begin(), kinds.end(), o.tokenizer.kind) == kinds.end())
    want(false, unknown_name("tokenizer", o.tokenizer.kind, kinds));
  as_usage([&] {
    if (!o.resume) check(config), want_of_family(config, given);  // what is resumed has its own
    check(training);
  });
  if (!o.resume) want_draws(config, training);
}

ModelFolder model_for(const TrainOptions& o, const ModelConfig& config, const TrainConfig& training,
                      const Parts& parts) {
  if (o.resume) {
    ModelFolder model = resumed_model(o.folder, "--resume");
    require(is_language_model(model.config), o.folder,
            ": a translator, not a language model; 'heed train --resume' goes on with it");
    return model;
  }
  if (!ranks()->first()) {
    ranks()->meet("the model's folder");
    return model_of_first_rank(o.folder);
  }
  const TextStream lines = texts(parts.train);
  std::optional<std::string> line = lines();
  bool bad = false;
  while (line && (line->empty() || encoding_trouble(*line))) {
    bad = bad || !line->empty();
    line = lines();
  }
  if (!line && bad) fail("there is no line in UTF-8 to learn from. ", *first_bad_line(o.text));
  require(line.has_value(), o.text, ": has no text");
  TokenizerOptions tokenizer = o.tokenizer;
  tokenizer.newlines = config.reads == "stream";
  std::shared_ptr<const Tokenizer> pieces;
  if (!o.vocabulary.empty()) {
    pieces = load_tokenizer(tokenizer.kind, o.vocabulary);
  } else {
    tell_learning(tokenizer,
                  parts.train.count < 0 ? count_lines(parts.train.path) : parts.train.count);
    pieces = learn_tokenizer(texts(parts.train), tokenizer);
  }
  ModelFolder model = create_model(o.folder, config, training, {pieces, pieces});
  ranks()->meet("the model's folder");
  return model;
}

Validation validate(const TrainOptions& o, const ModelFolder& model,
                    const std::vector<Batch>& batches) {
  Validation out;
  out.loss = loss_of(*model.model, batches, *ranks());
  if (o.sample_length > 0 && ranks()->first()) {
    const Generated g = LanguageModel(model).generate(
        "", {.search = {.sample = true}, .length = o.sample_length})[0];
    std::string text = "  " + g.text;
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
      text.replace(at, 1, "\n  ");
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  return out;
}

// Every word counts as it is; the loss is what is read.
TrainConfig language_training() { return {.smoothing = 0, .stop_on = "loss"}; }

void train(TrainOptions o, const Flags<ModelConfig>& model_flags,
           const Flags<TrainConfig>& train_flags) {
  if (o.list) return print_tables(ModelKind::language_model);
  outlive_readers();
  const bool first = ranks(o.deadline)->first();
  take_share(o.machine);
  ModelConfig config = chosen_preset(o.preset, ModelKind::language_model);
  model_flags.apply(config);
  if (o.context > 0) config.positions = o.context;
  TrainConfig training = language_training();
  train_flags.apply(training);
  const auto began = std::chrono::steady_clock::now();
  if (!o.resume) share_updates(training, train_flags.given().contains("accumulate"));
  end_by_itself(training, !o.valid_text.empty() || o.valid_share > 0);
  check_usage(o, config, training, model_flags.given());
  want_same_settings(config, training);
  use(o.machine);
  want_files({o.text, o.valid_text, o.vocabulary});
  const Parts parts = parts_of(o);
  std::optional<FolderLock> lock;
  if (first) lock.emplace(o.folder);
  if (!o.resume && first) want_new_folder(o.folder, {o.log, o.tensorboard}, "--resume");
  TrainingLog log(first ? o.log : "", first ? o.tensorboard : "");
  ModelFolder model = model_for(o, config, training, parts);
  if (first) lock->clean();
  if (o.resume) {
    std::set<std::string> model_given = model_flags.given();
    if (o.context > 0) model_given.insert("positions");
    check_resumed(model, {.preset = o.preset_given ? o.preset : "",
                          .model = config,
                          .model_given = model_given,
                          .training = training,
                          .training_given = train_flags.given(),
                          .tokens = o.tokens_given ? o.tokenizer.kind : "",
                          .vocabulary = o.vocabulary_given ? o.tokenizer.size : 0});
    training = training_of(o.folder);
    train_flags.apply(training);
    check(training);
    share_updates(training, /*given=*/true);
    want_draws(model.config, training);
  }
  const TextCorpusOptions text{.lines = model.config.reads == "lines",
                               .context = *longest_sentence(model.config),
                               .with_sources = is_bidirectional_language_model(model.config),
                               .seed = training.seed};
  const auto corpus = std::make_shared<TextCorpus>(parts.train, model.tokenizers.target, text);
  std::fprintf(stderr, "%s", corpus->summary().c_str());
  std::vector<Batch> valid;
  std::string valid_set;
  if (parts.valid) {
    TextCorpus held_out(*parts.valid, model.tokenizers.target, text);
    valid = batches_once(held_out, {.tokens = std::max<int64_t>(2048, text.context + 1)});
    std::fprintf(stderr, "%s", held_out.summary().c_str());
    valid_set = held_out.identity();
  }
  std::fprintf(stderr,
               "%s language model with %s attention: %.1f million parameters; vocabulary of %d\n",
               model.config.family.c_str(), model.config.score.c_str(),
               double(model.params.count()) / 1e6, model.tokenizers.target->size());
  Trainer trainer(*model.model, model.params, corpus, training, model.path, ranks());
  if (o.resume) trainer.resume();
  std::function<Validation()> look;
  if (parts.valid) look = [&] { return validate(o, model, valid); };
  const auto begun = [&] {
    if (o.resume && first) keep_training(o.folder, training);
  };
  double tokens = 0;  // without a search: one pass forward of three
  for (const Batch& batch : valid) tokens += double(batch.target_tokens()) / 3;
  run_training(trainer, {.folder = o.folder,
                         .log = log,
                         .deadline = o.deadline,
                         .validate = look,
                         .validation_set = valid_set,
                         .begun = begun,
                         .validation_cost = tokens,
                         .since = began});
}

void add_lm_train(CLI::App& lm) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* command = lm.add_subcommand(
      "train",
      "train a language model from text\n"
      "Examples:\n"
      "  heed lm train --text book.txt --valid-share 0.1 --model m --minutes 30\n"
      "  heed lm train --text book.txt --model m --preset lm-rnn --score additive\n"
      "  heed lm train --text lines.txt.gz --model m --preset elmo --tokens words    for heed "
      "embed\n");
  command->add_option("--text", o->text, "a text to learn from (plain or packed)");
  command->add_option("--valid-text", o->valid_text, "another to validate on");
  command->add_option("--valid-share", o->valid_share,
                      "instead: the last share of --text, which is not learnt from");
  command->add_option("--model", o->folder, "the folder to write to");
  CLI::Option* preset =
      command->add_option("--preset", o->preset, "what flags change: lm-transformer, lm-rnn, elmo");
  command->add_option("--context", o->context, "pieces that are read together (as --positions)")
      ->default_str("");
  CLI::Option* tokens =
      command->add_option("--tokens", o->tokenizer.kind, "characters, words, bpe or unigram");
  CLI::Option* vocabulary = command
                                ->add_option("--vocabulary", o->tokenizer.size,
                                             "its size at most (subwords: and 256 bytes)")
                                ->check(above_zero());
  command->add_option("--min-count", o->tokenizer.min_count, "rarer words become unknown")
      ->check(above_zero());
  command->add_option("--tokens-file", o->vocabulary,
                      "an existing vocabulary or SentencePiece model");
  command->add_flag("--resume", o->resume, "go on from the folder's checkpoint");
  command->add_flag("--list", o->list, "list scores, ways to weigh and presets");
  command->add_option("--sample-length", o->sample_length,
                      "pieces of a sample at each validation; 0: none");
  command->add_option("--log", o->log, "also write progress to this file, a JSON object a line");
  command->add_option("--tensorboard", o->tensorboard,
                      "also write progress into this folder, as TensorBoard's curves");
  add_deadline_flag(*command, o->deadline);
  add_machine_flags(*command, o->machine);
  auto model_flags = std::make_shared<Flags<ModelConfig>>(*command, kModelGroup, std::nullopt,
                                                          std::set<std::string>{"encoder_layers"});
  auto train_flags = std::make_shared<Flags<TrainConfig>>(
      *command, kTrainingGroup, language_training(),
      std::set<std::string>{"guided", "guided_auto", "sampling", "stop_on", "hold_out"});
  command->callback([=] {
    o->preset_given = preset->count() > 0;
    // What is read from a file has the kind and the size that it has.
    o->tokens_given = tokens->count() > 0 && o->vocabulary.empty();
    o->vocabulary_given = vocabulary->count() > 0 && o->vocabulary.empty();
    train(*o, *model_flags, *train_flags);
  });
}

// ---- score

struct ScoreCommand {
  std::string folder, text = "-";
  double last = 0;
  bool json = false, by_piece = false;
  ScoreOptions score;
  BadLines bad;
  Inference machine;
};

nlohmann::ordered_json to_json(const TextScore& s) {
  return {{"pieces", s.pieces},
          {"words", s.words},
          {"characters", s.characters},
          {"unknown", s.unknown},
          {"log_probability", s.log_probability},
          {"nats_per_piece", s.nats_per_piece()},
          {"nats_per_character", s.nats_per_character()},
          {"perplexity_by_piece", s.perplexity_by_piece()},
          {"perplexity_by_word", s.perplexity_by_word()}};
}

// A JSON object a line of text: pieces, what each cost, and what was attended to.
void score_by_piece(const LanguageModel& model, const std::string& path, const BadLine& bad) {
  LineReader reader(path);
  while (std::optional<std::string> given = reader.next()) {
    const auto number = static_cast<int64_t>(reader.position().line);
    const std::string line =
        as_text(std::move(*given), reader.name() + ": line " + std::to_string(number), bad);
    const auto none = nlohmann::ordered_json::array();
    nlohmann::ordered_json out{{"read", none}, {"pieces", none}, {"log_probability", none}};
    ReadText r;
    if (!model.tokenizer().encode(line).ids.empty())
      r = model.read(line, /*want_weights=*/true, number);
    for (const Id id : r.in) out["read"].push_back(model.tokenizer().piece(id));
    for (const Id id : r.out) out["pieces"].push_back(model.tokenizer().piece(id));
    out["log_probability"] = r.log_probability;
    for (const Weights& w : r.weights) {
      const std::vector<double> all = w.values.values();  // [1, H, T, T]
      nlohmann::ordered_json heads = nlohmann::ordered_json::array();
      const int64_t T = w.values.size(2);
      for (int64_t h = 0; h < w.values.size(1); ++h) {
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        for (int64_t t = 0; t < T; ++t) {
          const auto from = all.begin() + (h * T + t) * T;
          rows.push_back(std::vector<double>(from, from + t + 1));
        }
        heads.push_back(std::move(rows));
      }
      out["weights"].push_back(std::move(heads));
    }
    std::printf("%s\n", out.dump().c_str());
  }
}

void score(ScoreCommand o) {
  want(!o.folder.empty(), "--model is required, a folder that 'heed lm train' made");
  want(o.last >= 0 && o.last < 1, "--last wants a share in [0, 1)");
  want(o.last == 0 || o.text != "-", "--last wants --text, a file");
  want(o.last == 0 || !o.by_piece, "--by-piece reads all lines; leave --last out");
  use(o.machine);
  const LanguageModel model(opened(o.folder, o.machine));
  o.score.bad = o.bad.told();
  if (o.by_piece) {
    score_by_piece(model, o.text, o.score.bad);
    return o.bad.sum_up();
  }
  StatusLine status;
  o.score.progress = [&](const TextScore& s) {
    status.show(std::to_string(s.pieces) + " pieces read");
  };
  const TextScore s = model.score(
      o.last > 0 ? split_text(o.text, o.last).second : TextPart{.path = o.text}, o.score);
  status.clear();
  o.bad.sum_up();
  if (s.unknown > 0)
    std::fprintf(stderr,
                 "heed: %.1f %% (%lld of %lld) of the pieces are not known to the model, which "
                 "takes them for one and the same: the figures are too good\n",
                 100 * double(s.unknown) / double(s.pieces), static_cast<long long>(s.unknown),
                 static_cast<long long>(s.pieces));
  if (o.json) {
    std::printf("%s\n", to_json(s).dump().c_str());
    return;
  }
  std::printf("pieces %lld  words %lld  characters %lld\n", static_cast<long long>(s.pieces),
              static_cast<long long>(s.words), static_cast<long long>(s.characters));
  std::printf("nats a piece %.4f  nats a character %.4f\n", s.nats_per_piece(),
              s.nats_per_character());
  std::printf("perplexity by piece %.3f  by word %.3f\n", s.perplexity_by_piece(),
              s.perplexity_by_word());
}

void add_lm_score(CLI::App& lm) {
  auto o = std::make_shared<ScoreCommand>();
  CLI::App* command = lm.add_subcommand(
      "score",
      "how probable a text is: perplexity, nats a character\n"
      "Examples:\n"
      "  heed lm score --model m --text test.txt\n"
      "  heed lm score --model m --text book.txt --last 0.1   what --valid-share held out\n"
      "  echo 'To be, or not' | heed lm score --model m --by-piece\n");
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--text", o->text, "the text (plain or packed); -: standard input");
  command->add_option("--last", o->last, "only this share, from the end");
  command->add_option("--batch", o->score.batch, "rows at a time; changes no result")
      ->check(above_zero());
  command
      ->add_option("--stride", o->score.stride,
                   "of a stream: new pieces a row, the rest is past; 0: half the context")
      ->check(not_negative());
  command->add_flag("--json", o->json, "one JSON object");
  command->add_flag("--by-piece", o->by_piece,
                    "a JSON object a line of text: each piece's log-probability, and the weights "
                    "over the past by layer and head");
  o->bad.add_flag(*command);
  add_inference_flags(*command, o->machine);
  command->callback([o] { score(*o); });
}

// ---- generate

struct GenerateCommand {
  std::string folder, prompt;
  GenerateOptions generate;
  bool scores = false;
  int64_t beam = 0;
  Inference machine;
};

void generate(GenerateCommand o) {
  want(!o.folder.empty(), "--model is required, a folder that 'heed lm train' made");
  want(o.beam >= 0, "--beam wants a number above 0");
  SearchOptions& s = o.generate.search;
  s.sample = o.beam == 0;
  if (o.beam > 0) s.beam = o.beam;
  want(s.sample || o.generate.count <= s.beam, "--count cannot be more than --beam");
  as_usage([&] { check(s); });
  use(o.machine);
  const LanguageModel model(opened(o.folder, o.machine));
  if (const int64_t n = unknown_pieces(model.tokenizer(), o.prompt))
    std::fprintf(stderr, "heed: the prompt has %lld piece%s that the model does not know\n",
                 static_cast<long long>(n), n > 1 ? "s" : "");
  for (const Generated& g : model.generate(o.prompt, o.generate)) {
    if (o.scores) std::printf("%.6f\t", g.log_probability);
    std::cout << g.text << '\n';
  }
}

void add_lm_generate(CLI::App& lm) {
  auto o = std::make_shared<GenerateCommand>();
  CLI::App* command = lm.add_subcommand(
      "generate",
      "let a model go on from a prompt: by drawing or, with --beam, by searching\n"
      "Examples:\n"
      "  heed lm generate --model m --prompt 'ROMEO:' --length 400 --temperature 0.8 --top-k 20\n"
      "  heed lm generate --model m --prompt 'the cat' --beam 5 --count 3 --scores\n");
  SearchOptions& s = o->generate.search;
  command->add_option("--model", o->folder, "the model's folder");
  command->add_option("--prompt", o->prompt, "what the text begins with");
  command->add_option("--length", o->generate.length, "new pieces at most")->check(above_zero());
  command->add_option("--count", o->generate.count, "texts")->check(CLI::Range(1, 1000000));
  command->add_option("--temperature", s.temperature, "of drawing; towards 0: the likeliest")
      ->check(above_zero());
  command->add_option("--top-k", s.top_k, "draw from the likeliest so many pieces")
      ->check(not_negative());
  command->add_option("--top-p", s.top_p, "draw from pieces that make up this probability")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", s.seed, "of drawing");
  command->add_option("--beam", o->beam, "search with so many hypotheses instead; 1: greedy")
      ->check(CLI::Range(0, 1000));
  command->add_option("--patience", s.patience,
                      "beam: ends with this times --beam texts; inf: when none can be better");
  command->add_option("--normalize", s.normalize,
                      "beam: scores are divided by length to this power");
  command
      ->add_option("--no-repeat", s.no_repeat,
                   "no n-gram of this length twice in what the model still reads; 0: as it comes")
      ->check(not_negative());
  command->add_flag("--scores", o->scores, "the log-probability before a tab");
  add_inference_flags(*command, o->machine);
  command->callback([o] { generate(*o); });
}

}  // namespace

void add_lm(CLI::App& app) {
  CLI::App* lm = app.add_subcommand(
      "lm",
      "language models: train, score, generate\n"
      "Examples:\n"
      "  heed lm train --text book.txt --valid-share 0.1 --model m --minutes 30\n"
      "  heed lm score --model m --text test.txt\n"
      "  heed lm generate --model m --prompt 'Once upon a time'\n");
  lm->require_subcommand(1);
  add_lm_train(*lm);
  add_lm_score(*lm);
  add_lm_generate(*lm);
}

}  // namespace heed::apps
