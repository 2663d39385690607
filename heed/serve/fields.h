// What a request's query and body say: a JSON object, a form or a form of several parts.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "heed/base/check.h"
#include "heed/serve/message.h"

namespace heed::serve {

// A request that gets no more than an error: {"error": what()}, with this status.
class Refusal : public Error {
 public:
  Refusal(int status, const std::string& words) : Error(words), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

struct Fields {
  nlohmann::json values = nlohmann::json::object();  // of a form: strings
  bool json = false;                                 // whether the body was JSON
  struct File {
    std::string name, content;
  };
  std::map<std::string, File> files = {};

  // Null if there is none.
  const nlohmann::json& operator[](const std::string& name) const;
};

// Of a field that comes twice in a form the first counts; of JSON and the query, JSON alone. Throws
// Refusal (400) for a body that is none of what its type says.
Fields fields_of(const Request& request);

// "a=b&c=d+e"; text that is not UTF-8 is repaired. Values are strings.
void add_form(std::string_view form, nlohmann::json& to);

// As str.splitlines() of Python has them, joined by "\n": forms have "\r\n".
std::string with_plain_line_ends(std::string_view text);

// Keys in alphabetical order, no spaces, a newline at the end; what is not UTF-8 is repaired.
std::string json_line(const nlohmann::json& value);
Response json_response(const nlohmann::json& value, int status = 200);
Response error_response(int status, const std::string& words);

}  // namespace heed::serve
