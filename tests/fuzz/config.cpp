// config.json: the configurations of models and of their training.
#include "heed/models/config.h"
#include "heed/training/trainer.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  // What is taken is written, and taken again as the same.
  fuzz::takes([&] {
    const std::string once = to_json(model_config(text, "fuzz"));
    fuzz::demand(to_json(model_config(once, "fuzz")) == once);
  });
  fuzz::takes([&] {
    const std::string once = to_json(train_config(text, "fuzz"));
    fuzz::demand(to_json(train_config(once, "fuzz")) == once);
  });
  return 0;
}
