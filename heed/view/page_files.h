// The page's files put together (page_files.cpp).
#pragma once

#include <string>

namespace heed {

// The page as one file, with `data` as JSON in which there is no '<'.
std::string page_with(const std::string& title, const std::string& data);

}  // namespace heed
