// Shortlists, of Marian's and Firefox's models.
#include "heed/translation/shortlist.h"

#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::takes([&] {
    const Shortlist list(fuzz::text_of(data, size), "fuzz");
    // One that always allows as many as a vocabulary has is none.
    if (list.largest() > 100000) return;
    const std::vector<Id> words{0, 1, 2, 1000};
    Id before = -1;
    for (const Id id : list.of(words)) {
      fuzz::demand(id > before && id <= list.largest());
      before = id;
    }
  });
  return 0;
}
