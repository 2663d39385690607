// NumPy's archives of arrays: a zip archive of .npy members.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>

#include "heed/exchange/foreign_model.h"

namespace heed {

// One array of f2, f4, f8, i1, u1, i2, i4 or i8, as f32; in row-major order, whatever it is in.
Array parse_npy(std::string_view bytes, const std::string& what);

struct Npz {
  Arrays arrays;                             // without ".npy"
  std::map<std::string, std::string> texts;  // those of one byte an element, as they are
};
Npz parse_npz(std::string_view bytes, const std::string& what);

}  // namespace heed
