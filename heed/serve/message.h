// What a server is asked and what it answers, without a socket: so routes can be tried without one.
//
// Threads: plain values; a Reply may be used from any thread, by one at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::serve {

// ASCII letters of either case are equal, as in the names of headers.
struct AnyCase {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const;
};

struct Request {
  std::string method = "GET";
  std::string path = "/";  // percent-decoded, without the query
  std::string query = {};  // what follows "?", as it was sent
  std::map<std::string, std::string, AnyCase> headers = {};
  std::string body = {};
  std::string peer = {};  // the client's address

  // "" if there is none.
  std::string_view header(std::string_view name) const;
};

// The path and the query of a request's target, which may be a whole URL. False if its percent
// signs are followed by no hexadecimal digits, or it begins with no "/".
bool set_target(Request& request, std::string_view target);

// "%41+b": "A b" (a plus sign is a space in forms alone). Nothing is lost: what is not two digits
// after a percent sign stays as it is.
std::string percent_decoded(std::string_view text, bool plus_is_space);

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Where an answer goes: either send(), or begin(), any number of write()s and end().
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(Response response) = 0;
  virtual void begin(Response head) = 0;
  virtual void write(std::string part) = 0;
  virtual void end() = 0;
  // False once something could not be written to the client: what is computed for it is for nobody.
  virtual bool wanted() const = 0;
};

std::string_view reason(int status);  // "Not Found" of 404

// The head of an answer; `framing` says how long its body is, in lines of its own.
std::string head_of(const Response& response, bool keep_alive, const std::string& framing);

}  // namespace heed::serve
