// Shortlists: an output layer that computes some words alone, and where the words come from.
#include "heed/translation/shortlist.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "heed/files/atomic_file.h"
#include "heed/ops/bf16.h"
#include "heed/ops/int8.h"
#include "heed/ops/output_columns.h"
#include "heed/search/engine.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"
#include "tests/folder.h"

namespace heed {
namespace {

constexpr Id kEnd = 3;
constexpr int64_t kSource = 30, kTarget = 90;

std::vector<Id> some_of(int64_t n, int64_t count, Random& random) {
  std::vector<Id> out{kEnd};
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<Id>(random.below(static_cast<uint32_t>(n))));
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// ---- the output layer

// Of a row-major weight and of a table, in f32, int8 and bf16, with a bias and without.
TEST(OutputColumns, HaveTheBitsOfTheWholeProduct) {
  Random random(5);
  const int64_t k = 67;
  for (const int64_t n : {5, 90, 1000})
    for (const bool table : {false, true})
      for (const std::string type : {"f32", "int8", "bf16"})
        for (const bool biased : {false, true}) {
          SCOPED_TRACE(std::to_string(n) + (table ? ", table, " : ", ") + type +
                       (biased ? ", bias" : ""));
          const Tensor stored = normal(table ? Shape{n, k} : Shape{k, n}, 1, random);
          const int outputs = table ? 0 : 1;
          const Tensor kept = type == "int8"   ? int8_weight(stored, outputs)
                              : type == "bf16" ? bf16_weight(stored, outputs)
                                               : stored;
          const Tensor w = table ? transpose(kept, 0, 1) : kept;
          std::optional<Tensor> bias;
          if (biased) bias = normal({n}, 1, random);
          for (const int64_t rows : {1, 3, 8, 40}) {
            const Tensor x = normal({rows, k}, 1, random);
            const std::vector<double> whole = linear(x, w, bias).values();
            for (const int64_t count : {0, 1, 15, 16, 40, 200}) {  // and the end
              const std::vector<Id> ids = some_of(n, count, random);
              const Tensor some = OutputColumns(w, bias, ids)(x);
              ASSERT_EQ(some.shape(), (Shape{rows, std::ssize(ids)}));
              int different = 0;
              for (int64_t r = 0; r < rows; ++r)
                for (size_t j = 0; j < ids.size(); ++j)
                  different +=
                      !same_bits(some.data<float>()[r * std::ssize(ids) + static_cast<int64_t>(j)],
                                 static_cast<float>(whole[static_cast<size_t>(r * n + ids[j])]));
              EXPECT_EQ(different, 0) << rows << " rows, " << ids.size() << " columns";
            }
          }
        }
}

TEST(OutputColumns, SayWhatTheyCannotTake) {
  Random random(5);
  const Tensor w = normal({4, 10}, 1, random);
  const auto said = [&](const Tensor& weight, std::vector<Id> ids) {
    return message([&] { OutputColumns(weight, std::nullopt, ids); });
  };
  EXPECT_EQ(said(w, {1, 10}), "output_columns: wants outputs from 0 to 9");
  EXPECT_EQ(said(w, {-1}), "output_columns: wants outputs from 0 to 9");
  EXPECT_EQ(said(w, {}), "output_columns: wants outputs from 0 to 9");
  EXPECT_TRUE(
      has(said(zeros({4, 10}, Type::f64), {1}), "wants a weight [K, N] of f32, i8 or bf16"));
}

// ---- in a running batch

ModelConfig config_of(const std::string& family, bool tied) {
  ModelConfig c;
  c.size = 16, c.dropout = 0, c.positions = 60, c.tied = tied;
  if (family == "transformer") {
    c.family = family, c.score = "scaled_dot", c.heads = 2, c.inner = 24;
    c.encoder_layers = c.decoder_layers = 2;
  }
  return c;
}

// Some share most of their lists, others hardly anything; one may say a single word and the end.
std::vector<Engine::Request> requests(int count, int64_t beam) {
  Random random(11);
  std::vector<Engine::Request> out;
  for (int i = 0; i < count; ++i) {
    Engine::Request r;
    for (uint32_t n = random.below(9); n-- > 0;)
      r.source.push_back(4 + static_cast<Id>(random.below(kSource - 4)));
    r.source.push_back(kEnd);
    r.options.beam = r.options.best = beam;
    r.options.max_extra = 3 + static_cast<int64_t>(random.below(20));
    r.options.want_weights = i % 5 == 0, r.options.sample = i % 7 == 6;
    r.options.temperature = i % 2 ? 1 : 0.7;
    r.options.repetition_penalty = i % 4 == 3 ? 1.5 : 1;
    if (r.options.sample) r.options.best = 1;
    constexpr int64_t kCounts[] = {1, 3, 12, 40, 300};
    r.shortlist = some_of(kTarget, kCounts[random.below(5)], random);
    if (i % 6 == 5) r.shortlist.clear();  // all words
    if (i % 3 == 0 && r.shortlist.size() > 1) r.prefix = {r.shortlist.back()};
    r.number = i, r.slots = 6;
    out.push_back(std::move(r));
  }
  return out;
}

void expect_same(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ids, b[i].ids);
    EXPECT_EQ(a[i].log_probability, b[i].log_probability);
    EXPECT_EQ(a[i].score, b[i].score);
    EXPECT_EQ(a[i].weights, b[i].weights);
  }
}

TEST(Shortlists, ASentencesBytesDependOnItsOwnListAlone) {
  for (const char* family : {"rnn", "transformer"})
    for (const bool tied : {false, true}) {
      const Params params(5);
      const auto model =
          make_model(params, config_of(family, tied), {.source = kSource, .target = kTarget});
      for (const int64_t beam : {1, 4}) {
        SCOPED_TRACE(std::string(family) + (tied ? ", tied" : "") + ", beam " +
                     std::to_string(beam));
        const std::vector<Engine::Request> all = requests(24, beam);
        Engine engine(*model);
        Random random(3);
        std::vector<Engine::Result> found(all.size());
        size_t next = 0, finished = 0;
        const auto arrive = [&](size_t count) {
          for (; count > 0 && next < all.size(); --count, ++next)
            engine.submit(all[next], [&, i = next](Engine::Result r, std::exception_ptr e) {
              EXPECT_FALSE(e);
              found[i] = std::move(r), ++finished;
            });
        };
        arrive(4);
        while (engine.step() || next < all.size()) arrive(random.below(4));
        EXPECT_EQ(finished, all.size());
        for (size_t i = 0; i < all.size(); ++i) {
          SCOPED_TRACE(i);
          const Engine::Request& r = all[i];
          expect_same(found[i].hypotheses, Engine(*model).decode({r})[0].hypotheses);
          for (const Hypothesis& h : found[i].hypotheses)
            for (const Id w : h.ids)
              EXPECT_TRUE(r.shortlist.empty() || std::ranges::binary_search(r.shortlist, w)) << w;
        }
      }
    }
}

// What is computed of some words is what all words' scores say of these.
TEST(Shortlists, AListsProbabilitiesAreThoseOfAllWordsMadeToSumToOne) {
  const Params params(5);
  const auto model =
      make_model(params, config_of("transformer", true), {.source = kSource, .target = kTarget});
  Random random(2);
  Engine::Request r{.source = {7, 9, kEnd}, .shortlist = some_of(kTarget, 30, random)};
  r.options.beam = 1, r.options.max_ratio = 0, r.options.max_extra = r.options.min_length = 6;
  const Hypothesis h = Engine(*model).decode({r})[0].hypotheses.at(0);
  ASSERT_EQ(h.ids.size(), 6u);
  std::vector<Id> in = h.ids;
  in.insert(in.begin(), 2);
  const NoTape off;
  const Tensor all =
      model->logits(model->forward({ids(r.source, {1, 3}), {3}}, ids(in, {1, 7}), false).hidden);
  double wanted = 0;
  for (int64_t t = 0; t < 7; ++t) {
    const float* const row = all.data<float>() + t * kTarget;
    double sum = 0;
    for (const Id w : r.shortlist) sum += std::exp(double(row[w]));
    wanted += double(row[t < 6 ? h.ids[static_cast<size_t>(t)] : kEnd]) - std::log(sum);
  }
  EXPECT_LT(std::fabs(h.log_probability - wanted), 1e-4);
  // All words in the list are no list.
  Engine::Request free = r, full = r;
  free.shortlist.clear();
  full.shortlist.resize(kTarget);
  std::iota(full.shortlist.begin(), full.shortlist.end(), 0);
  Engine engine(*model);
  const auto both = engine.decode({free, full});
  expect_same(both[0].hypotheses, both[1].hypotheses);
}

TEST(Shortlists, AListThatCannotBeIsRefused) {
  const Params params(5);
  const auto model =
      make_model(params, config_of("rnn", false), {.source = kSource, .target = kTarget});
  Engine engine(*model);
  const auto said = [&](std::vector<Id> list) {
    return message([&] { engine.decode({{.source = {kEnd}, .shortlist = std::move(list)}}); });
  };
  EXPECT_EQ(said({3, 90}),
            "search: a shortlist has token 90 after 3 of 90; wanted: rising, and of "
            "the vocabulary");
  EXPECT_TRUE(has(said({4, 3}), "token 3 after 4 of 90"));
  EXPECT_TRUE(has(said({-1}), "token -1 after -1"));
  for (const Parameter& p : params.all())
    std::ranges::fill(std::span(p.value.data<float>(), static_cast<size_t>(p.value.count())),
                      std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(has(said({3, 4, 5}), "the model's scores are not numbers"));
}

// ---- where lists come from

// A corpus that is nearly a word by word translation, and a model's folder with its vocabularies.
struct Corpus {
  std::vector<std::string> source, target;
};
Corpus corpus() {
  Random random(9);
  Corpus out;
  for (int i = 0; i < 400; ++i) {
    std::string source, target;
    for (uint32_t n = 2 + random.below(6); n-- > 0;) {
      const std::string word = std::to_string(random.below(40));
      source += "s" + word + " ", target += "t" + word + " ";
    }
    out.source.push_back(source + "Rio"), out.target.push_back(target + "Rio");
  }
  return out;
}

TokenizerPair tokenizers_of(const Corpus& c, const std::string& kind) {
  const auto learn = [&](const std::vector<std::string>& lines) {
    size_t next = 0;
    return learn_tokenizer(
        [&]() -> std::optional<std::string> {
          return next < lines.size() ? std::optional(lines[next++]) : std::nullopt;
        },
        {.kind = kind, .size = 120});
  };
  return {learn(c.source), learn(c.target)};
}

TEST(Shortlist, IsLearntFromPairs) {
  const Corpus c = corpus();
  for (const char* kind : {"words", "bpe"}) {
    SCOPED_TRACE(kind);
    const TokenizerPair tokenizers = tokenizers_of(c, kind);
    const Shortlist list =
        learn_shortlist(tokenizers, c.source, c.target, {.always = 2, .best = 3});
    size_t wanted = 0, there = 0, allowed = 0;
    for (size_t i = 0; i < c.source.size(); ++i) {
      const std::vector<Id> source =
          framed(tokenizers.source->encode(c.source[i]).ids, tokenizers.source->special());
      const std::vector<Id> own = list.of(source);
      EXPECT_TRUE(std::ranges::is_sorted(own));
      EXPECT_TRUE(std::ranges::binary_search(own, tokenizers.target->special().end));
      allowed += own.size();
      for (const Id w : tokenizers.target->encode(c.target[i]).ids)
        ++wanted, there += std::ranges::binary_search(own, w);
    }
    EXPECT_GT(double(there), 0.99 * double(wanted));
    EXPECT_LT(double(allowed) / 400, 0.4 * tokenizers.target->size());
    // Its file gives the same lists.
    const Shortlist again(list.bytes(), "again");
    const std::vector<Id> source = tokenizers.source->encode(c.source[7]).ids;
    EXPECT_EQ(again.of(source), list.of(source));
    EXPECT_EQ(again.bytes(), list.bytes());
  }
}

TEST(Shortlist, IsReadFromALexicon) {
  const Corpus c = corpus();
  const TokenizerPair tokenizers = tokenizers_of(c, "words");
  const Folder folder;
  const auto file = folder / "lexicon";
  write_file(file, std::string("s1\tt1\t0.9\ns1\tt2\t0.1\ns3\tt3\t1.0000\n"));
  const Shortlist list = read_shortlist(file, tokenizers, {.always = 0});
  const auto words = [&](const Tokenizer& tokenizer, const std::string& text) {
    std::vector<Id> out = tokenizer.encode(text).ids;
    std::ranges::sort(out);
    return out;
  };
  std::vector<Id> wanted = words(*tokenizers.target, "t1 t2 Rio");
  wanted.push_back(tokenizers.target->special().unknown);
  wanted.push_back(tokenizers.target->special().end);
  std::ranges::sort(wanted);
  EXPECT_EQ(list.of(framed(words(*tokenizers.source, "s1 Rio"), tokenizers.source->special())),
            wanted);
  EXPECT_EQ(list.of(words(*tokenizers.source, "s3")), words(*tokenizers.target, "t3"));
  for (const char* bad : {"s1\tt1", "s1 t1 0.5\n", "s1\tt1\tmuch\n", "s1\tt1\t\n", "s1\tt1\tnan\n",
                          "s1\tt1\tinf\n", "s1\tt1\t-1\n"}) {
    write_file(file, std::string(bad));
    EXPECT_TRUE(has(message([&] { read_shortlist(file, tokenizers); }),
                    ": line 1: neither a binary shortlist of Marian's nor a lexicon"))
        << bad;
  }
  EXPECT_TRUE(has(message([&] { read_shortlist(folder / "no", tokenizers); }), "no such file"));
  write_file(file, "");
  EXPECT_TRUE(has(message([&] { read_shortlist(file, tokenizers); }), "is empty"));
}

TEST(Shortlist, AModelsFolderKeepsItsOwnAndNoneLetsAllWordsBeSaid) {
  const Corpus c = corpus();
  const TokenizerPair tokenizers = tokenizers_of(c, "words");
  const Folder folder;
  const std::filesystem::path path = folder / "m";
  TrainConfig training;
  training.steps = 1;
  const ModelFolder made = create_model(path, config_of("rnn", false), training, tokenizers);
  save_parameters(made.params, path / "model.safetensors");
  TranslateOptions o;
  o.search.beam = 1, o.search.min_length = 8;
  const auto said = [&](const std::string& shortlist) {
    return Translator(LoadedModel::open(path, {.shortlist = shortlist}))
        .translate({"s5 s6"}, o)[0]
        .best()
        .target.ids;
  };
  const std::vector<Id> free = said("");
  write_file(path / kShortlistName,
             learn_shortlist(tokenizers, c.source, c.target, {.always = 1, .best = 2}).bytes());
  const auto allowed =
      Shortlist(*read_file(path / kShortlistName), "list")
          .of(framed(tokenizers.source->encode("s5 s6").ids, tokenizers.source->special()));
  for (const Id w : said("")) EXPECT_TRUE(std::ranges::binary_search(allowed, w));
  EXPECT_NE(said(""), free);
  EXPECT_EQ(said("none"), free);
  EXPECT_EQ(said((path / kShortlistName).string()), said(""));
  EXPECT_FALSE(open_model(path).shortlist);  // training goes on as it began
}

}  // namespace
}  // namespace heed
