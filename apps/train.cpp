// heed train: from two text files to a model's folder.
#include <unistd.h>

#include <cstdio>

#include "apps/commands.h"
#include "apps/corpus_files.h"
#include "apps/flags.h"
#include "apps/training.h"
#include "heed/alignment/aligner.h"
#include "heed/attention/score.h"
#include "heed/attention/weigh.h"
#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/data/corpus_check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/metrics/metrics.h"
#include "heed/ops/bf16.h"
#include "heed/training/learnt_links.h"
#include "heed/training/recipe.h"
#include "heed/training/run_corpora.h"
#include "heed/translation/translator.h"
#include "heed/view/heatmap.h"

namespace heed::apps {
namespace {

constexpr const char* kAuto = "auto";  // the preset that is none: recipe.h chooses

struct Options {
  GivenFiles given, given_valid;
  CorpusFiles corpus, valid;
  std::string config;  // with_settings() reads it
  std::string folder, from, preset = kAuto, log, tensorboard, tokenize = "13a";
  TokenizerOptions tokenizer;
  std::string source_tokenizer, target_tokenizer;  // existing ones
  CorpusOptions cleaning;
  std::string source_normalization = "identity";
  bool joint = false, resume = false, cut = false, list = false, preset_given = false;
  bool anyway = false, normalization_given = false, guided_auto = false;
  bool tokens_given = false, vocabulary_given = false, joint_given = false;
  int64_t samples = 2;
  double deadline = 300;
  Machine machine;
};

TokenizerPair learn_tokenizers(const Options& o) {
  const auto learn = [&](Side side, const std::string& given) {
    if (!given.empty()) return load_tokenizer(o.tokenizer.kind, given);
    TokenizerOptions options = o.tokenizer;
    if (side == Side::source) options.normalization = o.source_normalization;
    return learn_tokenizer(texts(o.corpus, side), options);
  };
  if (o.joint) {
    const auto both = learn(Side::both, o.source_tokenizer);
    return {both, both};
  }
  return {learn(Side::source, o.source_tokenizer), learn(Side::target, o.target_tokenizer)};
}

// Says what speaks against the corpora; throws Error if it is grave, unless it is wanted so.
void tell_doubts(const Options& o, const std::vector<CorpusDoubt>& all) {
  const CorpusDoubt* grave = nullptr;
  for (const CorpusDoubt& doubt : all) {
    if (doubt.grave && !o.anyway && !o.resume && !grave)
      grave = &doubt;
    else
      std::fprintf(stderr, "heed: warning: %s\n", doubt.told.c_str());
  }
  if (grave) fail(grave->told, ". Nothing was trained; --anyway trains all the same");
}

void show_sample(const ModelFolder& model, const Translation& t, const std::string& reference) {
  std::fprintf(stderr, "  source      %s\n  translation %s\n  reference   %s\n",
               t.source.text.c_str(), t.best().text.c_str(), reference.c_str());
  const auto& c = t.best();
  if (c.weights.empty() || c.target.ids.size() > 24 || t.source.ids.size() > 24) return;
  Heatmap map{model.tokenizers.target->pieces(c.target.ids),
              model.tokenizers.source->pieces(t.source.ids),
              {}};
  for (size_t i = 0; i < c.target.ids.size(); ++i)
    for (size_t j = 0; j < t.source.ids.size(); ++j) map.weights.push_back(double(c.weights[i][j]));
  std::fprintf(stderr, "%s",
               draw_terminal(map, stderr_is_terminal() ? Ink::color : Ink::plain).c_str());
}

std::optional<Validation> look_at(const Options& o, const Translator& translator,
                                  const ValidSet& valid, int round) {
  StatusLine status;
  ValidateOptions options{.tokenize = o.tokenize};
  options.progress = [&](int64_t done) {
    status.show("  validating: " + std::to_string(done) + " of " +
                std::to_string(valid.sources.size()) + " sentences");
  };
  // Several ranks have to agree first that they end.
  if (ranks()->count() == 1) options.wanted = [] { return stop_signal() == 0; };
  const std::optional<Validation> out = validate(translator, valid, *ranks(), options);
  status.clear();
  if (!out || valid.sources.empty() || !ranks()->first()) return out;
  for (int64_t i = 0; i < o.samples; ++i) {
    const size_t at = static_cast<size_t>(round * o.samples + i) % valid.sources.size();
    const bool attends = has_attention(translator.model().config);
    const auto one =
        translator.translate({valid.sources[at]}, {.search = {.beam = 1, .want_weights = attends}});
    show_sample(translator.model(), one[0], valid.targets[at]);
  }
  return out;
}

// Made by the first rank, and opened by the others once it is there.
ModelFolder model_for(const Options& o, const ModelConfig& config, const TrainConfig& training,
                      int64_t lines) {
  if (o.resume) {
    ModelFolder model = resumed_model(o.folder, "--resume");
    require(!is_language_model(model.config), o.folder,
            ": a language model, not a translator; 'heed lm train --resume' goes on with it");
    return model;
  }
  if (!ranks()->first()) {
    ranks()->meet("the model's folder");
    return model_of_first_rank(o.folder);
  }
  const auto learnt = [&] {
    tell_learning(o.tokenizer, lines * (o.joint ? 2 : 1));
    return create_model(o.folder, config, training, learn_tokenizers(o));
  };
  ModelFolder model =
      o.from.empty() ? learnt() : continue_model(o.folder, o.from, config, training);
  ranks()->meet("the model's folder");
  return model;
}

// What can be said of the arguments before anything is read.
void check_usage(const Options& o, const ModelConfig& config, const TrainConfig& training,
                 const std::set<std::string>& model_given,
                 const std::set<std::string>& train_given) {
  want(!o.corpus.source.empty(), "--source and --target (or --tsv) are required");
  want(!o.folder.empty(), "--model is required, the folder to write to");
  want(!is_language_model(config),
       "a translator wants at least one of --encoder-layers; 'heed lm train' trains language "
       "models");
  want(training.guided == 0 || training.guided_auto || !o.corpus.alignment.empty(),
       "--guided wants --alignment, a file; or take --guided auto");
  want(!training.guided_auto || o.corpus.alignment.empty(),
       "--guided auto learns an alignment; with --alignment give its weight: --guided 0.2");
  want(training.guided == 0 || can_be_guided(config),
       "--guided teaches soft attention: --score none has none, and --weigh " + config.weigh +
           " is not for it");
  want(o.resume || training.guided > 0 || o.corpus.alignment.empty(),
       "--alignment is what --guided teaches; give --guided 0.1, say, or leave it out");
  want(!o.joint || o.target_tokenizer.empty(),
       "--joint has one vocabulary for both languages; --source-tokens-file names it");
  want(o.samples >= 0, "--samples wants a number of at least 0");
  want(o.cleaning.max_length > 0, "--max-length wants a number above 0");
  want(o.cleaning.max_ratio >= 1, "--max-ratio wants a number of at least 1");
  const int64_t longest =
      std::min(o.cleaning.max_length, longest_sentence(config).value_or(INT64_MAX));
  want(o.resume || training.batch_tokens > longest,
       "--batch-tokens " + std::to_string(training.batch_tokens) + " does not hold a sentence of " +
           std::to_string(longest) + " pieces (--max-length) and its end");
  const std::vector<std::string> kinds = tokenizer_kinds();
  if (std::find(kinds.begin(), kinds.end(), o.tokenizer.kind) == kinds.end())
    want(false, unknown_name("tokenizer", o.tokenizer.kind, kinds));
  want(o.resume || training.sampling == 0 || o.tokenizer.kind == "bpe" ||
           o.tokenizer.kind == "unigram",
       "--sampling draws other subwords, and --tokens " + o.tokenizer.kind +
           " has none; take --tokens bpe or unigram, or leave --sampling out");
  if (o.source_normalization != "identity" && o.source_normalization != "nfkc")
    want(false, unknown_name("normalization", o.source_normalization, {"identity", "nfkc"}));
  const bool learns_source = !o.resume && o.source_tokenizer.empty();
  want(!o.normalization_given || learns_source,
       "--source-normalization is for a vocabulary that is learnt; this one has its own");
  want(o.source_normalization == "identity" ||
           (!o.joint && (o.tokenizer.kind == "bpe" || o.tokenizer.kind == "unigram")),
       "--source-normalization nfkc is for --tokens bpe or unigram, and a vocabulary of the "
       "source's own (no --joint): a target that is normalized cannot be written as it was");
  want(!(train_given.contains("average") && train_given.contains("average_last")),
       "--average-last takes the place of --average's mean; give one of them");
  as_usage([&] {
    if (!o.resume)
      check(config), want_of_family(config, model_given);  // what is resumed has its own
    check(training);
    make_bleu({.tokenizer = o.tokenize});
  });
  if (!o.resume) want_draws(config, training);
}

// What flags change: a preset, or what is chosen for a corpus, where they say nothing of it.
Recipe ground_of(Options& o, const CorpusFacts& facts, const std::string& family,
                 const TrainConfig& given, bool may_be_bf16) {
  Recipe r;
  if (o.preset != kAuto) {
    r.model = chosen_preset(o.preset, ModelKind::translator);
    return r;
  }
  const bool learnt = o.source_tokenizer.empty() && o.target_tokenizer.empty();
  GivenVocabulary vocabulary{.from_file = !learnt};
  if (o.tokens_given) vocabulary.kind = o.tokenizer.kind;
  if (o.vocabulary_given) vocabulary.size = o.tokenizer.size;
  if (o.joint_given || o.normalization_given || !learnt) vocabulary.joint = o.joint;
  r = recipe_for(facts,
                 {.device = current_arena().device(),
                  .threads = threads(),
                  .minutes = given.minutes,
                  .steps = given.steps,
                  .bf16 = may_be_bf16 && bf16_products_are_fast()},
                 family, vocabulary);
  o.tokenizer.kind = r.tokenizer.kind, o.tokenizer.size = r.tokenizer.size, o.joint = r.joint;
  return r;
}

void run(Options o, const Flags<ModelConfig>& model_flags, const Flags<TrainConfig>& train_flags) {
  const auto began = std::chrono::steady_clock::now();
  if (o.list) return print_tables(ModelKind::translator);
  outlive_readers();
  const bool first = ranks(o.deadline)->first();
  take_share(o.machine);
  o.corpus = chosen_files(o.given, "--");
  o.valid = chosen_files(o.given_valid, "--valid-");
  ModelConfig config;
  TrainConfig training;
  train_flags.apply(training);
  const auto ground = [&, given = training](const CorpusFacts& facts) {
    ModelConfig asked;
    model_flags.apply(asked);
    const bool may_be_bf16 =
        !train_flags.given().contains("precision") || given.precision == "bf16";
    return ground_of(o, facts, family_asked(asked, model_flags.given()), given, may_be_bf16);
  };
  std::optional<ModelConfig> continued;
  if (!o.from.empty()) {
    want(!o.resume, "--from begins anew from a model, --resume goes on; give one of them");
    want(!o.preset_given && !o.tokens_given && !o.vocabulary_given && !o.joint_given &&
             o.source_tokenizer.empty() && o.target_tokenizer.empty(),
         "--from takes the model as it is: its preset and tokenizers cannot be chosen");
    for (const std::string& name : model_flags.given())
      want(name.ends_with("dropout"), "--from takes the model as it is: " + flag_of(name) +
                                          " cannot be chosen, only what is dropped");
    continued = open_model(o.from, Parameters::leave).config;
    want(!is_language_model(*continued), o.from + ": a language model, not a translator");
  }
  const auto configure = [&](const Recipe& recipe) {
    config = continued ? *continued : recipe.model, training = recipe.training;
    if (continued) training.sampling = 0;  // what its tokenizer can draw is not looked at
    model_flags.apply(config);
    if (!has_dropout(config)) training.rdrop = 0;  // is chosen for one that drops
    if (!o.corpus.alignment.empty() && o.preset == kAuto) training.guided = kGuidance;
    if (continued || !can_be_guided(config)) training.guided = 0;
    train_flags.apply(training);
    if (!continued) config.aligner = wants_aligner(config, training), model_flags.apply(config);
    const bool chosen = training.guided_auto && training.guided > 0 &&
                        !train_flags.given().contains("guided") && o.corpus.alignment.empty();
    training.guided_auto = chosen || o.guided_auto;
    if (!o.resume) share_updates(training, train_flags.given().contains("accumulate"));
    end_by_itself(training, !o.valid.source.empty() || training.hold_out > 0);
    check_usage(o, config, training, model_flags.given(), train_flags.given());
  };
  configure(ground({}));  // mistakes in the arguments are told before anything is read
  want_same_settings(config, training);
  use(o.machine);
  for (const Paths& files : {o.corpus.source, o.corpus.target, o.corpus.alignment, o.valid.source,
                             o.valid.target, Paths(o.source_tokenizer), Paths(o.target_tokenizer)})
    want_files({files.begin(), files.end()});
  std::optional<FolderLock> lock;
  if (first) lock.emplace(o.folder);
  if (!o.resume && first) want_new_folder(o.folder, {o.log, o.tensorboard}, "--resume");
  TrainingLog log(first ? o.log : "", first ? o.tensorboard : "");
  if (o.cut) o.cleaning.surplus = Surplus::cut;
  std::shared_ptr<const CorpusIndex> index, valid_index;
  const auto look_through = [&](const CorpusFiles& files, const std::filesystem::path& kept = {}) {
    return files.source.empty() ? nullptr
                                : std::make_shared<CorpusIndex>(files, o.cleaning.surplus, kept);
  };
  if (!o.resume && first) {
    want_text(o.corpus);
    index = look_through(o.corpus), valid_index = look_through(o.valid);
    Recipe recipe = ground(o.preset == kAuto ? corpus_facts(*index) : CorpusFacts());
    if (o.valid.source.empty() && o.preset == kAuto)
      recipe.training.hold_out = hold_out_of(index->lines());
    configure(recipe);
    // Of what was chosen a flag may have taken something back.
    const auto unsay = [&](const std::string& words) {
      if (const size_t at = recipe.why.find(words); at != std::string::npos)
        recipe.why.erase(at, words.size());
    };
    if (!training.guided_auto) unsay(", guided by an alignment");
    if (training.rdrop == 0) unsay(", R-Drop");
    if (!continued && !recipe.why.empty()) std::fprintf(stderr, "%s\n", recipe.why.c_str());
    if (continued)
      std::fprintf(stderr, "from %s, as it is, with dropout %g, rate %g%s\n", o.from.c_str(),
                   config.dropout, training.rate, training.rdrop > 0 ? ", R-Drop" : "");
    if (!o.valid.source.empty()) training.hold_out = 0;  // its lines would be lost
    want(training.patience == 0 || !o.valid.source.empty() || training.hold_out > 0,
         "--patience wants --valid-source and --valid-target, or --hold-out");
  }
  std::shared_ptr<const HeldOut> held_out;
  const auto hold_out = [&] {
    if (training.hold_out > 0) held_out = std::make_shared<HeldOut>(*index, training.hold_out);
  };
  if (!o.resume && first) hold_out();  // before anything is written
  ModelFolder model = model_for(o, config, training, index ? index->lines() : 0);
  if (first) lock->clean();
  if (o.resume) {
    // What is read from a file has the kind and the size that it has.
    const bool learnt = o.source_tokenizer.empty() && o.target_tokenizer.empty();
    check_resumed(model, {.preset = o.preset_given ? o.preset : "",
                          .model = config,
                          .model_given = model_flags.given(),
                          .training = training,
                          .training_given = train_flags.given(),
                          .tokens = o.tokens_given && learnt ? o.tokenizer.kind : "",
                          .joint = o.joint,
                          .vocabulary = o.vocabulary_given && learnt ? o.tokenizer.size : 0});
    training = training_of(o.folder);
    train_flags.apply(training);
    training.guided_auto = training.guided > 0 && (training.guided_auto || o.guided_auto);
    check(training);
    share_updates(training, /*given=*/true);
    want_draws(model.config, training);
    want(!training.guided_auto || o.corpus.alignment.empty(),
         "this run learns its alignment (--guided auto); leave --alignment out");
    want(training.guided == 0 || training.guided_auto || !o.corpus.alignment.empty(),
         "this run is guided by an alignment; give --alignment again");
  }
  // Where the lines of a corpus are that is streamed is written down beside the model.
  const std::filesystem::path kept = std::filesystem::path(o.folder) / kCorpusIndex;
  if (first && !index) index = look_through(o.corpus, kept);
  const auto keep_index = [&, read = index] {
    if (first && !read->was_kept() && read->lines() > o.cleaning.window) read->keep(kept);
  };
  if (!o.resume) keep_index();
  ranks()->meet("the corpus's index");
  if (!first) index = look_through(o.corpus, kept);
  if (!valid_index) valid_index = look_through(o.valid);
  if (!first && !o.resume) training = training_of(o.folder);
  if (!first || o.resume) hold_out();
  if (const std::optional<int64_t> most = longest_sentence(model.config))
    o.cleaning.max_length = std::min(o.cleaning.max_length, *most);
  std::optional<LearntLinks> learnt_links;
  if (training.guided_auto) {
    if (first) {
      StatusLine status;
      learnt_links.emplace(o.corpus, valid_index.get(), o.folder, [&](const AlignerProgress& p) {
        status.show("aligning words: " + std::string(p.stage) + ", pass " + std::to_string(p.pass) +
                    " of " + std::to_string(p.passes));
      });
      status.clear();
      std::fprintf(stderr, "%s\n", learnt_links->told().c_str());
    }
    o.corpus.alignment = ranks()->gather("the alignment", first ? learnt_links->path() : "")[0];
    index = look_through(o.corpus, kept);
  }
  CorpusOptions cleaning = o.cleaning;
  cleaning.held_out = held_out;
  const RunCorpora corpora = read_corpora(index, valid_index, model.tokenizers, cleaning, training);
  std::fprintf(stderr, "%s", corpora.found.text().c_str());
  const bool validates = corpora.valid_corpus != nullptr;
  if (validates) std::fprintf(stderr, "%s", corpora.valid_corpus->report().text().c_str());
  tell_doubts(o, corpora.doubts);
  AlignedLines by_teacher;
  if (training.guided > 0 && first)
    by_teacher = learnt_links && valid_index ? learnt_links->held_out()
                                             : given_links(*index, held_out.get());
  std::fprintf(stderr, "%s with %s attention: %.1f million parameters; vocabularies of %d and %d\n",
               model.config.family.c_str(), model.config.score.c_str(),
               double(model.params.count()) / 1e6, model.tokenizers.source->size(),
               model.tokenizers.target->size());
  Trainer trainer(*model.model, model.params, corpora.corpus, training, model.path, ranks());
  if (o.resume) trainer.resume();
  int round = 0;
  std::function<std::optional<Validation>()> look;
  const Translator translator(model);
  if (validates) look = [&] { return look_at(o, translator, corpora.valid, round++); };
  const auto begun = [&] {
    if (!o.resume || !first) return;
    keep_index();
    keep_training(o.folder, training);
    // Guided from here on: the head that is taught aligns, unless another was chosen.
    const AlignmentHead taught = model.model->guided_head(), none;
    if (training.guided > 0 && model.alignment == none && taught != none)
      keep_alignment(o.folder, taught);
  };
  run_training(
      trainer,
      {.folder = o.folder,
       .log = log,
       .deadline = o.deadline,
       .validate = look,
       .validation_set = validates ? corpora.valid_corpus->identity() + ", " + o.tokenize : "",
       .begun = begun,
       .validation_cost = validation_cost(corpora.valid, current_arena().device()),
       .since = began});
  if (training.guided > 0 && first)
    if (const std::string told = keep_threshold(o.folder, by_teacher); !told.empty())
      std::fprintf(stderr, "%s\n", told.c_str());
}

}  // namespace

void add_train(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* train = app.add_subcommand(
      "train",
      "train a translator from parallel text\n"
      "Examples:\n"
      "  heed train --source a.en --target a.de --model m --minutes 20\n"
      "  heed train --tsv pairs.tsv.gz --valid-tsv held-out.tsv.gz --model m\n"
      "  heed train ... --score bilinear --wiring after --tokens words --vocabulary 5000\n"
      "  heed train --source a.en --target a.de --model m --resume    go on where it stopped\n"
      "  heed train --source a.en --target a.de --from opus --rate 1e-4 --model m    fine-tuning\n"
      "  heed train ... --guided auto                  attention that aligns words, from the "
      "first\n"
      "  heed train --config run.json --model m --seed 2              settings of a file\n"
      "  mpirun -n 8 heed train ...                    on several machines, the same bytes (make "
      "mpi)\n"
      "  heed train --list                                            scores, weights, presets\n");
  train->add_option("--source", o->given.source,
                    "source sentences, one a line (plain, gzip, zstd or xz); several files, or a "
                    "pattern in quotes ('part-*.en.zst'), are one corpus");
  train->add_option("--target", o->given.target, "their translations, in as many files");
  train->add_option("--tsv", o->given.tsv, "instead: source, tab, translation in each line");
  train->add_option("--alignment", o->given.alignment,
                    "word links in Pharaoh's form, for --guided (which can learn them itself)");
  train->add_option("--valid-source", o->given_valid.source, "validation sentences");
  train->add_option("--valid-target", o->given_valid.target, "their translations");
  train->add_option("--valid-tsv", o->given_valid.tsv,
                    "instead: source, tab, translation in each line");
  train->add_option("--model", o->folder, "the folder to write to");
  CLI::Option* preset =
      train->add_option("--preset", o->preset,
                        "what flags change: auto (chosen for the corpus, the device and "
                        "--minutes), rnn-small, rnn, transformer-tiny, "
                        "transformer-small, transformer-base");
  train->add_option("--from", o->from,
                    "begin as this model is, of heed's or imported, with its tokenizers; a low "
                    "--rate keeps what it knows");
  train->add_flag("--resume", o->resume, "go on from the folder's checkpoint");
  train->add_flag("--list", o->list, "list scores, ways to weigh and presets");
  CLI::Option* tokens =
      train->add_option("--tokens", o->tokenizer.kind, "unigram, bpe, words or characters");
  CLI::Option* vocabulary = train
                                ->add_option("--vocabulary", o->tokenizer.size,
                                             "its size at most (subwords: and 256 bytes)")
                                ->check(above_zero());
  train->add_option("--min-count", o->tokenizer.min_count, "rarer words become unknown")
      ->check(above_zero());
  CLI::Option* joint =
      train->add_flag("--joint,!--no-joint", o->joint, "one vocabulary for both languages");
  train->add_option("--source-tokens-file", o->source_tokenizer,
                    "an existing vocabulary or SentencePiece model");
  train->add_option("--target-tokens-file", o->target_tokenizer, "the same for the target");
  CLI::Option* normalization =
      train->add_option("--source-normalization", o->source_normalization,
                        "of subwords: identity, or nfkc (² is 2, … is ..., spaces are one space); "
                        "the target is always kept as it is");
  train->add_flag("--anyway", o->anyway,
                  "train even if much of the corpus is left out, unknown, the same on both sides "
                  "or the wrong way round");
  train->add_option("--max-length", o->cleaning.max_length, "longer pairs are left out (pieces)");
  train->add_option("--max-ratio", o->cleaning.max_ratio,
                    "pairs whose lengths differ more are left out");
  train->add_flag("--cut", o->cut, "files of different length: use the lines that both have");
  train->add_option("--tokenize", o->tokenize,
                    "BLEU's tokenizer in validation (heed score --help)");
  train->add_option("--samples", o->samples, "translations shown at each validation");
  train->add_option("--log", o->log, "also write progress to this file, a JSON object a line");
  train->add_option("--tensorboard", o->tensorboard,
                    "also write progress into this folder, as TensorBoard's curves");
  add_deadline_flag(*train, o->deadline);
  train->add_option(kConfigFlag, o->config, "a JSON file with settings: flags, without dashes");
  add_machine_flags(*train, o->machine);
  auto model_flags = std::make_shared<Flags<ModelConfig>>(*train, kModelGroup, std::nullopt,
                                                          std::set<std::string>{"reads"});
  auto train_flags = std::make_shared<Flags<TrainConfig>>(*train, kTrainingGroup, TrainConfig(),
                                                          std::set<std::string>{"guided_auto"});
  train->get_option("--guided")
      ->transform(CLI::Validator(
          [o](std::string& given) {
            if (given == "auto") o->guided_auto = true, given = std::to_string(kGuidance);
            return std::string();
          },
          "FLOAT or auto", "auto"));
  train->callback([=] {
    o->preset_given = preset->count() > 0 && o->preset != kAuto;
    o->joint_given = joint->count() > 0;
    o->normalization_given = normalization->count() > 0;
    o->tokens_given = tokens->count() > 0;
    o->vocabulary_given = vocabulary->count() > 0;
    run(*o, *model_flags, *train_flags);
  });
}

}  // namespace heed::apps
