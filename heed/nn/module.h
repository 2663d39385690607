// Parameters by name, and how they are initialized.
//
// Threads: a set of parameters serves one at a time; different ones are independent.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heed/ops/tape.h"
#include "heed/tensor/tensor.h"

namespace heed {

// The first values of a parameter.
using Initializer = std::function<Tensor(const Shape&, Random&, Type)>;

// Uniform in +-sqrt(6 / (rows + columns)) (Glorot and Bengio, 2010): for weights [in, out].
Initializer glorot();
Initializer normal_values(double deviation);
Initializer constant(double value);
// Each square block of columns an orthogonal matrix (Saxe et al., 2014): for weights from state to
// state, [n, G n].
Initializer orthogonal();

struct Parameter {
  std::string name;
  Tensor value;  // its parameter_state() holds the gradient
};

// All parameters of a model, in the order they were added. A handle with a prefix: params /
// "encoder" is the same set, seen by a part whose names all begin with "encoder.".
class Params {
 public:
  // First values are drawn or, where all are going to be loaded, left as memory has them.
  enum class First { drawn, unset };
  explicit Params(uint64_t seed, Type type = Type::f32, First first = First::drawn);
  // What a parameter is used for: anything; linear() alone multiplies by it; or embedding() looks
  // up its rows, and linear() multiplies by its transpose. The last two can have eight bits or be
  // bf16 (ops/int8.h, ops/bf16.h).
  enum class Use { any, product, table };
  // Of a loaded model: each is what `given` gives for its full name and shape, and never changes.
  using Given = std::function<Tensor(const std::string& name, const Shape& shape, Use use)>;
  explicit Params(Given given);

  // The part with this name.
  Params operator/(const std::string& part) const;

  // A new parameter. Throws Error if the name is taken. Its values depend on the seed and its full
  // name alone, so that a change elsewhere in a model does not change them.
  Tensor add(const std::string& name, const Shape& shape, const Initializer& init,
             Use use = Use::any) const;

  const std::vector<Parameter>& all() const { return set_->parameters; }
  // The parameter with this full name. Throws Error that names the nearest.
  const Parameter& at(const std::string& name) const;
  int64_t count() const;  // elements of all parameters
  // Forgets all gradients.
  void clear_gradients() const;

  // Mixed precision: from here on every parameter, as the f32 master weight, has a bf16 compute
  // copy, which Adam keeps in step with it.
  void keep_compute_copies() const;
  // Makes the copies anew, from master weights that were set by anyone else.
  void refresh_compute_copies() const;

 private:
  struct Set {
    uint64_t seed;
    Type type;
    First first;
    Given given;
    std::vector<Parameter> parameters;
  };
  std::shared_ptr<Set> set_;
  std::string prefix_;
};

// What layers multiply by: a parameter itself or, in mixed-precision training, its bf16 compute
// copy. Activations then are bf16 too; the gradient, f32, goes to the parameter, the master weight.
Tensor compute_copy(const Tensor& parameter);

}  // namespace heed
