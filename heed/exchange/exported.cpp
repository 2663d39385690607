#include "heed/exchange/exported.h"

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/nn/layers.h"

namespace heed {

void require_plain_transformer(const ModelFolder& model, const std::string& to) {
  const ModelConfig& c = model.config;
  const std::string who = model.path.string();
  require(c.family == "transformer" && !is_language_model(c), who,
          ": not a Transformer that translates; ", to, " gets no other from heed");
  require(c.score == "scaled_dot" && c.weigh == "soft" && c.temperature == 1, who,
          ": its attention has score '", c.score, "', weigh '", c.weigh, "' and temperature ",
          c.temperature, "; ", to, " has 'scaled_dot', 'soft' and 1");
  require(c.position != "rotary", who, ": rotary positions, which ", to, " does not have");
}

Arrays parameters_of(const ModelFolder& model) {
  Arrays out;
  for (const Parameter& p : model.params.all()) {
    require(p.value.type() == Type::f32, model.path.string(),
            ": weights of eight bits; export the model that it was made from");
    const std::vector<double> values = p.value.values();
    Array& array = out[p.name];
    array.shape.assign(p.value.shape().begin(), p.value.shape().end());
    array.values.assign(values.begin(), values.end());
  }
  return out;
}

Array positions_table(const ModelFolder& model, const Arrays& parameters) {
  const auto learned = parameters.find("positions.table");
  if (learned != parameters.end()) return learned->second;
  constexpr int64_t kRows = 2048;
  const std::vector<double> rows = sinusoidal_positions(kRows, model.config.size, 0, Type::f64,
                                                        *sinusoid_named(model.config.position))
                                       .values();
  return {{kRows, model.config.size}, {rows.begin(), rows.end()}};
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer) {
  std::vector<std::string> out;
  for (Id id = 0; id < tokenizer.size(); ++id) out.push_back(tokenizer.piece(id));
  return out;
}

bool copy_pieces(const ModelFolder& model, const std::filesystem::path& to) {
  bool any = false;
  for (const std::string side : {"source", "target"})
    for (const std::string& name : {side + ".spm", std::string("joint.spm")})
      if (const auto bytes = read_file(model.path / name)) {
        write_file(to / (side + ".spm"), *bytes);
        any = true;
        break;
      }
  return any;
}

void make_empty(const std::filesystem::path& folder) {
  std::error_code error;
  require(!std::filesystem::exists(folder) || std::filesystem::is_empty(folder, error),
          folder.string(), ": is there already; choose another folder");
  std::filesystem::create_directories(folder, error);
  require(!error, folder.string(), ": cannot be made: ", error.message());
}

}  // namespace heed
