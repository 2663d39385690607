// Another toolkit's model on its way to a folder of heed's: every reader gives the same thing, a
// configuration, parameters by heed's names and tokenizers, and one writer makes the folder, so
// that nothing else in heed learns of formats.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heed/translation/model_folder.h"

namespace heed {

// An array of f32 in row-major order.
struct Array {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Arrays = std::map<std::string, Array>;

Array transposed(const Array& x);                                // [n, m] of [m, n]
Array rows_of(const Array& x, int64_t first, int64_t count);     // of [m, n], or of [m]
Array columns_of(const Array& x, int64_t first, int64_t count);  // of [m, n]

// The output bias of a row that must never win, such as of a word that was added to begin with. A
// softmax has nothing left of it; label smoothing, in training, can still bear it.
inline constexpr float kNever = -1000;

struct ForeignModel {
  std::string format;  // "CTranslate2", "Marian", ...
  ModelConfig config = {};
  Arrays parameters = {};  // by heed's names
  TokenizerPair tokenizers = {};
  AlignmentHead alignment = {};
  SearchDefaults search = {};
  std::string shortlist = {};             // the bytes of shortlist.bin; empty: none
  std::vector<std::string> mapping = {};  // a line for each array: theirs, and ours
  std::vector<std::string> notes = {};    // what was decided that the files do not say
};

// The arrays of a foreign file, each used once: what nobody used is told at the end, since a part
// that is left out gives fluent nonsense.
class Conversion {
 public:
  enum class Layout { in_out, out_in };  // of weights: heed's, or the transpose
  Conversion(std::string what, Arrays arrays, Layout layout)
      : what_(std::move(what)), arrays_(std::move(arrays)), layout_(layout) {}

  bool has(const std::string& name) const { return arrays_.contains(name); }
  // Throws Error that names the nearest.
  const Array& at(const std::string& name);
  // With this rank, sizes of 1 in front left out.
  Array take(const std::string& name, size_t rank);
  // A single number, if it is there.
  std::optional<double> scalar(const std::string& name);
  void ignore(const std::string& name) { used_.insert(name); }

  // Under heed's name, whose parts may have slashes between them, too.
  void put(std::string name, Array array, const std::string& from);
  // A weight [in, out] of heed's.
  Array weight(const std::string& name);
  void linear(const std::string& weight_name, const std::string& bias_name, const std::string& to);
  void norm(const std::string& gain, const std::string& bias, const std::string& to);

  // Throws Error that names what was not used.
  void finish(ForeignModel& model);
  const std::string& what() const { return what_; }

 private:
  std::string what_;
  Arrays arrays_;
  Layout layout_;
  std::set<std::string> used_;
  Arrays parameters_;
  std::vector<std::string> mapping_;
};

// A row of zeros more for the decoder to begin with, and the output bias that keeps it from being
// said: `begin` is then the tokenizers' last id. Both tables where they are one.
void add_zero_begin(ForeignModel& model);

// Throws Error if the parameters are not those of the configuration.
void check(const ForeignModel& model, const std::string& what);

// A model's folder. Throws Error, and leaves nothing, if it is there and not empty.
void write_model(const ForeignModel& model, const std::filesystem::path& from,
                 const std::filesystem::path& to);

}  // namespace heed
