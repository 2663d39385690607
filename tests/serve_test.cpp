// The server's parts without a socket: bodies, codes, limits, files, routes.
#include <gtest/gtest.h>

#include <thread>

#include "heed/base/unicode.h"
#include "heed/models/tensor_file.h"
#include "heed/serve/documents.h"
#include "heed/serve/languages.h"
#include "heed/serve/service.h"
#include "heed/training/run_folder.h"
#include "heed/translation/config_file.h"
#include "tests/folder.h"
#include "tests/toy.h"

namespace heed::serve {
namespace {

using nlohmann::json;

Request post(const std::string& path, const std::string& type, const std::string& body) {
  Request r{.method = "POST"};
  set_target(r, path);
  r.headers["Content-Type"] = type;
  r.body = body;
  return r;
}

// What is answered, kept.
class Kept : public Reply {
 public:
  void send(Response r) override { response = std::move(r), ended = true; }
  void begin(Response head) override { response = std::move(head); }
  void write(std::string part) override { response.body += part; }
  void end() override { ended = true; }
  bool wanted() const override { return still_wanted; }

  Response response;
  bool ended = false, still_wanted = true;
};

TEST(ServeMessage, TargetsAndHeaders) {
  Request r;
  EXPECT_TRUE(set_target(r, "/a%20b/c?q=1+2%26&x"));
  EXPECT_EQ(r.path, "/a b/c");
  EXPECT_EQ(r.query, "q=1+2%26&x");
  EXPECT_TRUE(set_target(r, "http://host:80/x?y"));
  EXPECT_EQ(r.path, "/x");
  for (const char* bad : {"", "x", "/%", "/%1", "/%zz", "?q"})
    EXPECT_FALSE(set_target(r, bad)) << bad;
  r.headers["Content-Type"] = "a";
  EXPECT_EQ(r.header("content-type"), "a");
  EXPECT_EQ(r.header("content-typ"), "");
  EXPECT_EQ(percent_decoded("%4", true), "%4");
}

TEST(ServeFields, OfEveryKindOfBody) {
  const json wanted{{"q", "é +&="}, {"source", "en"}};
  const std::string form = "q=%C3%A9+%2B%26%3D&source=en";
  EXPECT_EQ(fields_of(post("/t?" + form, "", "")).values, wanted);
  EXPECT_EQ(fields_of(post("/t", "application/x-www-form-urlencoded", form + "&q=2")).values,
            wanted);
  EXPECT_EQ(fields_of(post("/t?q=no", "APPLICATION/JSON; charset=utf-8", wanted.dump())).values,
            wanted);
  EXPECT_EQ(fields_of(post("/t", "application/vnd.x+json", wanted.dump())).values, wanted);
  const std::string parts =
      "--b\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\né +&=\r\n--b\r\n"
      "content-disposition: form-data; name=source\r\nX: y\r\n\r\nen\r\n--b\r\n"
      "Content-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".txt\"\r\n\r\n"
      "one\r\n--bb\r\ntwo\r\n--b--\r\n";
  const Fields f = fields_of(post("/t", "multipart/form-data; boundary=\"b\"", parts));
  EXPECT_EQ(f.values, wanted);
  EXPECT_FALSE(f.json);
  EXPECT_EQ(f.files.at("file").name, "a \"b\".txt");
  EXPECT_EQ(fields_of(post("/t", "text/plain", "q=1")).values, json::object());
  EXPECT_TRUE(f["nothing"].is_null());
}

TEST(ServeFields, BadBodiesAreRefused) {
  for (const auto& [type, body] : std::vector<std::pair<std::string, std::string>>{
           {"application/json", "{"},
           {"application/json", ""},
           {"application/json", "{\"a\":\"\xff\"}"},
           {"application/json", "[]"},
           {"multipart/form-data", "--b--"},
           {"multipart/form-data; boundary=", "----"},
           {"multipart/form-data; boundary=b", ""},
           {"multipart/form-data; boundary=b", "--b"},
           {"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=q"},
           {"multipart/form-data; boundary=b", "--b\r\n\r\nno end"}})
    EXPECT_THROW(fields_of(post("/t", type, body)), Refusal) << type << " " << body;
}

// What copies and prints them is recursive.
TEST(ServeFields, AreNotNestedDeeply) {
  const auto nested = [](size_t depth) {
    return "{\"q\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_NO_THROW(fields_of(post("/t", "application/json", nested(8))));
  for (const size_t depth : {40U, 400'000U})
    EXPECT_THROW(fields_of(post("/t", "application/json", nested(depth))), Refusal);
}

TEST(ServeFields, LineEndsOfForms) {
  EXPECT_EQ(with_plain_line_ends("a\r\nb\rc\nd\n"), "a\nb\nc\nd");
  EXPECT_EQ(with_plain_line_ends("a\n\n"), "a\n");
  EXPECT_EQ(with_plain_line_ends(""), "");
  EXPECT_EQ(json_line({{"b", "é\xff"}, {"a", 1}}), "{\"a\":1,\"b\":\"é\xEF\xBF\xBD\"}\n");
}

TEST(ServeLanguages, CodesAndNames) {
  for (const char* code : {"zh", "zh-CN", "zh_Hans", "zh-hans"})
    EXPECT_EQ(language_code(code), "zh-Hans");
  for (const char* code : {"pb", "pt-br", "pt_BR"}) EXPECT_EQ(language_code(code), "pt-BR");
  EXPECT_EQ(language_code("EN"), "en");
  EXPECT_EQ(language_name("de"), "German");
  EXPECT_EQ(language_name("tlh"), "tlh");
}

TEST(ServeLanguages, AreDetectedAmongThoseThatAreServed) {
  const std::string german = "Das ist ein Satz, der auf Deutsch geschrieben wurde.";
  EXPECT_EQ(detect_languages(german, {"en", "de"}).at(0).language, "de");
  EXPECT_TRUE(detect_languages(german, {"en", "fr"}).empty());
  EXPECT_EQ(detect_languages("这是一个用中文写的句子。", {"zh-Hant", "en"}).at(0).language,
            "zh-Hant");
  EXPECT_TRUE(has_no_words("😀 \n🎉"));
  EXPECT_FALSE(has_no_words("😀 a"));
}

TEST(ServeAccess, KeysAndTheirLimits) {
  const Folder folder;
  const auto keys = read_keys(folder.put("keys", "# all\n\na\nb 5\nc 5 100  # c's\n"));
  EXPECT_EQ(keys.size(), 3U);
  EXPECT_EQ(keys.at("c").characters, 100);
  EXPECT_FALSE(keys.at("a").requests);
  EXPECT_TRUE(has(message([&] { read_keys(folder.put("bad", "a\nb x\n")); }), "bad: line 2"));
  Keys known;
  known.set(keys);
  EXPECT_TRUE(known.find("b"));
  for (const char* other : {"", "bb", "B", "ab"}) EXPECT_FALSE(known.find(other)) << other;
}

TEST(ServeAccess, AMinuteThatMoves) {
  RateLimit rates;
  const auto begin = RateLimit::Clock::now();
  const auto at = [&](int seconds) { return begin + std::chrono::seconds(seconds); };
  const auto take = [&](const char* who, int64_t cost, const Rates& limits, int seconds) {
    return rates.take(who, cost, limits, at(seconds)).value_or("");
  };
  EXPECT_EQ(take("a", 2, {.minute = 3}, 0), "");
  EXPECT_EQ(take("a", 1, {.minute = 3}, 30), "");
  EXPECT_EQ(take("a", 1, {.minute = 3}, 59), "3 per 1 minute");
  EXPECT_EQ(take("b", 3, {.minute = 3}, 59), "");
  EXPECT_EQ(take("a", 2, {.minute = 3}, 60), "");
  EXPECT_EQ(take("a", 1, {.minute = 3}, 89), "3 per 1 minute");
  EXPECT_EQ(take("a", 1, {.minute = 3}, 90), "");
  EXPECT_EQ(take("a", 1, {.minute = 0}, 1000), "0 per 1 minute");
  // What one window refuses counts in none.
  const Rates all{.minute = 5, .hour = 8, .day = 12};
  EXPECT_EQ(take("c", 5, all, 0), "");
  EXPECT_EQ(take("c", 4, all, 100), "8 per 1 hour");
  EXPECT_EQ(take("c", 3, all, 101), "");
  EXPECT_EQ(take("c", 5, all, 3600), "12 per 1 day");
  EXPECT_EQ(take("c", 4, all, 3601), "");
  EXPECT_EQ(take("c", 5, all, 24 * 3600 + 99), "");
  // Many in a row are as many, whether or not they are counted one by one.
  int allowed = 0;
  for (int second = 0; second < 7200; ++second)
    allowed += take("d", 1, {.hour = 1000}, second).empty() ? 1 : 0;
  EXPECT_GE(allowed, 1900);
  EXPECT_LE(allowed, 2000);
}

TEST(ServePairs, AreReadFromTheCommandLine) {
  const LanguagePair p = parse_pair("en-fr=a/b=c");
  EXPECT_EQ(p.source + p.target + p.folder.string(), "enfra/b=c");
  EXPECT_EQ(parse_pair("zh-CN:pb=m").source, "zh-Hans");
  for (const char* bad : {"", "en-fr", "en-fr=", "enfr=m", "-fr=m", "en-=m", "zh-CN-en=m"})
    EXPECT_TRUE(has(message([&] { parse_pair(bad); }), "en-fr=FOLDER")) << bad;
}

TEST(ServeDocuments, WhatIsNoTextStays) {
  const TranslateTexts upper = [](const std::vector<std::string>& texts, TextOptions::Format) {
    std::vector<std::string> out = texts;
    for (std::string& t : out)
      for (char& c : t) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return out;
  };
  EXPECT_EQ(translate_document(".txt", "a\r\nb", upper), "A\r\nB");
  const std::string mark = "\xEF\xBB\xBF";
  const TranslateTexts marked = [&](const std::vector<std::string>& texts, TextOptions::Format f) {
    for (const std::string& text : texts) EXPECT_FALSE(text.starts_with(mark));
    return upper(texts, f);
  };
  EXPECT_EQ(translate_document(".txt", mark + "a", marked), mark + "A");
  EXPECT_EQ(translate_document(".po", mark + "msgid \"a\"\nmsgstr \"\"\n", marked),
            mark + "#, fuzzy\nmsgid \"a\"\nmsgstr \"A\"\n");
  EXPECT_EQ(translate_document(".srt",
                               "1\n00:00:01,000 --> 00:00:02,000\none two\nthree four\n\n\n2\n"
                               "00:00:03,000 --> 00:00:04,000\nlast",
                               upper),
            "1\n00:00:01,000 --> 00:00:02,000\nONE TWO\nTHREE FOUR\n\n\n2\n"
            "00:00:03,000 --> 00:00:04,000\nLAST");
  EXPECT_EQ(translate_document(".srt", "no subtitles", upper), "no subtitles");
  // Tags stay whole, and what HTML would write as an entity is the character.
  const TranslateTexts tagged = [](const std::vector<std::string>&, TextOptions::Format) {
    return std::vector<std::string>{"<font color=\"red\" face=\"A B C\">Tom &amp; Jerry</font>"};
  };
  EXPECT_EQ(translate_document(".srt", "1\n0 --> 1\na\nb\nc\n", tagged),
            "1\n0 --> 1\n<font color=\"red\" face=\"A B C\">Tom\n&\nJerry</font>\n");
  EXPECT_EQ(
      translate_document(".po",
                         "msgid \"\"\nmsgstr \"\"\n\"X: y\\n\"\n\n"
                         "msgid \"a \\\"b\\\"\\n\"\n\"c\\n\"\nmsgstr \"\"\n#~ msgid \"old\"\n"
                         "#~ msgstr \"\"\n\n#, fuzzy\nmsgid \"d\"\nmsgstr \"e\"",
                         upper),
      "msgid \"\"\nmsgstr \"\"\n\"X: y\\n\"\n\n"
      "#, fuzzy\nmsgid \"a \\\"b\\\"\\n\"\n\"c\\n\"\nmsgstr \"\"\n\"A \\\"B\\\"\\n\"\n\"C\\n\"\n"
      "#~ msgid \"old\"\n#~ msgstr \"\"\n\n#, fuzzy\nmsgid \"d\"\nmsgstr \"e\"");
  EXPECT_TRUE(has(message([&] { translate_document(".pdf", "", upper); }), "kind of file"));
}

// A sentence that runs over several subtitles is one text, and comes back over all of them.
TEST(ServeDocuments, ASentenceMayRunOverSeveralSubtitles) {
  std::vector<std::string> asked;
  const TranslateTexts translate = [&](const std::vector<std::string>& texts, TextOptions::Format) {
    asked = texts;
    std::vector<std::string> out;
    for (const std::string& t : texts)
      out.push_back(t.starts_with("When") ? "Wenn du dort <i>endlich ankommst</i>, ruf mich an."
                                          : t);
    return out;
  };
  const auto file = [](const std::vector<std::string>& texts, double pause = 0.1) {
    std::string out;
    for (size_t n = 0; n < texts.size(); ++n) {
      char time[80];
      const double from = static_cast<double>(n) * (2 + pause);
      std::snprintf(time, sizeof time, "%zu\n00:00:%06.3f --> 00:00:%06.3f\n", n + 1, from,
                    from + 2);
      out += time + texts[n] + "\n\n";
    }
    return out;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(
      translate_document(".srt",
                         file({"Stop!", "When you finally", "<i>get there</i>,\ncall me.", "Bye."}),
                         translate),
      file({"Stop!", "Wenn du dort <i>endlich</i>", "<i>ankommst</i>,\nruf mich an.", "Bye."}));
  EXPECT_EQ(asked, (Texts{"Stop!", "When you finally <i>get there</i>, call me.", "Bye."}));
  const auto texts_of = [&](const std::string& content) {
    EXPECT_EQ(translate_document(".srt", content, translate), content);
    return asked;
  };
  EXPECT_EQ(texts_of(file(
                {"So.", "I met", "John.", "- And", "- but you", "[door]", "\"Yes?\"", "(sighs)"})),
            (Texts{"So.", "I met John.", " And", " but you", "[door]", "\"Yes?\"", "(sighs)"}));
  // After a pause, and in songs without marks, a capital begins something else.
  EXPECT_EQ(texts_of(file({"Chapter one", "Far away.", "Yes."}, 3)).size(), 3u);
  EXPECT_EQ(texts_of(file({"Row your boat", "Gently down", "the stream", "Merrily"})),
            (Texts{"Row your boat", "Gently down the stream", "Merrily"}));
  // Fewer words than subtitles, and none.
  EXPECT_EQ(translate_document(".srt", file({"a b", "c d", "e f."}),
                               [](const auto&, auto) { return Texts{"x"}; }),
            file({"x", "", ""}));
  EXPECT_EQ(
      translate_document(".srt", "1\n\u65f6 --> 1\na", [](const auto&, auto) { return Texts{""}; }),
      "1\n\u65f6 --> 1\n");
}

TEST(ServeDownloads, AreFoundByAllOfTheirName) {
  Downloads files;
  const std::string key = files.keep({"a.txt", "b"});
  EXPECT_TRUE(key.ends_with(".a.txt"));
  EXPECT_EQ(files.find(key)->content, "b");
  EXPECT_FALSE(files.find("a.txt"));
  EXPECT_NE(files.keep({"a.txt", "b"}), key);
}

TEST(ServeCounters, AsPrometheusReadsThem) {
  Counters c;
  c.answered("/translate", 200, 0.02);
  c.answered("/translate", 200, 100);
  const std::string text = c.text({{"heed_x", "X.", 2.5}});
  EXPECT_TRUE(has(text, "heed_http_requests_total{code=\"200\",route=\"/translate\"} 2\n"));
  EXPECT_TRUE(has(text, "_bucket{route=\"/translate\",le=\"0.025\"} 1\n"));
  EXPECT_TRUE(has(text, "_bucket{route=\"/translate\",le=\"+Inf\"} 2\n"));
  EXPECT_TRUE(has(text, "# TYPE heed_x gauge\nheed_x 2.5\n"));
}

class ServeRoutes : public testing::Test {
 protected:
  ServeRoutes() {
    const auto corpus = toy_corpus(folder);
    for (const char* family : {"rnn", "transformer"}) {
      ModelConfig c;
      c.family = family, c.size = 16, c.inner = 24, c.heads = 2, c.score = "additive";
      if (c.family == "transformer") c.encoder_layers = c.decoder_layers = 2;
      TrainConfig training;
      training.steps = 1;
      const ModelFolder made = create_model(folder / family, c, training, corpus->tokenizers());
      save_parameters(made.params, made.path / "model.safetensors");
    }
    models =
        std::make_unique<Models>(std::vector<LanguagePair>{{"en", "fr", folder / "rnn"},
                                                           {"en", "de", folder / "transformer"}},
                                 Models::Options{});
  }
  json ask(const ServiceOptions& options, const std::string& path, const json& body,
           int status = 200) {
    Service service(*models, options);
    Kept reply;
    service.answer(post(path, "application/json", body.dump()), reply);
    EXPECT_EQ(reply.response.status, status) << reply.response.body;
    EXPECT_TRUE(reply.ended);
    return json::parse(reply.response.body);
  }

  const Folder folder;
  std::unique_ptr<Models> models;
};

TEST_F(ServeRoutes, TranslateAsTheTranslatorDoes) {
  const TextTranslator own{Translator(folder / "rnn")};
  const json got = ask({}, "/translate", {{"q", {"a b", "c"}}, {"source", "en"}, {"target", "fr"}});
  EXPECT_EQ(got["translatedText"][0], own.translate({"a b"})[0].text);
  EXPECT_EQ(got["translatedText"][1], own.translate({"c"})[0].text);
}

TEST_F(ServeRoutes, ExplainWhereWordsComeFrom) {
  const json body{{"text", "a b c"}, {"source", "en"}, {"target", "fr"}};
  json more = body;
  more.update({{"weights", "all"}, {"tree", true}, {"candidates", true}, {"best", 3}, {"beam", 4}});
  const json got = ask({}, "/v1/translate", more);
  const json& one = got["translations"][0]["sentences"][0];
  const size_t pieces = one["target"]["pieces"].size();
  EXPECT_EQ(one["weights"].size(), pieces + 1);
  EXPECT_EQ(one["weights"][0].size(), 4U);
  EXPECT_EQ(one["layers"][0]["heads"][0].size(), pieces + 1);
  EXPECT_EQ(one["best"].size(), 3U);
  EXPECT_EQ(one["source"]["words"][2], json({{"text", "c"}, {"begin", 4}, {"end", 5}}));
  // Along the tree's best way stand the pieces, and the most likely of what was considered.
  EXPECT_EQ(one["candidates"].size(), pieces + 1);
  for (size_t i = 0; i < pieces; ++i)
    EXPECT_EQ(one["candidates"][i]["piece"], one["target"]["pieces"][i]);
  double before = 1;
  for (const json& c : one["candidates"][0]["candidates"]) {
    EXPECT_LE(c["probability"].get<double>(), before);
    before = c["probability"];
  }
  int64_t best = 0;
  for (const json& n : one["tree"]) best += n["best"].get<bool>() ? 1 : 0;
  EXPECT_EQ(best, static_cast<int64_t>(pieces) + 1);

  // A given target has the score that the search gave it.
  json forced = body;
  forced["forced"] = one["target"]["text"];
  const json scored = ask({}, "/v1/translate", forced)["translations"][0]["sentences"][0];
  EXPECT_NEAR(scored["log_probability"], one["log_probability"], 1e-4);
  json prefix = body;
  prefix["prefix"] = "b";
  const std::string begun = ask({}, "/v1/translate", prefix)["translations"][0]["text"];
  EXPECT_TRUE(begun == "b" || begun.starts_with("b ")) << begun;
}

// Of a model that says how it is searched with, that holds where a request says nothing, also of a
// translation that is begun or given.
TEST_F(ServeRoutes, ARequestSaysMoreOfTheSearchThanTheModel) {
  const json body{{"text", "a b c"}, {"source", "en"}, {"target", "fr"}, {"tree", true}};
  const auto asked = [&](const json& more) {
    json all = body;
    all.update(more);
    return ask({}, "/v1/translate", all)["translations"][0]["sentences"][0];
  };
  const std::vector<json> ways{json::object(), {{"prefix", "b"}}, {{"forced", "b a"}}};
  const json theirs{{"beam", 4}, {"normalize", 0.0}}, others{{"beam", 1}, {"normalize", 1.0}};
  std::vector<json> as_theirs, as_others;
  for (json way : ways) {
    way.update(theirs), as_theirs.push_back(asked(way));
    way.update(others), as_others.push_back(asked(way));
    EXPECT_NE(as_theirs.back(), as_others.back());
  }
  auto config = read_config(folder / "rnn");
  config["search"] = theirs;
  write_config(folder / "rnn", std::move(config));
  models->reload();
  for (size_t i = 0; i < ways.size(); ++i) {
    EXPECT_EQ(asked(ways[i]), as_theirs[i]);
    json way = ways[i];
    way.update(others);
    EXPECT_EQ(asked(way), as_others[i]);
  }
  EXPECT_EQ(asked({{"best", 6}})["best"].size(), 6U);
}

// What a row of self-attention weighs: the encoder all of the source, the decoder what it has read.
TEST_F(ServeRoutes, ShowHowATransformerReadsItself) {
  const json body{{"text", "a b c"}, {"source", "en"}, {"target", "de"}, {"self_attention", true}};
  json more = body;
  more["weights"] = "all";
  const json got = ask({}, "/v1/translate", more)["translations"][0]["sentences"][0];
  const size_t pieces = got["target"]["pieces"].size();
  for (const auto& [name, rows, columns] : std::vector<std::tuple<const char*, size_t, size_t>>{
           {"layers", pieces + 1, 4},
           {"encoder_self", 4, 4},
           {"decoder_self", pieces + 1, pieces + 1}}) {
    const json& layers = got[name];
    ASSERT_EQ(layers.size(), 2U) << name;
    for (size_t l = 0; l < 2; ++l) {
      EXPECT_EQ(layers[l]["layer"], l);
      ASSERT_EQ(layers[l]["heads"].size(), 2U) << name;
      for (const json& head : layers[l]["heads"]) {
        ASSERT_EQ(head.size(), rows) << name;
        for (size_t i = 0; i < rows; ++i) {
          ASSERT_EQ(head[i].size(), columns) << name;
          double sum = 0;
          for (size_t j = 0; j < columns; ++j) {
            sum += head[i][j].get<double>();
            if (name == std::string("decoder_self") && j > i) {
              EXPECT_EQ(head[i][j], 0);
            }
          }
          EXPECT_NEAR(sum, 1, 1e-5) << name;
        }
      }
    }
  }
  const json alone = ask({}, "/v1/translate", body)["translations"][0]["sentences"][0];
  EXPECT_EQ(alone["encoder_self"], got["encoder_self"]);
  EXPECT_FALSE(alone.contains("layers"));
  json recurrent = body;
  recurrent["target"] = "fr";
  const std::string error = ask({}, "/v1/translate", recurrent, 409)["error"];
  EXPECT_TRUE(has(error, "self_attention is wanted of a recurrent model")) << error;
}

TEST_F(ServeRoutes, CountCharactersInTheWholeText) {
  const json body{{"text", "ä b? Ç d\n\nE f! G g"}, {"source", "en"}, {"target", "fr"}};
  const json got = ask({}, "/v1/translate", body)["translations"][0];
  const std::u32string source = U"ä b? Ç d\n\nE f! G g";
  const std::u32string target = decode_utf8(got["text"].get<std::string>());
  ASSERT_GE(got["sentences"].size(), 3U);
  int64_t last = 0;
  for (const json& s : got["sentences"]) {
    EXPECT_GE(s["source"]["begin"], last);
    last = s["source"]["end"];
    for (const auto& [name, whole] : {std::pair("source", source), std::pair("target", target)})
      for (const json& w : s[name]["words"]) {
        const size_t begin = w["begin"], end = w["end"];
        ASSERT_LE(end, whole.size());
        if (begin < end) {
          EXPECT_EQ(encode_utf8(whole.substr(begin, end - begin)), w["text"]);
        }
      }
  }
  EXPECT_EQ(got["sentences"].back()["source"]["end"], source.size());
}

TEST_F(ServeRoutes, DescribeTheirOwnLanguagesAndLimits) {
  Service service(*models, {.char_limit = 70, .alternatives_limit = 4});
  Kept reply;
  service.answer({.method = "GET", .path = "/spec"}, reply);
  const json spec = json::parse(reply.response.body);
  const json& schema =
      spec["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(schema["properties"]["source"]["enum"], json({"en", "fr", "de", "auto"}));
  EXPECT_EQ(schema["properties"]["q"]["oneOf"][1]["items"]["maxLength"], 70);
  EXPECT_EQ(schema["properties"]["alternatives"]["maximum"], 4);
  EXPECT_EQ(schema["anyOf"][0]["properties"]["target"]["enum"], json({"de", "en", "fr"}));
  EXPECT_EQ(schema["anyOf"][1]["properties"]["target"]["enum"], json({"fr"}));
}

TEST_F(ServeRoutes, GiveBackATextOfTheSameLanguage) {
  const json got = ask({}, "/v1/translate", {{"text", "a b"}, {"source", "fr"}, {"target", "fr"}});
  EXPECT_EQ(got["translations"], json({{{"text", "a b"}, {"sentences", json::array()}}}));
}

TEST_F(ServeRoutes, StreamWordsAsTheyAppear) {
  Service service(*models, {});
  Kept reply;
  const json body{{"text", "a b c"}, {"source", "en"}, {"target", "fr"}, {"stream", true}};
  service.answer(post("/v1/translate", "application/json", body.dump()), reply);
  EXPECT_EQ(reply.response.type, "text/event-stream");
  EXPECT_TRUE(reply.response.body.starts_with("event: partial\ndata: {\"sentence\":0,\"text\":"));
  const size_t last = reply.response.body.rfind("event: translation\ndata: ");
  ASSERT_NE(last, std::string::npos);
  EXPECT_TRUE(reply.ended);
}

TEST_F(ServeRoutes, RefuseWhatCannotBe) {
  const json good{{"text", "a"}, {"source", "en"}, {"target", "fr"}};
  for (const auto& [change, words] : std::vector<std::pair<json, std::string>>{
           {{{"beam", 0}}, "beam wants 1 to 20"},
           {{{"beam", "x"}}, "beam wants a whole number"},
           {{{"beam", 1.5}}, "beam wants a whole number"},
           {{{"beam", 21.0}}, "beam wants 1 to 20, given 21"},
           {{{"best", 21}}, "best wants 1 to 20"},
           {{{"patience", 0}}, "patience wants 0.001 to 1e+06"},
           {{{"beem", 1}}, "did you mean 'beam'?"},
           {{{"weights", "al"}}, "did you mean 'all'?"},
           {{{"prefix", "x"}, {"forced", "x"}}, "not both"},
           {{{"stream", true}, {"text", {"a"}}}, "stream wants one text"},
           {{{"temperature", 0}}, "temperature wants"}}) {
    json body = good;
    body.update(change);
    const std::string error = ask({}, "/v1/translate", body, 400)["error"];
    EXPECT_TRUE(has(error, words)) << error;
  }
}

TEST_F(ServeRoutes, EndWhatNobodyWants) {
  Service service(*models, {.time_limit = std::chrono::milliseconds(0)});
  Kept reply;
  const Request r = post("/translate?q=a&source=en&target=fr", "", "");
  service.answer(r, reply);
  EXPECT_EQ(reply.response.status, 503) << reply.response.body;
  EXPECT_TRUE(has(reply.response.body, "longer than the server lets it"));
}

TEST_F(ServeRoutes, ReplaceAModelThatHasChanged) {
  const auto before = models->use(0);
  models->tend();
  EXPECT_EQ(models->loaded(0), before);
  std::filesystem::last_write_time(
      folder.path() / "rnn" / "model.safetensors",
      std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  models->tend();  // has seen it
  EXPECT_EQ(models->loaded(0), before);
  models->tend();  // it has rested
  EXPECT_NE(models->loaded(0), before);
  // One that is broken leaves the one before.
  const auto now = models->loaded(0);
  folder.put("rnn/config.json", "{");
  models->reload();
  EXPECT_EQ(models->loaded(0), now);
}

TEST_F(ServeRoutes, LoadOnceForAllThatAskAtOnce) {
  std::vector<std::shared_ptr<const TextTranslator>> got(8);
  std::vector<std::thread> threads;
  for (auto& g : got) threads.emplace_back([&] { g = models->use(0); });
  for (std::thread& t : threads) t.join();
  for (const auto& g : got) EXPECT_EQ(g, got[0]);
}

}  // namespace
}  // namespace heed::serve
