// Word alignments: lines in Pharaoh's form, and gold ones with sure and possible links.
#include "heed/base/alignment.h"

#include "heed/metrics/metrics.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line = fuzz::text_of(data, size);
  if (const auto links = parse_pharaoh(line)) {
    for (size_t i = 0; i < links->size(); ++i) {
      fuzz::demand((*links)[i].source >= 0 && (*links)[i].target >= 0);
      fuzz::demand(i == 0 || (*links)[i - 1] < (*links)[i]);
    }
    // What was read is written as it is read again.
    fuzz::demand(parse_pharaoh(to_pharaoh(*links)) == links);
  }
  fuzz::takes([&] {
    for (const GoldLink& gold : parse_gold_alignment(line))
      fuzz::demand(gold.link.source >= 0 && gold.link.target >= 0);
  });
  return 0;
}
