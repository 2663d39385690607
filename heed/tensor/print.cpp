// Tensors as text, laid out as NumPy lays out arrays.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "heed/tensor/tensor.h"

namespace heed {
namespace {

constexpr int64_t kMost = 1000;  // elements that are all written
constexpr int64_t kEdge = 3;     // of an axis that is not, so many at either end

// Which items of an axis are written; -1: the dots between.
std::vector<int64_t> written(int64_t size, bool abbreviated) {
  std::vector<int64_t> out;
  const bool all = !abbreviated || size <= 2 * kEdge;
  for (int64_t i = 0; i < (all ? size : kEdge); ++i) out.push_back(i);
  if (all) return out;
  out.push_back(-1);
  for (int64_t i = size - kEdge; i < size; ++i) out.push_back(i);
  return out;
}

class Printer {
 public:
  Printer(const Tensor& x, bool abbreviated)
      : shape_(x.shape()), values_(x.values()), abbreviated_(abbreviated) {
    // Columns are as wide as the longest element.
    visit([&](double value) { width_ = std::max(width_, text(value).size()); }, 0, 0);
  }
  void write(std::ostream& out) const { write(out, 0, 0); }

 private:
  static std::string text(double value) {
    char number[32];
    std::snprintf(number, sizeof number, "%.5g", value);
    return number;
  }

  template <class F>
  void visit(const F& f, int axis, int64_t at) const {
    if (axis == shape_.rank()) return f(values_[static_cast<size_t>(at)]);
    for (const int64_t i : written(shape_[axis], abbreviated_))
      if (i >= 0) visit(f, axis + 1, at * shape_[axis] + i);
  }

  void write(std::ostream& out, int axis, int64_t at) const {
    if (axis == shape_.rank()) {
      const std::string number = text(values_[static_cast<size_t>(at)]);
      out << std::string(width_ - number.size(), ' ') << number;
      return;
    }
    const bool innermost = axis + 1 == shape_.rank();
    out << '[';
    bool first = true;
    for (const int64_t i : written(shape_[axis], abbreviated_)) {
      // Rows stand below each other, matrices with a line between.
      if (!first && innermost) out << ' ';
      if (!first && !innermost)
        out << std::string(static_cast<size_t>(shape_.rank() - axis - 1), '\n')
            << std::string(static_cast<size_t>(axis + 1), ' ');
      if (i < 0)
        out << "...";
      else
        write(out, axis + 1, at * shape_[axis] + i);
      first = false;
    }
    out << ']';
  }

  const Shape& shape_;
  const std::vector<double> values_;
  const bool abbreviated_;
  size_t width_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  if (!x.defined()) return out << "no tensor";
  if (x.count() == 0) return out << "[]";
  Printer(x, x.count() > kMost).write(out);
  return out;
}

}  // namespace heed
