#include "heed/serve/message.h"

#include <algorithm>

namespace heed::serve {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

}  // namespace

bool AnyCase::operator()(std::string_view a, std::string_view b) const {
  return std::ranges::lexicographical_compare(a, b, {}, lower, lower);
}

std::string_view Request::header(std::string_view name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? std::string_view() : std::string_view(at->second);
}

bool set_target(Request& request, std::string_view target) {
  // The absolute form, as a proxy is asked.
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.starts_with(scheme)) {
      const size_t slash = target.find('/', scheme.size());
      target = slash == std::string_view::npos ? "/" : target.substr(slash);
    }
  if (target == "*") {  // OPTIONS *
    request.path = "*";
    return true;
  }
  const size_t mark = target.find('?');
  request.query = mark == std::string_view::npos ? "" : std::string(target.substr(mark + 1));
  const std::string_view path = target.substr(0, mark);
  if (!path.starts_with('/')) return false;
  for (size_t i = 0; i < path.size(); ++i)
    if (path[i] == '%' && (i + 2 >= path.size() || hex(path[i + 1]) < 0 || hex(path[i + 2]) < 0))
      return false;
  request.path = percent_decoded(path, /*plus_is_space=*/false);
  return true;
}

std::string percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 421: return "Misdirected Request";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Status";
  }
}

std::string head_of(const Response& r, bool keep_alive, const std::string& framing) {
  std::string out = "HTTP/1.1 " + std::to_string(r.status) + " ";
  out += reason(r.status);
  out += "\r\n";
  if (!r.type.empty()) out += "Content-Type: " + r.type + "\r\n";
  for (const auto& [name, value] : r.headers) {
    out += name + ": ";
    // A value cannot begin a header of its own.
    for (const char c : value) out += c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
    out += "\r\n";
  }
  out += framing;
  out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

}  // namespace heed::serve
