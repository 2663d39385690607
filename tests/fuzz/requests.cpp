// What a client sends: a request's target, the kind of its body, and the body. The first line of
// the bytes is the target, the second the content type.
#include "heed/base/unicode.h"
#include "heed/serve/documents.h"
#include "heed/serve/fields.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all = fuzz::text_of(data, size);
  const std::size_t first = std::min(all.find('\n'), all.size());
  const std::size_t second = std::min(all.find('\n', std::min(first + 1, all.size())), all.size());
  serve::Request request{.method = "POST"};
  if (!serve::set_target(request, all.substr(0, first))) return 0;
  if (first < all.size())
    request.headers["content-type"] = all.substr(first + 1, second - first - 1);
  if (second < all.size()) request.body = all.substr(second + 1);
  fuzz::takes([&] {
    const serve::Fields fields = serve::fields_of(request);
    // Whatever came, what is made of it is text.
    for (const auto& [name, value] : fields.values.items())
      if (value.is_string()) {
        fuzz::demand(is_utf8(value.get_ref<const std::string&>()));
        serve::with_plain_line_ends(value.get_ref<const std::string&>());
      }
    fuzz::demand(is_utf8(serve::json_line(fields.values)));
  });
  // A file whose texts stay as they are has every byte, but for marks and how strings are cut.
  const serve::TranslateTexts same = [](const auto& texts, auto) { return texts; };
  fuzz::demand(serve::translate_document(".txt", request.body, same) == request.body);
  for (const char* kind : {".srt", ".po"}) serve::translate_document(kind, request.body, same);
  return 0;
}
