#include "heed/serve/spec.h"

#include <algorithm>

#include "heed/serve/embedded.h"

namespace heed::serve {
namespace {

using nlohmann::json;

// Which languages go together, as JSON Schema says it. A text whose language is to be detected may
// be in any of them.
json pairs_of(const Models& models) {
  const std::vector<std::string> all = models.languages();
  std::vector<std::string> always = all;  // what every language is translated into
  json out = json::array();
  const auto add = [&](const std::string& source, const std::vector<std::string>& targets) {
    if (targets.empty()) return;
    out.push_back(
        {{"properties", {{"source", {{"const", source}}}, {"target", {{"enum", targets}}}}}});
  };
  for (const std::string& source : all) {
    const std::vector<std::string> targets = models.targets(source);
    add(source, targets);
    std::erase_if(always, [&](const std::string& code) {
      return std::find(targets.begin(), targets.end(), code) == targets.end();
    });
  }
  add("auto", always);
  return out;
}

// A text, or a list of texts.
void limit_texts(json& schema, const ServiceOptions& o) {
  if (schema.contains("oneOf")) {
    for (json& one : schema["oneOf"]) limit_texts(one, o);
  } else if (schema["type"] == "array") {
    if (o.batch_limit >= 0) schema["maxItems"] = o.batch_limit;
    limit_texts(schema["items"], o);
  } else if (o.char_limit >= 0) {
    schema["maxLength"] = o.char_limit;
  }
}

}  // namespace

std::string spec_of(const Models& models, const ServiceOptions& o) {
  json out = json::parse(kOpenapiJson);
  const json pairs = pairs_of(models);
  std::vector<std::string> targets = models.languages(), sources = targets;
  sources.push_back("auto");
  for (const char* path : {"/translate", "/translate_file", "/v1/translate"})
    for (json& body : out["paths"][path]["post"]["requestBody"]["content"]) {
      json& schema = body["schema"];
      json& fields = schema["properties"];
      fields["source"]["enum"] = sources;
      fields["target"]["enum"] = targets;
      schema["anyOf"] = pairs;
      for (const char* text : {"q", "text"})
        if (fields.contains(text)) limit_texts(fields[text], o);
      if (fields.contains("alternatives") && o.alternatives_limit >= 0)
        fields["alternatives"]["maximum"] = o.alternatives_limit;
      if (fields.contains("model")) fields["model"]["maximum"] = std::ssize(models.pairs()) - 1;
      for (const char* width : {"beam", "best"})
        if (fields.contains(width))
          fields[width]["maximum"] = std::max(o.translate.search.beam, o.beam_limit);
    }
  if (!o.url_prefix.empty()) out["servers"][0]["url"] = o.url_prefix;
  return out.dump(1) + "\n";
}

}  // namespace heed::serve
