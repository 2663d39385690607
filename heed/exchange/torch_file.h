// PyTorch's files of tensors (torch.save of a state_dict): a zip archive with a pickle and the
// numbers, or the form of before version 1.6. A pickle is a program for a stack machine; this one
// runs nothing: it knows a few names of containers, tensors and storages, and refuses all others.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>

#include "heed/exchange/foreign_model.h"

namespace heed {

Arrays parse_torch(std::string_view bytes, const std::string& what);

}  // namespace heed
