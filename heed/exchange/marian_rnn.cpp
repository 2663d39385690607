#include <map>

#include "heed/exchange/marian_settings.h"

namespace heed {
namespace {

// Arrays beside each other: [m, n] and [m, k] as [m, n + k], or [n] and [k] as [n + k].
Array joined(const Array& a, const Array& b) {
  const size_t rank = a.shape.size();
  const int64_t rows = rank == 2 ? a.shape[0] : 1, n = a.shape.back(), k = b.shape.back();
  Array out{a.shape, {}};
  out.shape.back() = n + k;
  for (int64_t i = 0; i < rows; ++i) {
    out.values.insert(out.values.end(), a.values.begin() + i * n, a.values.begin() + (i + 1) * n);
    out.values.insert(out.values.end(), b.values.begin() + i * k, b.values.begin() + (i + 1) * k);
  }
  return out;
}

// One above the other: [m, n] and [k, n] as [m + k, n].
Array stacked(const Array& a, const Array& b) {
  Array out = a;
  out.shape[0] += b.shape[0];
  out.values.insert(out.values.end(), b.values.begin(), b.values.end());
  return out;
}

Array zeros_of(int64_t n) { return {{n}, std::vector<float>(static_cast<size_t>(n))}; }

class Converter {
 public:
  Converter(Conversion& in, const MarianSettings& settings, ForeignModel& model)
      : in_(in), settings_(settings), config_(model.config), model_(model) {}

  void run() {
    configure();
    for (const auto& [theirs, ours] :
         {std::pair{"encoder_bi", "forward"}, std::pair{"encoder_bi_r", "backward"}}) {
      const std::string to = std::string("encoder/0/") + ours;
      cell(theirs, to, {.in = word_size_});
      for (int64_t i = 0; i < config_.encoder_transitions; ++i)
        cell(theirs + ("_cell" + std::to_string(i + 2)), to + "/transition/" + std::to_string(i),
             {});
    }
    cell("decoder_cell1", "decoder/0", {.in = word_size_});
    cell("decoder_cell2", "decoder/conditional", {.in = 2 * config_.size, .bias_inside = true});
    for (int64_t i = 0; i < config_.decoder_transitions; ++i)
      cell("decoder_cell" + std::to_string(i + 3),
           "decoder/conditional/transition/" + std::to_string(i), {.bias_inside = true});
    for (int64_t i = 1; i < config_.decoder_layers; ++i)
      cell("decoder_l" + std::to_string(i + 1) + "_cell1", "decoder/" + std::to_string(i),
           {.in = config_.size});
    attention();
    for (int64_t i = 0; i < config_.decoder_layers; ++i)
      sum("decoder_ff_state", "decoder/" + std::to_string(i) + "/bridge", {{"", "states"}});
    // Theirs are word, state, context.
    sum("decoder_ff_logit_l1", "hidden", {{"1", "state"}, {"2", "context"}, {"0", "word"}});
  }

 private:
  void want(const char* key, const std::string& otherwise, const std::string& wanted) const {
    const std::string given = settings_.text(key, otherwise);
    require(given == wanted, settings_.where(), ": '", key, "' is '", given, "'; heed has '",
            wanted, "' in Marian's recurrent models");
  }
  void want(const char* key, int64_t otherwise, int64_t wanted) const {
    const int64_t given = settings_.whole(key, otherwise);
    require(given == wanted, settings_.where(), ": '", key, "' is ", given, "; heed has ", wanted,
            " in Marian's recurrent models");
  }

  void configure() {
    config_ = {};
    const std::string type = settings_.text("type", "s2s");
    const std::string cell = type == "nematus" ? "gru-nematus" : "gru";
    config_.family = "rnn", config_.score = "additive", config_.cell = "gru";
    config_.wiring = "conditional", config_.bridge = "mean", config_.attention_bias = true;
    for (const char* key : {"enc-cell", "dec-cell"}) want(key, cell, cell);
    want("enc-type", "bidirectional", "bidirectional");
    want("enc-depth", 1, 1), want("dec-cell-high-depth", 1, 1);
    require(!settings_.flag("skip"), settings_.where(),
            ": 'skip' is set, which heed does not have");
    config_.cell_norm = settings_.flag("layer-normalization");
    require(!config_.cell_norm || type != "nematus", settings_.where(),
            ": 'layer-normalization' of type 'nematus' has norms of its own for each gate, which "
            "heed does not have");
    if (config_.cell_norm) config_.norm_epsilon = 1e-9;
    config_.size = settings_.whole("dim-rnn", 1024);
    word_size_ = settings_.whole("dim-emb", 512);
    if (word_size_ != config_.size) config_.embedding = word_size_;
    config_.attention_size = 2 * config_.size;
    constexpr int64_t kMost = 100;
    const auto depth = [&](const char* key, int64_t least) {
      const int64_t given = settings_.whole(key, least);
      require(given >= least && given < kMost, settings_.where(), ": '", key, "' is ", given,
              "; heed has from ", least, " to ", kMost);
      return given;
    };
    config_.encoder_transitions = depth("enc-cell-depth", 1) - 1;
    config_.decoder_transitions = depth("dec-cell-base-depth", 2) - 2;
    config_.decoder_layers = depth("dec-depth", 1);
    config_.dropout = settings_.number("dropout-rnn", 0.1);
    model_.alignment = {};
  }

  // r and z stand in one array, the candidate in another. `bias_inside`: the candidate's bias is
  // added to what the state gives, before r multiplies it (Marian's final cells).
  struct CellKind {
    int64_t in = 0;  // 0: a transition
    bool bias_inside = false;
  };
  void cell(const std::string& from, const std::string& to, const CellKind& kind) {
    const auto both = [&](const char* name, const char* candidate, size_t rank) {
      const Array a = in_.take(from + name, rank), b = in_.take(from + candidate, rank);
      require(rank == 1 || a.shape[0] == b.shape[0], in_.what(), ": '", from, name, "' and '", from,
              candidate, "' have ", a.shape[0], " and ", b.shape[0], " rows");
      return joined(a, b);
    };
    const std::string norm = config_.cell_norm && kind.in > 0 ? "_norm" : "";
    if (kind.in > 0) in_.put(to + "/input/weight", both("_W", "_Wx", 2), from + "_W, _Wx");
    in_.put(to + "/u", both("_U", "_Ux", 2), from + "_U, _Ux");
    const Array b = in_.take(from + "_b", 1), bx = in_.take(from + "_bx", 1);
    const Array none = zeros_of(bx.shape[0]);
    in_.put(to + "/input" + norm + "/bias", joined(b, kind.bias_inside ? none : bx),
            from + "_b, _bx");
    in_.put(to + (config_.cell_norm ? "/u_norm/bias" : "/u_bias"),
            joined(zeros_of(b.shape[0]), kind.bias_inside ? bx : none),
            kind.bias_inside ? from + "_bx" : "zeros");
    if (!config_.cell_norm) return;
    if (kind.in > 0)
      in_.put(to + "/input_norm/gain", in_.take(from + "_gamma1", 1), from + "_gamma1");
    in_.put(to + "/u_norm/gain", in_.take(from + "_gamma2", 1), from + "_gamma2");
  }

  void attention() {
    // heed has a matrix for each head.
    const auto one_head = [&](const std::string& name) {
      Array w = in_.take(name, 2);
      w.shape.insert(w.shape.begin(), 1);
      return w;
    };
    in_.put("attention/W", one_head("decoder_W_comb_att"), "decoder_W_comb_att");
    in_.put("attention/U", one_head("decoder_Wc_att"), "decoder_Wc_att");
    Array v = in_.take("decoder_U_att", 2);
    v.shape = {1, static_cast<int64_t>(v.values.size())};
    in_.put("attention/v", v, "decoder_U_att");
    Array b = in_.take("decoder_b_att", 1);
    const int64_t n = b.shape[0];
    if (!config_.cell_norm) {
      b.shape = {1, 1, n};
      in_.put("attention/b", b, "decoder_b_att");
      return;
    }
    in_.put("attention/key_norm/bias", b, "decoder_b_att");
    in_.put("attention/query_norm/bias", zeros_of(n), "zeros");
    for (const auto& [theirs, ours] :
         {std::pair{"decoder_att_gamma1", "key"}, std::pair{"decoder_att_gamma2", "query"}})
      in_.put(std::string("attention/") + ours + "_norm/gain", in_.take(theirs, 1), theirs);
  }

  // A dense layer of one input or of several, whose arrays have numbers.
  void sum(const std::string& from, const std::string& to,
           const std::vector<std::pair<std::string, std::string>>& parts) {
    std::optional<Array> weight, bias;
    for (const auto& [number, name] : parts) {
      const Array w = in_.take(from + "_W" + number, 2), b = in_.take(from + "_b" + number, 1);
      if (config_.cell_norm) {
        const std::string gamma = from + "_gamma" + number, part = to + "/" + name;
        in_.put(part + "/weight", w, from + "_W" + number);
        in_.put(part + "/norm/gain", in_.take(gamma, 1), gamma);
        in_.put(part + "/norm/bias", b, from + "_b" + number);
        continue;
      }
      require(!weight || weight->shape[1] == w.shape[1], in_.what(), ": '", from, "_W", number,
              "' has ", w.shape[1], " columns");
      require(!bias || bias->shape == b.shape, in_.what(), ": '", from, "_b", number, "' has ",
              b.shape[0], " numbers");
      weight = weight ? stacked(*weight, w) : w;
      if (!bias) {
        bias = b;
      } else {
        for (size_t i = 0; i < b.values.size(); ++i) bias->values[i] += b.values[i];
      }
    }
    if (!weight) return;
    in_.put(to + "/weight", *weight, from + "_W...");
    in_.put(to + "/bias", *bias, from + "_b...");
  }

  Conversion& in_;
  const MarianSettings& settings_;
  ModelConfig& config_;
  ForeignModel& model_;
  int64_t word_size_ = 0;
};

}  // namespace

void rename_as_s2s(Arrays& arrays, const MarianSettings& settings) {
  std::map<std::string, std::string> names;
  const auto cell = [&](const std::string& from, const std::string& to) {
    for (const char* part : {"U", "Ux", "W", "Wx", "b", "bx"}) names[from + part] = to + part;
  };
  cell("encoder_", "encoder_bi_"), cell("encoder_r_", "encoder_bi_r_");
  cell("decoder_", "decoder_cell1_");
  for (const char* number : {"1", "2"})
    for (const char* side : {"encoder_", "encoder_r_"})
      names[side + std::string("gamma") + number] =
          (side == std::string("encoder_") ? "encoder_bi_gamma" : "encoder_bi_r_gamma") +
          std::string(number);
  for (const auto& [from, to] : std::map<std::string, std::string>{{"U_nl", "U"},
                                                                   {"Ux_nl", "Ux"},
                                                                   {"Wc", "W"},
                                                                   {"Wcx", "Wx"},
                                                                   {"b_nl", "b"},
                                                                   {"bx_nl", "bx"}})
    names["decoder_" + from] = "decoder_cell2_" + to;
  // Transitions, from 1 on.
  constexpr int kMost = 100;
  for (int i = 1; i < kMost; ++i)
    for (const char* part : {"U", "Ux", "b", "bx"}) {
      const std::string end = "_drt_" + std::to_string(i), p = part;
      names["encoder_" + p + end] = "encoder_bi_cell" + std::to_string(i + 1) + "_" + p;
      names["encoder_r_" + p + end] = "encoder_bi_r_cell" + std::to_string(i + 1) + "_" + p;
      names["decoder_" + p + "_nl" + end] = "decoder_cell" + std::to_string(i + 2) + "_" + p;
    }
  constexpr const char* kRead[] = {"prev", "lstm", "ctx"};
  for (int i = 0; i < 3; ++i)
    for (const char* part : {"W", "b"})
      names[std::string("ff_logit_") + kRead[i] + "_" + part] =
          std::string("decoder_ff_logit_l1_") + part + std::to_string(i);
  for (const char* number : {"0", "1", "2"})
    names[std::string("ff_logit_l1_gamma") + number] =
        std::string("decoder_ff_logit_l1_gamma") + number;
  names["ff_logit_W"] = "decoder_ff_logit_l2_W", names["ff_logit_b"] = "decoder_ff_logit_l2_b";
  for (const char* part : {"W", "b", "gamma"})
    names[std::string("ff_state_") + part] = std::string("decoder_ff_state_") + part;
  names["Wemb_dec"] = "decoder_Wemb";
  if (!settings.flag("tied-embeddings-src") && !settings.flag("tied-embeddings-all"))
    names["Wemb"] = "encoder_Wemb";
  Arrays renamed;
  for (auto& [name, array] : arrays) {
    const auto found = names.find(name);
    renamed[found == names.end() ? name : found->second] = std::move(array);
  }
  arrays = std::move(renamed);
}

void convert_marian_rnn(Conversion& in, const MarianSettings& settings, ForeignModel& model) {
  Converter(in, settings, model).run();
}

}  // namespace heed
