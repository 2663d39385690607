// Dates in words to ISO: "the third of march nineteen ninety four" -> 1994-03-03.
//
// An encoder-decoder with additive attention (Bahdanau et al., 2015), written out from layers,
// trained in half a minute. At the end it reads dates it has never seen, and shows for each digit
// which words it was read from.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "heed/files/atomic_file.h"
#include "heed/heed.h"

using namespace heed;

namespace {

// ---- the task

struct Date {
  int year, month, day;
  auto operator<=>(const Date&) const = default;
};

const char* const kMonths[] = {"january",   "february", "march",    "april",
                               "may",       "june",     "july",     "august",
                               "september", "october",  "november", "december"};
const char* const kDays[] = {"first",        "second",        "third",          "fourth",
                             "fifth",        "sixth",         "seventh",        "eighth",
                             "ninth",        "tenth",         "eleventh",       "twelfth",
                             "thirteenth",   "fourteenth",    "fifteenth",      "sixteenth",
                             "seventeenth",  "eighteenth",    "nineteenth",     "twentieth",
                             "twenty-first", "twenty-second", "twenty-third",   "twenty-fourth",
                             "twenty-fifth", "twenty-sixth",  "twenty-seventh", "twenty-eighth",
                             "twenty-ninth", "thirtieth",     "thirty-first"};
const char* const kOnes[] = {"",        "one",     "two",       "three",    "four",
                             "five",    "six",     "seven",     "eight",    "nine",
                             "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                             "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
const char* const kTens[] = {"",      "",      "twenty",  "thirty", "forty",
                             "fifty", "sixty", "seventy", "eighty", "ninety"};

std::string in_words(int n) {  // 1 to 99
  if (n < 20) return kOnes[n];
  return std::string(kTens[n / 10]) + (n % 10 ? std::string(" ") + kOnes[n % 10] : "");
}

std::string year_in_words(int year) {
  if (year % 100 == 0) return in_words(year / 100) + " hundred";
  return in_words(year / 100) + (year % 100 < 10 ? " oh " : " ") + in_words(year % 100);
}

std::string spoken(const Date& d, int manner) {
  const std::string day = kDays[d.day - 1], month = kMonths[d.month - 1],
                    year = year_in_words(d.year);
  if (manner == 0) return "the " + day + " of " + month + " " + year;
  if (manner == 1) return month + " the " + day + " " + year;
  return "in " + year + " on " + month + " " + day;
}

std::string iso(const Date& d) {
  char text[16];
  std::snprintf(text, sizeof text, "%04d-%02d-%02d", d.year, d.month, d.day);
  return text;
}

Date random_date(Random& random) {
  return {1800 + static_cast<int>(random.below(300)), 1 + static_cast<int>(random.below(12)),
          1 + static_cast<int>(random.below(28))};
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// ---- the model

const std::string kSymbols = "0123456789-";
constexpr int64_t kLetters = 11, kBegin = 11;  // the symbols, and one that begins every answer
constexpr int64_t kSteps = 10;                 // 1994-03-03
constexpr int64_t kSize = 64;

struct Words {
  std::map<std::string, Id> id;
  Words() {
    Random random(0);
    for (int i = 0; i < 20000; ++i)
      for (const std::string& word : split(spoken(random_date(random), i % 3)))
        id.emplace(word, static_cast<Id>(id.size()));
  }
};

struct DateBatch {
  Tensor source, in, out;
  std::vector<Id> lengths;
};

DateBatch make_batch(const Words& words, const std::vector<std::string>& sources,
                     const std::vector<Date>& dates) {
  const int64_t B = static_cast<int64_t>(sources.size());
  std::vector<std::vector<Id>> rows;
  size_t longest = 0;
  DateBatch batch;
  for (const std::string& source : sources) {
    rows.emplace_back();
    for (const std::string& word : split(source)) rows.back().push_back(words.id.at(word));
    batch.lengths.push_back(static_cast<Id>(rows.back().size()));
    longest = std::max(longest, rows.back().size());
  }
  std::vector<Id> source, in, out;
  for (size_t b = 0; b < rows.size(); ++b) {
    rows[b].resize(longest, 0);
    source.insert(source.end(), rows[b].begin(), rows[b].end());
    const std::string answer = iso(dates[b]);
    for (size_t t = 0; t < answer.size(); ++t) {
      out.push_back(static_cast<Id>(kSymbols.find(answer[t])));
      in.push_back(t == 0 ? static_cast<Id>(kBegin) : out[out.size() - 2]);
    }
  }
  batch.source = ids(source, {B, static_cast<int64_t>(longest)});
  batch.in = ids(in, {B, kSteps});
  batch.out = ids(out, {B, kSteps});
  return batch;
}

class Reader {
 public:
  Reader(const Params& params, int64_t words)
      : source_(params / "source", words, kSize),
        target_(params / "target", kLetters + 1, kSize),
        encoder_(params / "encoder",
                 {.cell = Cell::gru, .in = kSize, .size = kSize, .bidirectional = true}),
        decoder_(params / "decoder", Cell::gru, 3 * kSize, kSize),
        w_(params / "w", kSize, kSize, Linear::Bias::no),
        u_(params / "u", 2 * kSize, kSize, Linear::Bias::no),
        v_(params.add("v", {kSize, 1}, glorot())),
        output_(params / "output", 3 * kSize, kLetters) {}

  struct Source {
    Tensor h, keys, mask;  // [B, T, 2n], [B, T, n], [B, 1, T]
  };
  Source read(const DateBatch& batch) const {
    const int64_t B = batch.source.size(0), T = batch.source.size(1);
    const Tensor h = encoder_(source_(batch.source), batch.lengths).states;
    std::vector<float> hidden;
    for (int64_t b = 0; b < B; ++b)
      for (int64_t t = 0; t < T; ++t)
        hidden.push_back(t < batch.lengths[static_cast<size_t>(b)] ? 0 : -INFINITY);
    return {h, u_(h), tensor(hidden, {B, 1, T})};
  }

  struct Written {
    Tensor logits, weights;  // [B, 11], [B, 1, T]
  };
  // One letter: a(s, h) = v^T tanh(W s + U h), weights = softmax(a), c = sum of weights h, and the
  // next state from the last letter and c.
  Written step(const Source& source, const Tensor& last, CellState& s) const {
    const int64_t B = last.size(0), T = source.h.size(1);
    const Tensor q = reshape(w_(s.h), {B, 1, kSize});
    const Tensor score = reshape(linear(tanh(q + source.keys), v_), {B, 1, T});
    const Tensor weights = softmax(score + source.mask);
    const Tensor c = reshape(matmul(weights, source.h), {B, 2 * kSize});
    s = decoder_.step(concat({target_(last), c}, 1), s);
    return {output_(concat({s.h, c}, 1)), weights};
  }

  Tensor loss(const DateBatch& batch) const {
    const Source source = read(batch);
    const int64_t B = batch.source.size(0);
    CellState s = decoder_.start(B);
    std::vector<Tensor> logits;
    for (int64_t t = 0; t < kSteps; ++t) {
      const Tensor last = reshape(slice(batch.in, 1, t, t + 1), {B});
      logits.push_back(reshape(step(source, last, s).logits, {B, 1, kLetters}));
    }
    return cross_entropy(concat(logits, 1), batch.out);
  }

  // The answer letter by letter, each the most probable, and the weights of each.
  std::vector<std::string> write(const DateBatch& batch,
                                 std::vector<Tensor>* weights = nullptr) const {
    const Source source = read(batch);
    const int64_t B = batch.source.size(0);
    CellState s = decoder_.start(B);
    std::vector<std::string> answers(static_cast<size_t>(B));
    Tensor last = full({B}, static_cast<double>(kBegin), Type::i32);
    for (int64_t t = 0; t < kSteps; ++t) {
      const Written letter = step(source, last, s);
      last = arg_max(letter.logits);
      for (int64_t b = 0; b < B; ++b)
        answers[static_cast<size_t>(b)] += kSymbols[static_cast<size_t>(last.data<Id>()[b])];
      if (weights) weights->push_back(letter.weights);
    }
    return answers;
  }

 private:
  Embedding source_, target_;
  RecurrentStack encoder_;
  RecurrentCell decoder_;
  Linear w_, u_;
  Tensor v_;
  Linear output_;
};

void show(const Reader& reader, const Words& words, const std::string& text, const Date& date) {
  std::vector<Tensor> weights;
  const std::string answer = reader.write(make_batch(words, {text}, {date}), &weights)[0];
  Heatmap map{.rows = {}, .columns = split(text), .weights = {}};
  for (size_t t = 0; t < answer.size(); ++t) {
    map.rows.emplace_back(1, answer[t]);
    for (const double w : weights[t].values()) map.weights.push_back(w);
  }
  const Ink ink = isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR") ? Ink::color : Ink::plain;
  std::printf("\n%s -> %s\n\n%s", text.c_str(), answer.c_str(), draw_terminal(map, ink).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 2 && !std::strcmp(argv[1], "--save") ? argv[2] : "";
  const Words words;
  const Params params(1);
  const Reader reader(params, static_cast<int64_t>(words.id.size()));
  Adam adam(params, {.clip_norm = 1});
  const auto arena = Arena::make();
  Random random(42);
  std::set<Date> held_out;
  while (held_out.size() < 500) held_out.insert(random_date(random));

  constexpr int kTrainingSteps = 1500, kBatch = 64;
  const auto begin = std::chrono::steady_clock::now();
  std::fprintf(stderr, "reading dates: %lld parameters, %d steps of %d dates\n",
               static_cast<long long>(params.count()), kTrainingSteps, kBatch);
  for (int step = 1; step <= kTrainingSteps; ++step) {
    const UseArena use(*arena);
    std::vector<std::string> sources;
    std::vector<Date> dates;
    while (static_cast<int>(dates.size()) < kBatch) {
      const Date date = random_date(random);
      if (held_out.contains(date)) continue;
      dates.push_back(date);
      sources.push_back(spoken(date, static_cast<int>(random.below(3))));
    }
    Tape tape(static_cast<uint64_t>(step));
    const Tensor loss = reader.loss(make_batch(words, sources, dates));
    const double value = loss.item();
    tape.backward(loss);
    const double rate = 3e-3 * std::min(1.0, 2.0 * (1 - double(step) / kTrainingSteps));
    const double norm = adam.step(rate);
    if (!std::isfinite(norm)) {
      std::fprintf(stderr, "dates: the gradient is not finite at step %d\n", step);
      return 1;
    }
    if (step % 150 == 0) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      std::fprintf(stderr, "step %4d  loss %.4f  %5.1f s, %4.1f s left\n", step, value,
                   spent.count(), spent.count() / step * (kTrainingSteps - step));
    }
  }

  std::vector<std::string> sources;
  const std::vector<Date> dates(held_out.begin(), held_out.end());
  for (size_t i = 0; i < dates.size(); ++i)
    sources.push_back(spoken(dates[i], static_cast<int>(i % 3)));
  const std::vector<std::string> answers = reader.write(make_batch(words, sources, dates));
  size_t right = 0;
  for (size_t i = 0; i < dates.size(); ++i) right += answers[i] == iso(dates[i]);
  std::printf("%zu of %zu dates never seen before read right\n", right, dates.size());
  for (int manner = 0; manner < 3; ++manner) {
    const Date date = dates[static_cast<size_t>(137 * manner + 50)];
    show(reader, words, spoken(date, manner), date);
  }
  if (!folder.empty()) {
    std::filesystem::create_directories(folder);
    save_parameters(params, folder / "model.safetensors");
    std::string vocabulary;  // one word a line, in the order of their ids
    std::vector<std::string> lines(words.id.size());
    for (const auto& [word, id] : words.id) lines[static_cast<size_t>(id)] = word;
    for (const std::string& line : lines) vocabulary += line + "\n";
    write_file(folder / "words.txt", vocabulary);
    write_file(
        folder / "config.json",
        "{\"model\": \"dates\", \"score\": \"additive\", \"size\": " + std::to_string(kSize) +
            ", \"words\": " + std::to_string(words.id.size()) + "}\n");
    std::fflush(stdout);
    std::fprintf(stderr, "\nthe model is in %s\n", folder.c_str());
  }
  return right * 100 >= dates.size() * 95 ? 0 : 1;
}
