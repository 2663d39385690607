#include "heed/serve/fields.h"

#include "heed/base/unicode.h"

namespace heed::serve {
namespace {

// LibreTranslate's words, which are its web framework's.
constexpr const char* kNotUnderstood =
    "The browser (or proxy) sent a request that this server could not understand.";

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of a parameter of a header: `form-data; name="q"` has q for "name".
std::optional<std::string> parameter(std::string_view header, std::string_view wanted) {
  size_t at = header.find(';');
  while (at < header.size()) {
    ++at;
    const size_t equals = header.find_first_of("=;", at);
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string name = lower_ascii(trimmed(header.substr(at, equals - at)));
    at = equals;
    if (header[equals] == ';') continue;
    std::string value;
    ++at;
    while (at < header.size() && header[at] == ' ') ++at;
    if (at < header.size() && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        // Browsers leave a backslash of a file's name as it is.
        if (header[at] == '\\' && at + 1 < header.size() &&
            (header[at + 1] == '"' || header[at + 1] == '\\'))
          ++at;
        value += header[at];
      }
      at = std::min(header.find(';', at), header.size());
    } else {
      const size_t end = std::min(header.find(';', at), header.size());
      value = trimmed(header.substr(at, end - at));
      at = end;
    }
    if (name == wanted) return value;
  }
  return std::nullopt;
}

void add_once(nlohmann::json& to, const std::string& name, std::string value) {
  if (!to.contains(name)) to[name] = std::move(value);
}

// Where the next "\r\n--boundary" is that is a line of its own, which a longer word is not.
size_t next_delimiter(std::string_view body, const std::string& line, size_t from) {
  for (size_t at = from; (at = body.find("\r\n" + line, at)) != std::string_view::npos; ++at) {
    std::string_view rest = body.substr(at + 2 + line.size());
    if (rest.starts_with("--")) return at;
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (rest.starts_with("\r\n")) return at;
  }
  return std::string_view::npos;
}

// RFC 7578. Parts without a name are passed over.
void add_parts(std::string_view body, const std::string& boundary, Fields& to) {
  const std::string line = "--" + boundary;
  size_t at = body.starts_with(line) ? 0 : next_delimiter(body, line, 0);
  if (at == std::string_view::npos) throw Refusal(400, kNotUnderstood);
  if (at > 0 || !body.starts_with(line)) at += 2;
  for (;;) {
    at += line.size();
    if (body.substr(at).starts_with("--")) return;  // the last
    at = body.find("\r\n", at);
    if (at == std::string_view::npos) throw Refusal(400, kNotUnderstood);
    at += 2;
    std::string disposition;
    for (;;) {  // the part's header
      const size_t end = body.find("\r\n", at);
      if (end == std::string_view::npos) throw Refusal(400, kNotUnderstood);
      const std::string_view header = body.substr(at, end - at);
      at = end + 2;
      if (header.empty()) break;
      constexpr std::string_view kName = "content-disposition:";
      if (lower_ascii(header.substr(0, kName.size())) == kName)
        disposition = header.substr(kName.size());
    }
    // The break before the next line belongs to it; an empty part may have none of its own.
    const size_t from = at >= 2 ? at - 2 : at;
    const size_t end = next_delimiter(body, line, from);
    if (end == std::string_view::npos) throw Refusal(400, kNotUnderstood);
    const std::string_view content = end < at ? std::string_view() : body.substr(at, end - at);
    at = end + 2;
    const std::optional<std::string> name = parameter(disposition, "name");
    if (!name) continue;
    if (const auto file = parameter(disposition, "filename"))
      to.files.try_emplace(*name, Fields::File{repaired_utf8(*file), std::string(content)});
    else
      add_once(to.values, repaired_utf8(*name), repaired_utf8(content));
  }
}

}  // namespace

const nlohmann::json& Fields::operator[](const std::string& name) const {
  static const nlohmann::json none;
  const auto at = values.find(name);
  return at == values.end() ? none : *at;
}

void add_form(std::string_view form, nlohmann::json& to) {
  for (size_t at = 0; at <= form.size();) {
    const size_t end = std::min(form.find('&', at), form.size());
    const std::string_view pair = form.substr(at, end - at);
    at = end + 1;
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view value = equals < pair.size() ? pair.substr(equals + 1) : "";
    add_once(to, repaired_utf8(percent_decoded(pair.substr(0, equals), true)),
             repaired_utf8(percent_decoded(value, true)));
  }
}

Fields fields_of(const Request& request) {
  const std::string_view header = request.header("content-type");
  const std::string type = lower_ascii(trimmed(header.substr(0, header.find(';'))));
  const std::string coding = lower_ascii(trimmed(request.header("content-encoding")));
  if (!coding.empty() && coding != "identity" && !request.body.empty())
    throw Refusal(415, "The body is compressed (Content-Encoding: " + coding +
                           "); it is read as it is alone");
  Fields out;
  if (type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"))) {
    out.json = true;
    // No field has lists of lists; to copy or print what is nested deeper is recursive, and a stack
    // has an end.
    constexpr int kDeepest = 16;
    bool deep = false;
    const auto look = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      deep = deep || depth > kDeepest;
      return !deep;
    };
    out.values = nlohmann::json::parse(request.body, look, /*allow_exceptions=*/false);
    if (deep) throw Refusal(400, "Invalid JSON format: nested too deeply");
    if (out.values.is_discarded()) throw Refusal(400, kNotUnderstood);
    if (!out.values.is_object()) throw Refusal(400, "Invalid JSON format");
    return out;
  }
  add_form(request.query, out.values);
  if (type == "application/x-www-form-urlencoded") add_form(request.body, out.values);
  if (type == "multipart/form-data") {
    const std::optional<std::string> boundary = parameter(header, "boundary");
    if (!boundary || boundary->empty() || boundary->size() > 200)
      throw Refusal(400, kNotUnderstood);
    add_parts(request.body, *boundary, out);
  }
  return out;
}

std::string with_plain_line_ends(std::string_view text) {
  std::u32string out;
  const std::u32string all = decode_utf8(text);
  for (size_t i = 0; i < all.size(); ++i) {
    const char32_t c = all[i];
    const bool ends = (c >= U'\n' && c <= U'\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (c == U'\r' && i + 1 < all.size() && all[i + 1] == U'\n') ++i;
    if (ends && i + 1 == all.size()) break;
    out += ends ? U'\n' : c;
  }
  return encode_utf8(out);
}

std::string json_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}
Response json_response(const nlohmann::json& value, int status) {
  return {.status = status, .body = json_line(value)};
}
Response error_response(int status, const std::string& words) {
  return json_response({{"error", words}}, status);
}

}  // namespace heed::serve
