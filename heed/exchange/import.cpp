#include "heed/exchange/import.h"

#include <nlohmann/json.hpp>

#include "heed/base/check.h"
#include "heed/exchange/bytes.h"
#include "heed/exchange/ctranslate2.h"
#include "heed/exchange/hugging_face.h"
#include "heed/exchange/marian.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

// A config.json with this key.
bool has_key(const fs::path& folder, const char* key) {
  const fs::path file = folder / "config.json";
  if (!fs::is_regular_file(file)) return false;
  const auto json =
      nlohmann::json::parse(read_whole(file.string()), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(key);
}

}  // namespace

ForeignModel read_foreign(const fs::path& path, const ImportOptions& options) {
  std::error_code error;
  require(fs::exists(path, error), path.string(), ": ",
          error ? error.message() : "there is no such file or folder");
  const auto checked = [&](ForeignModel model) {
    check(model, path.string());
    search_defaults(to_json(model.search), path.string());  // throws for what no search can do
    constexpr int64_t kWidest = 1000;
    require(model.search.beam.value_or(1) <= kWidest, path.string(), ": asks for a beam of ",
            model.search.beam.value_or(1), "; at most ", kWidest, " are searched with");
    AlignmentHead& at = model.alignment;
    const auto within = [](int64_t n, int64_t count) { return n >= -count && n < count; };
    if (!within(at.layer, model.config.decoder_layers) ||
        !within(at.head, decoder_heads(model.config))) {
      model.notes.push_back("alignment: by the last layer, since layer " +
                            std::to_string(at.layer) + ", head " + std::to_string(at.head) +
                            ", of which the files speak, is not there");
      at = {};
    }
    return model;
  };
  if (fs::is_directory(path)) {
    require(!has_key(path, "heed"), path.string(), ": is a model of heed's already");
    if (has_key(path, "model_type")) return checked(read_hugging_face(path, options));
    for (const char* name : {"shared_vocabulary.json", "shared_vocabulary.txt",
                             "source_vocabulary.json", "source_vocabulary.txt"})
      if (fs::exists(path / name)) return checked(read_ctranslate2(path, options));
  }
  if (is_marian(path)) return checked(read_marian(path, options));
  // Without vocabularies of a source and a target: it says itself what it is.
  if (fs::exists(path / "model.bin") && fs::exists(path / "config.json"))
    return checked(read_ctranslate2(path, options));
  fail(path.string(),
       ": not a model that heed can import; known are folders of CTranslate2 (model.bin and "
       "vocabularies), of Hugging Face's MarianMT (config.json with a model_type), and of Marian "
       "(decoder.yml, or a file .npz or .bin)");
}

}  // namespace heed
