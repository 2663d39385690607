// Character references of HTML: &eacute; &#233; &#xE9;
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace heed {

struct Entity {
  std::u32string characters;
  size_t bytes = 0;  // of the reference
};

// The reference that `text` begins with; nothing if it begins with none that is known.
std::optional<Entity> entity_at(std::string_view text);

}  // namespace heed
