#include "heed/training/recipe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "heed/base/unicode.h"
#include "heed/base/words.h"

namespace heed {
namespace {

// Tokens a second of transformer-tiny in training: what a device is expected to do. Only orders of
// magnitude matter: which model is worth its time. CPUs with fast products of bf16 are newer ones.
constexpr double kTokensAThread = 5e3, kTokensAThreadWithBf16 = 1e4, kTokensAGpu = 2e6;
// How long a run may take where nobody says.
constexpr double kMinutes = 60;
// Target tokens of subwords for a word.
constexpr double kTokensAWord = 1.25;

// From small to large: the tokens that a corpus must have for a model to be worth it, and what a
// token costs beside one of transformer-tiny, in f32 and bf16 on a CPU and on a GPU, which is
// hardly busy with a small model. transformer-tiny gains nothing from bf16: little of it is
// products.
struct Rung {
  const char* preset;
  double tokens, cost, cost_in_bf16, cost_on_gpu, rate;
};
constexpr Rung kLadder[] = {{"transformer-tiny", 0, 1, 1, 1, 3e-3},
                            {"transformer-small", 2e5, 2.5, 1.2, 1.5, 2e-3},
                            {"transformer-base", 2e7, 20, 8, 8, 1e-3}};
constexpr Rung kRecurrent = {"rnn", 0, 2, 1.3, 2, 2e-3};
// Passes through the corpus that a larger model needs to be better than a smaller one, and those
// from which on two draws of dropout (R-Drop) are worth twice the time.
constexpr double kPasses = 15, kPassesOfTwo = 100;
// An alignment that is learnt first and teaches attention: corpora of so many pairs and at most so
// many words are known to be better for it, and it may take so much of the time. A pair's two words
// take the aligner so many seconds of a thread (docs/align.md).
constexpr double kPairsToAlign = 2000, kWordsToAlign = 5e6, kTimeToAlign = 0.05, kAWord = 2e-5;

std::string printed(const char* form, double x) {
  char text[64];
  std::snprintf(text, sizeof text, form, x);
  return text;
}

std::string shortened(double x) {
  if (x >= 1e6) return printed("%.1f million", x / 1e6);
  return x >= 1e4 ? printed("%.0f,000", x / 1e3) : printed("%.0f", x);
}

// "1 pair", "2500 pairs".
std::string counted(double x, const char* one, const char* many) {
  const std::string number = shortened(x);
  return number + " " + (number == "1" ? one : many);
}

std::string minutes_text(double minutes) {
  if (minutes == 0.5) return "half a minute";
  if (minutes >= 10) return shortened(minutes) + " minutes";
  return printed("%.2g", minutes) + (minutes == 1 ? " minute" : " minutes");
}

std::string vocabulary_text(const Recipe& r, const GivenVocabulary& given) {
  if (given.from_file) return "the vocabulary given";
  const std::string one = r.joint ? "one" : "a", size = std::to_string(r.tokenizer.size);
  if (r.tokenizer.kind == "characters") return one + " vocabulary of characters";
  if (r.tokenizer.kind == "words") return one + " vocabulary of at most " + size + " words";
  return one + " " + r.tokenizer.kind + " vocabulary of " + size;
}

// Scripts without spaces between words, and the characters of a word. In Chinese text that was cut
// into words by hand these have 1.6 (Penn Chinese Treebank: 1.3 million characters, 0.8 million
// words, with punctuation), where kana are among them more; words of alphabets are longer.
struct Unspaced {
  char32_t first, last;
  double characters;
};
constexpr double kIdeographs = 1.7, kLetters = 4;
constexpr Unspaced kUnspaced[] = {
    {0x0E00, 0x0EFF, kLetters},        // Thai, Lao
    {0x0F00, 0x0FFF, kLetters},        // Tibetan
    {0x1000, 0x109F, kLetters},        // Burmese
    {0x1780, 0x17FF, kLetters},        // Khmer
    {0x3005, 0x3007, kIdeographs},     // signs that stand for Chinese characters
    {0x3040, 0x30FF, kIdeographs},     // hiragana, katakana
    {0x3400, 0x4DBF, kIdeographs},     // Chinese characters
    {0x4E00, 0x9FFF, kIdeographs},     // most of them
    {0xF900, 0xFAFF, kIdeographs},     // the same twice
    {0xFF66, 0xFF9F, kIdeographs},     // narrow katakana
    {0x20000, 0x323AF, kIdeographs}};  // seldom ones

// Of its script; 0 where words have spaces.
double characters_of_word(char32_t c) {
  if (c < kUnspaced[0].first) return 0;
  for (const Unspaced& u : kUnspaced)
    if (c >= u.first && c <= u.last) return u.characters;
  return 0;
}

double words_in(std::u32string_view text) {
  double words = 0;
  bool inside = false;  // of a word that spaces end
  for (const char32_t c : text) {
    const bool space = c == U'\u3000' || (c < 128 && is_space(static_cast<char>(c)));
    const double characters = characters_of_word(c);
    if (characters > 0) words += 1 / characters;
    if (!space && characters == 0 && !inside) ++words;
    inside = !space && characters == 0;
  }
  return words;
}

}  // namespace

CorpusFacts corpus_facts(const CorpusIndex& index) {
  constexpr int64_t kMost = 1'000'000;
  std::map<char32_t, double> counts[2];
  double all[2] = {}, words[2] = {}, unspaced[2] = {}, pairs = 0;
  const auto add = [&](const TextPair& pair) {
    const std::string* const sides[] = {&pair.source, &pair.target};
    if (!is_utf8(pair.source) || !is_utf8(pair.target)) return;
    ++pairs;
    for (int side = 0; side < 2; ++side) {
      const std::u32string text = decode_utf8(*sides[side]);
      words[side] += words_in(text);
      for (const char32_t c : text)
        if (!is_white_space(c) && !is_punctuation(c) && !is_number(c))
          ++counts[side][c], ++all[side], unspaced[side] += characters_of_word(c) > 0 ? 1 : 0;
    }
  };
  const int64_t looked = index.look(kMost, add);
  const double share = double(looked) / double(index.lines());
  CorpusFacts facts{.pairs = std::llround(pairs / share),
                    .source_words = std::llround(words[0] / share),
                    .target_words = std::llround(words[1] / share)};
  for (const int side : {0, 1})
    facts.unspaced_characters =
        std::max(facts.unspaced_characters, unspaced[side] / std::max(1.0, all[side]));
  for (const auto& [c, count] : counts[0])
    if (const auto other = counts[1].find(c); other != counts[1].end())
      facts.shared_characters += std::min(count / all[0], other->second / all[1]);
  return facts;
}

std::string family_asked(const ModelConfig& config, const std::set<std::string>& given) {
  if (given.contains("family")) return config.family;
  bool recurrent = given.contains("score") && !has_attention(config);
  fields(config, [&](const char* name, const auto&, const std::string& what) {
    recurrent = recurrent || (given.contains(name) && what.starts_with("rnn"));
  });
  return recurrent ? "rnn" : "";
}

bool has_dropout(const ModelConfig& config) {
  return config.dropout > 0 || config.attention_dropout > 0 || config.inner_dropout > 0;
}

bool can_be_guided(const ModelConfig& config) {
  return has_attention(config) && config.weigh == "soft";
}

bool wants_aligner(const ModelConfig& config, const TrainConfig& training) {
  return training.guided > 0 && config.family == "rnn" && has_attention(config);
}

void end_by_itself(TrainConfig& training, bool validates) {
  if (training.steps > 0 || training.epochs > 0 || training.minutes > 0 || training.patience > 0)
    return;
  if (validates)
    training.patience = 5;
  else
    training.epochs = 20;
}

int64_t hold_out_of(int64_t pairs) {
  return pairs >= 2000 ? std::max<int64_t>(40, pairs / 1000) : 0;
}

Recipe recipe_for(const CorpusFacts& facts, const Budget& budget, const std::string& family,
                  const GivenVocabulary& given) {
  Recipe r;
  const bool gpu = budget.device == Device::cuda;
  const double minutes = budget.minutes > 0 ? budget.minutes : kMinutes;
  const double tokens = std::max(1.0, kTokensAWord * double(facts.target_words));  // a pass
  const bool bf16 = !gpu && budget.bf16;
  const double speed =
      gpu ? kTokensAGpu : (bf16 ? kTokensAThreadWithBf16 : kTokensAThread) * budget.threads;
  const auto passes = [&](const Rung& rung) {
    const double cost = gpu ? rung.cost_on_gpu : bf16 ? rung.cost_in_bf16 : rung.cost;
    return 60 * minutes * speed / cost / tokens;
  };
  const Rung* rung = family == "rnn" ? &kRecurrent : &kLadder[0];
  for (const Rung& larger : kLadder)
    if (family != "rnn" && tokens >= larger.tokens && passes(larger) >= kPasses) rung = &larger;
  const double expected = passes(*rung);

  r.preset = rung->preset;
  r.model = preset(rung->preset);
  // What is seen often is learnt by heart, unless much is dropped; two draws do that for a small
  // model by themselves.
  const bool recurrent = rung == &kRecurrent, twice = expected >= kPassesOfTwo;
  r.model.dropout = tokens >= 2e7 || expected < 6 ? 0.1
                    : expected < 60               ? 0.2
                    : recurrent && twice          ? 0.4
                    : rung == kLadder && twice    ? 0.2
                                                  : 0.3;
  r.tokenizer.kind = given.kind.empty() ? "bpe" : given.kind;
  // 8,000 for half a million words, 32,000 for a hundred million.
  const double words = double(facts.source_words + facts.target_words) / 2;
  r.tokenizer.size = std::clamp<int64_t>(
      500 * std::llround(8000 * std::pow(words / 5e5, 0.25) / 500), 1000, 32000);
  if (given.size > 0) r.tokenizer.size = given.size;
  r.joint = given.joint.value_or(facts.shared_characters >= 0.5);

  TrainConfig& t = r.training;
  t.batch_tokens = gpu ? 4096 : 2048;
  const double steps =
      budget.steps > 0 ? double(budget.steps) : expected * tokens / double(t.batch_tokens);
  t.rate = rung->rate;
  t.warmup = std::clamp<int64_t>(std::llround(steps / 12 / 50) * 50, 100, gpu ? 2000 : 1000);
  if (budget.steps > 0) t.warmup = std::min(t.warmup, budget.steps / 12);
  t.minutes = budget.minutes;
  t.schedule = budget.minutes > 0 ? "cosine" : "inverse_sqrt";
  if (bf16 && rung->cost_in_bf16 < rung->cost) t.precision = "bf16";
  t.average = steps >= 2e4 ? 0.9998 : steps >= 2e3 ? 0.999 : 0.99;
  if (twice) t.rdrop = recurrent ? 3 : 5;
  // A Transformer was better without; and what is drawn is this kind, learnt here.
  if (recurrent && expected >= 60 && r.tokenizer.kind == "bpe" && !given.from_file)
    t.sampling = 0.05;

  const double pairs = double(facts.pairs);
  t.guided_auto = pairs >= kPairsToAlign && words <= kWordsToAlign &&
                  facts.unspaced_characters < 0.1 &&
                  kAWord * words / budget.threads <= kTimeToAlign * 60 * minutes;
  if (t.guided_auto) t.guided = kGuidance;
  r.why = "chosen for " + counted(pairs, "pair", "pairs") + " of about " +
          counted(double(facts.target_words) / std::max(1.0, pairs), "word", "words");
  if (budget.minutes > 0)
    r.why += (expected < 0.5 ? ", a part of a pass" : ", " + counted(expected, "pass", "passes")) +
             " in " + minutes_text(budget.minutes);
  r.why += " on " + (gpu ? "a GPU" : counted(budget.threads, "thread", "threads")) + ": " +
           r.preset + printed(" with dropout %g, ", r.model.dropout) + vocabulary_text(r, given) +
           printed(", rate %g", t.rate);
  if (t.precision == "bf16") r.why += ", in bf16";
  if (t.rdrop > 0) r.why += ", R-Drop";
  if (t.guided_auto) r.why += ", guided by an alignment";
  if (t.sampling > 0) r.why += ", sampled subwords";
  return r;
}

std::vector<Rule> recipe_rules() {
  return {
      {"model",
       "rnn for --family rnn, else transformer-tiny; from 200,000 target tokens on "
       "transformer-small, from 20 million on transformer-base, where the time is enough for 15 "
       "passes"},
      {"dropout",
       "0.1 for fewer than 6 passes and from 20 million tokens on, 0.2 for fewer than 60, 0.3; "
       "with R-Drop 0.2 for transformer-tiny, 0.4 for rnn"},
      {"vocabulary",
       "bpe of 8,000 for half a million words, growing with their fourth root (without spaces 1.7 "
       "characters of Chinese or Japanese are a word, 4 of Thai); one for both sides where half of "
       "the characters are shared"},
      {"batch", "2,048 tokens on a CPU, 4,096 on a GPU"},
      {"precision",
       "bf16 on a GPU, and on a CPU with AVX-512 BF16 for all models but transformer-tiny, which "
       "gains nothing from it; else f32"},
      {"rate",
       "3e-3, 2e-3, 1e-3 by model, warm-up a twelfth of the steps; with --minutes a cosine "
       "down to 0 at their end"},
      {"guided",
       "by an alignment that is learnt first, from 2,000 pairs up to 5 million words of scripts "
       "with "
       "spaces, where it takes at most a twentieth of the time"},
      {"regularization", "from 100 passes on R-Drop; rnn: from 60 on also sampled subwords"},
      {"validation",
       "without files, one of 40 lines of at least 2,000 is held out, about 1,000 at most"},
  };
}

}  // namespace heed
