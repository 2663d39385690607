// What the safetensors reader takes and refuses, and what the writer writes.
#include "heed/files/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "heed/base/check.h"
#include "tests/folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string with_length(std::uint64_t length, std::string_view rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xFF);
  return file.append(rest);
}

std::string file_of(std::string_view header, std::string_view data = "") {
  return with_length(header.size(), std::string(header).append(data));
}

// What the reader says of a whole file, or "" if it takes it.
std::string complaint(const std::string& file, SafetensorsOptions options = {}) {
  return message([&] { parse_safetensors(bytes_of(file), "m", options); });
}

// What it says of a header with one tensor 'w', made of the text between its braces.
std::string complaint_of_w(std::string_view fields, std::string_view data = "") {
  return complaint(file_of("{\"w\":{" + std::string(fields) + "}}", data));
}

std::string operator""_b(const char* text, std::size_t size) { return {text, size}; }

// The file of two tensors that the format's description gives byte by byte.
std::string known_file() {
  return "\x90\0\0\0\0\0\0\0"_b
         R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
         R"("a":{"dtype":"F16","shape":[3],"data_offsets":[8,14]}}     )"
         "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x3c\x00\x40\x00\x42"_b;
}

std::vector<TensorEntry> known_tensors() {
  static const std::string a = "\x00\x3c\x00\x40\x00\x42"_b;
  static const std::string b = "\x00\x00\x80\x3f\x00\x00\x00\x40"_b;
  return {{"a", StoredDtype::F16, {3}, bytes_of(a)}, {"b", StoredDtype::F32, {2}, bytes_of(b)}};
}

TEST(Safetensors, KnowsTheTypesOfTheFormatInTheirOrder) {
  const std::vector<std::pair<std::string_view, int>> types = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  for (std::size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(to_string(static_cast<StoredDtype>(i)), types[i].first);
    EXPECT_EQ(bits(static_cast<StoredDtype>(i)), types[i].second);
  }
  EXPECT_EQ(to_string(StoredDtype::F8_E4M3), "F8_E4M3");
  EXPECT_EQ(to_string(StoredDtype::BF16), "BF16");
  EXPECT_EQ(to_string(StoredDtype::C64), "C64");
  EXPECT_EQ(to_string(StoredDtype::U64), "U64");
  EXPECT_FALSE(stored_dtype("F128"));
}

TEST(Safetensors, ReadsTheKnownBytes) {
  const std::string file = known_file();
  ASSERT_EQ(file.size(), 166u);
  const SafetensorsContents contents = parse_safetensors(bytes_of(file), "m");
  ASSERT_EQ(contents.entries.size(), 2u);
  EXPECT_EQ(contents.entries[0].name, "b");
  EXPECT_EQ(contents.entries[0].dtype, StoredDtype::F32);
  EXPECT_EQ(contents.entries[0].shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(text_of(contents.entries[0].bytes), text_of(known_tensors()[1].bytes));
  EXPECT_EQ(contents.entries[1].name, "a");
  EXPECT_EQ(contents.entries[1].dtype, StoredDtype::F16);
  EXPECT_EQ(text_of(contents.entries[1].bytes), text_of(known_tensors()[0].bytes));
  EXPECT_EQ(contents.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(contents.trailing_bytes, 0u);
}

TEST(Safetensors, WritesTheKnownBytes) {
  const Folder folder;
  write_safetensors(folder / "m", known_tensors(), {{"format", "pt"}});
  EXPECT_EQ(read(folder / "m"), known_file());
  EXPECT_EQ(folder.names(), Names{"m"});
}

// The same bytes, of which never more than one tensor's are asked for at a time.
TEST(Safetensors, WritesTensorsThatAreMadeOneByOne) {
  const Folder folder;
  const std::map<std::string, std::string> metadata{{kChecksumEntry, ""}};
  write_safetensors(folder / "whole", known_tensors(), metadata);
  std::vector<TensorEntry> forms = known_tensors();
  for (TensorEntry& form : forms) form.bytes = {};
  std::vector<std::string> asked;
  std::string here;
  const auto bytes = [&](const TensorEntry& entry) -> std::span<const std::byte> {
    asked.push_back(entry.name);
    for (const TensorEntry& known : known_tensors())
      if (known.name == entry.name) here = text_of(known.bytes);
    return bytes_of(here);
  };
  write_safetensors(folder / "m", forms, metadata, 8, bytes);
  EXPECT_EQ(read(folder / "m"), read(folder / "whole"));
  EXPECT_EQ(asked.size(), forms.size());
  const auto none = [](const TensorEntry&) { return std::span<const std::byte>(); };
  EXPECT_TRUE(has(message([&] { write_safetensors(folder / "m", forms, metadata, 8, none); }),
                  "0 bytes were given"));
  EXPECT_EQ(read(folder / "m"), read(folder / "whole"));
}

// From the reference implementation's own tests.
TEST(Safetensors, WritesAnEmptyFileAsTheReferenceDoes) {
  const Folder folder;
  write_safetensors(folder / "m", {});
  EXPECT_EQ(read(folder / "m"), "\x08\0\0\0\0\0\0\0{}      "_b);
  write_safetensors(folder / "m", {}, {{"framework", "pt"}});
  EXPECT_EQ(read(folder / "m"),
            "\x28\0\0\0\0\0\0\0"_b
            "{\"__metadata__\":{\"framework\":\"pt\"}}     "_b);
}

TEST(Safetensors, WritesHalfBytesAsTheReferenceDoes) {
  const Folder folder;
  write_safetensors(folder / "m", std::vector<TensorEntry>{
                                      {"attn.0", StoredDtype::F4, {1, 2}, bytes_of("\0"_b)}});
  EXPECT_EQ(read(folder / "m"),
            file_of(R"({"attn.0":{"dtype":"F4","shape":[1,2],"data_offsets":[0,1]}}    )", "\0"_b));
}

TEST(Safetensors, WritesWideTypesFirstThenByName) {
  const Folder folder;
  const std::string data(64, 'x');
  const auto entry = [&](std::string name, StoredDtype dtype) {
    const auto size = static_cast<std::size_t>(bits(dtype));  // of eight elements, in bytes
    return TensorEntry{std::move(name), dtype, {8}, bytes_of(data).first(size)};
  };
  write_safetensors(
      folder / "m",
      std::vector<TensorEntry>{entry("bool", StoredDtype::BOOL), entry("b", StoredDtype::F32),
                               entry("half", StoredDtype::F16), entry("a", StoredDtype::F32),
                               entry("f4", StoredDtype::F4), entry("u8", StoredDtype::U8),
                               entry("brain", StoredDtype::BF16), entry("B", StoredDtype::F32),
                               entry("double", StoredDtype::F64)});
  const SafetensorsFile file = SafetensorsFile::open(folder / "m");
  Names names;
  for (const TensorEntry& e : file.entries()) {
    names.push_back(e.name);
    const auto address = reinterpret_cast<std::uintptr_t>(e.bytes.data());
    EXPECT_EQ(address % static_cast<std::uintptr_t>(std::max(1, bits(e.dtype) / 8)), 0u) << e.name;
  }
  EXPECT_EQ(names, (Names{"double", "B", "a", "b", "brain", "half", "u8", "f4", "bool"}));
}

TEST(Safetensors, ReadsBackWhatItWroteOfEveryType) {
  const Folder folder;
  constexpr int kDtypes = static_cast<int>(StoredDtype::U64) + 1;
  std::vector<std::string> data;
  std::vector<TensorEntry> tensors;
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<StoredDtype>(i);
    data.emplace_back(static_cast<std::size_t>(3 * bits(dtype)), static_cast<char>('A' + i));
    EXPECT_EQ(stored_dtype(to_string(dtype)), dtype);
  }
  for (int i = 0; i < kDtypes; ++i)  // 3 * 8 elements
    tensors.push_back({"t" + std::to_string(i),
                       static_cast<StoredDtype>(i),
                       {3, 1, 8},
                       bytes_of(data[static_cast<std::size_t>(i)])});
  write_safetensors(folder / "m", tensors, {{"k", "v"}, {"", ""}});

  const SafetensorsFile file = SafetensorsFile::open(folder / "m");
  ASSERT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"k", "v"}, {"", ""}}));
  for (const TensorEntry& tensor : tensors) {
    const TensorEntry* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(text_of(found->bytes), text_of(tensor.bytes));
  }
}

TEST(Safetensors, KeepsScalarsAndEmptyTensors) {
  const Folder folder;
  write_safetensors(folder / "m",
                    std::vector<TensorEntry>{{"scalar", StoredDtype::F32, {}, bytes_of("abcd")},
                                             {"none", StoredDtype::F32, {2, 0, 3}, {}},
                                             {"also none", StoredDtype::F4, {0, 3}, {}}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "m");
  EXPECT_TRUE(file.at("scalar").shape.empty());
  EXPECT_EQ(text_of(file.at("scalar").bytes), "abcd");
  EXPECT_EQ(file.at("none").shape, (std::vector<std::int64_t>{2, 0, 3}));
  EXPECT_TRUE(file.at("none").bytes.empty());
  EXPECT_TRUE(file.at("also none").bytes.empty());
}

TEST(Safetensors, TakesEmptyTensorsBetweenOthersInAnyOrder) {
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                              R"("z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
                              R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("y":{"dtype":"U8","shape":[0],"data_offsets":[3,3]},)"
                              R"("x":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
                              "xyz")),
            "");
}

TEST(Safetensors, KeepsNamesAndMetadataOfAnyScript) {
  const Folder folder;
  const std::string name =
      "\xC3\xBC"
      "ber.\xE6\xB3\xA8\xE6\x84\x8F.\xF0\x9F\x98\x80 \"q\"\\/\n\x01\x7F";
  write_safetensors(folder / "m",
                    std::vector<TensorEntry>{{name, StoredDtype::U8, {1}, bytes_of("x")},
                                             {"", StoredDtype::U8, {1}, bytes_of("y")}},
                    {{name, name}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "m");
  EXPECT_EQ(text_of(file.at(name).bytes), "x");
  EXPECT_EQ(text_of(file.at("").bytes), "y");
  EXPECT_EQ(file.metadata().at(name), name);
}

TEST(Safetensors, UnderstandsEscapesInNames) {
  const std::string file =
      file_of(R"({"\u00e9\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  EXPECT_EQ(parse_safetensors(bytes_of(file), "m").entries.at(0).name, "\xC3\xA9\xF0\x9F\x98\x80");
}

TEST(Safetensors, TakesAHeaderWithoutPaddingAndWithFieldsItDoesNotKnow) {
  EXPECT_EQ(complaint_of_w(R"("x":[[{"y":[]}],1.5],"shape":[1], "z":null,"data_offsets":[0,1],)"
                           R"("dtype":"I8","x":true,"q":-1,"s":"t","n":7)",
                           "x"),
            "");
}

TEST(Safetensors, StaysValidWhenMoved) {
  const Folder folder;
  write_safetensors(folder / "m", known_tensors());
  SafetensorsFile first = SafetensorsFile::open(folder / "m");
  const std::byte* bytes = first.at("a").bytes.data();
  SafetensorsFile second = std::move(first);
  EXPECT_EQ(second.at("a").bytes.data(), bytes);
  EXPECT_EQ(text_of(second.at("a").bytes), text_of(known_tensors()[0].bytes));
  EXPECT_TRUE(first.entries().empty());  // NOLINT: what is left of it must be harmless
  EXPECT_EQ(first.find("a"), nullptr);
  first = std::move(second);
  EXPECT_EQ(first.at("a").bytes.data(), bytes);
  static_assert(!std::is_copy_constructible_v<SafetensorsFile>);
}

TEST(Safetensors, OverwritesTheFileItIsReadFrom) {
  const Folder folder;
  write_safetensors(folder / "m", known_tensors(), {{"format", "pt"}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "m");
  write_safetensors(folder / "m", file.entries(), file.metadata());
  EXPECT_EQ(read(folder / "m"), known_file());
  EXPECT_EQ(text_of(file.at("a").bytes), text_of(known_tensors()[0].bytes));
}

// The digits are those of a program of a few lines that follows docs/formats.md alone.
TEST(Safetensors, WritesItsChecksumWhereTheMetadataHasOne) {
  const Folder folder;
  write_safetensors(folder / "m", known_tensors(), {{"format", "pt"}, {kChecksumEntry, "any"}});
  const std::string file = read(folder / "m");
  EXPECT_TRUE(
      has(file, R"({"__metadata__":{"format":"pt","heed.checksum":"628d28a1ed3dadbc"},"b":)"));
  EXPECT_EQ(complaint(file, {.want_checksum = true}), "");
  // Read and written again, it is the same.
  const SafetensorsFile opened = SafetensorsFile::open(folder / "m");
  write_safetensors(folder / "m", opened.entries(), opened.metadata());
  EXPECT_EQ(read(folder / "m"), file);
}

TEST(Safetensors, FindsEveryBitThatIsNotAsItWasWritten) {
  const Folder folder;
  write_safetensors(folder / "m", known_tensors(), {{kChecksumEntry, ""}});
  const std::string file = read(folder / "m");
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(complaint(damaged, {.want_checksum = true}), "") << "byte " << bit / 8;
  }
  std::string other = file;
  other.back() ^= 1;
  EXPECT_TRUE(has(complaint(other), "m: damaged, or changed by another tool")) << "if it has one";
  // Another tool may write the header anew, with spaces in it.
  other = file;
  other.replace(other.find("\"heed.checksum\":"), 16, "\"heed.checksum\": ");
  ++other[0];  // the header's length
  EXPECT_TRUE(has(complaint(other), "does not stand where heed writes it")) << complaint(other);
}

TEST(Safetensors, ReadsFilesWithoutAChecksumUnlessOneIsWanted) {
  EXPECT_EQ(complaint(known_file()), "");
  EXPECT_TRUE(has(complaint(known_file(), {.want_checksum = true}), "m: has no checksum"));
}

TEST(Safetensors, NamesTheNearestTensorWhenOneIsMissing) {
  const Folder folder;
  write_safetensors(folder / "m", std::vector<TensorEntry>{{"weight", StoredDtype::U8, {0}, {}}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "m");
  EXPECT_EQ(file.find("wieght"), nullptr);
  EXPECT_EQ(message([&] { file.at("wieght"); }),
            (folder / "m") + ": has no tensor 'wieght' among its 1; did you mean 'weight'?");
}

TEST(Safetensors, RejectsAFileTooShortForALength) {
  EXPECT_EQ(complaint(""),
            "m: is 0 bytes long; a safetensors file begins with 8 that hold the length of its "
            "header");
  EXPECT_EQ(complaint("1234567").substr(0, 18), "m: is 7 bytes long");
}

TEST(Safetensors, RejectsAGiantHeader) {
  EXPECT_EQ(complaint(with_length(100'000'001, "{}")),
            "m: claims a header of 100000001 bytes; the most allowed is 100000000; this is not a "
            "safetensors file");
  EXPECT_EQ(complaint(std::string(8, '\xFF')),
            "m: claims a header of 18446744073709551615 bytes; the most allowed is 100000000; this "
            "is not a safetensors file");
}

TEST(Safetensors, KnowsAGitLfsPointerAndAZipArchive) {
  EXPECT_NE(
      complaint("version https://git-lfs.github.com/spec/v1\noid sha256:0\n").find("git lfs pull"),
      std::string::npos);
  EXPECT_NE(complaint("PK\x03\x04\x14\x00\x08\x08 archive"_b).find("zip archive"),
            std::string::npos);
}

TEST(Safetensors, RejectsAHeaderLongerThanTheFile) {
  EXPECT_EQ(complaint(with_length(10, "{}")),
            "m: is cut short: its header is 10 bytes long, and only 2 follow");
  EXPECT_EQ(complaint(with_length(1, "")),
            "m: is cut short: its header is 1 bytes long, and only 0 follow");
}

TEST(Safetensors, RejectsAHeaderThatIsNotAnObject) {
  EXPECT_EQ(complaint(file_of("")), "m: the header is empty; a JSON object was wanted");
  EXPECT_EQ(complaint(file_of(" {}")),
            "m: the header starts with byte 0x20; it must start with '{'");
  EXPECT_EQ(complaint(file_of("\xEF\xBB\xBF{}")),
            "m: the header starts with byte 0xef; it must start with '{'");
  EXPECT_EQ(complaint(file_of("[]")),
            "m: the header starts with byte 0x5b; it must start with '{'");
}

TEST(Safetensors, RejectsAHeaderThatIsNotUtf8) {
  for (const char* bad :
       {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80",
        "\xC3", "\xE6\xB3", "\x80", "\xC3(", "\xF5\x80\x80\x80"}) {
    const std::string said = complaint(file_of("{\"" + std::string(bad) + "\":1}"));
    EXPECT_EQ(said.substr(0, 43), "m: the header is not UTF-8: its byte 2 is 0") << said;
  }
  EXPECT_EQ(complaint(file_of("{\"\xFF\"}")), "m: the header is not UTF-8: its byte 2 is 0xff");
}

TEST(Safetensors, RejectsAHeaderThatIsNotJson) {
  for (const char* bad :
       {"{", "{]", "{\"a\"}", "{}}", "{} x", "{\"a\":1e999}", "{\"\\ud800\":1}", "{\"a\nb\":1}",
        "{'a':1}", "{\"a\":NaN}", "{/**/}", "{\"a\":{\"x\":01}}", "{,}"}) {
    const std::string said = complaint(file_of(bad));
    EXPECT_EQ(said.substr(0, 27), "m: the header is not JSON: ") << bad << " " << said;
  }
}

// The JSON library would stop at the zero and never see the rest.
TEST(Safetensors, RejectsAZeroByteInTheHeader) {
  EXPECT_EQ(complaint(file_of("{}\0garbage"_b)), "m: the header is not JSON: its byte 2 is 0x00");
}

TEST(Safetensors, TakesWhitespaceAfterTheHeader) { EXPECT_EQ(complaint(file_of("{}\r \t\n")), ""); }

TEST(Safetensors, ShowsNoControlCharactersOfTheFile) {
  const std::string said = complaint(file_of(R"({"\u001b[31m\n":1})"));
  EXPECT_EQ(said, "m: tensor '?[31m?': is 1; an object was wanted");
  const std::string longer = complaint(file_of("{\"" + std::string(1000, 'n') + "\":1}"));
  EXPECT_LT(longer.size(), 200u);
  EXPECT_NE(longer.find("nnn...'"), std::string::npos);
}

TEST(Safetensors, RejectsDeepNestingWithoutRecursion) {
  const std::string open(1'000'000, '[');
  EXPECT_EQ(complaint(file_of("{\"w\":{\"x\":" + open)),
            "m: tensor 'w': the header is nested more than 100 deep");
  std::string objects;
  for (int i = 0; i < 200; ++i) objects += "{\"x\":";
  EXPECT_EQ(complaint(file_of("{\"w\":" + objects)),
            "m: tensor 'w': the header is nested more than 100 deep");
  EXPECT_EQ(complaint(file_of("{\"w\":" + open)),
            "m: tensor 'w': is an array; an object was wanted");
}

TEST(Safetensors, RejectsMetadataThatIsNotStrings) {
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":{"k":1}})")),
            "m: __metadata__: 'k' is 1; a string was wanted");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":{"k":{}}})")),
            "m: __metadata__: 'k' is an object; a string was wanted");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":null})")),
            "m: __metadata__: is null; an object was wanted");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":"x"})")),
            "m: __metadata__: is a string; an object was wanted");
}

TEST(Safetensors, RejectsNamesThatComeTwice) {
  const std::string entry = R"(:{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(
      complaint(file_of("{\"a\"" + entry + ",\"b\"" + entry + ",\"\\u0061\"" + entry + "}", "x")),
      "m: tensor 'a': the name comes twice");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":{},"__metadata__":{}})")),
            "m: '__metadata__' comes twice");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":{"k":"v","k":"v"}})")),
            "m: __metadata__: 'k' comes twice");
  EXPECT_EQ(complaint_of_w(R"("shape":[1],"shape":[1])"), "m: tensor 'w': 'shape' comes twice");
}

TEST(Safetensors, RejectsATensorWithAFieldMissing) {
  EXPECT_EQ(complaint_of_w(R"("shape":[1],"data_offsets":[0,1])"), "m: tensor 'w': has no 'dtype'");
  EXPECT_EQ(complaint_of_w(R"("dtype":"U8","data_offsets":[0,1])"),
            "m: tensor 'w': has no 'shape'");
  EXPECT_EQ(complaint_of_w(R"("dtype":"U8","shape":[1])"), "m: tensor 'w': has no 'data_offsets'");
  EXPECT_EQ(complaint_of_w(""), "m: tensor 'w': has no 'dtype'");
}

TEST(Safetensors, RejectsATypeItDoesNotKnow) {
  EXPECT_EQ(complaint_of_w(R"("dtype":"FP32")").substr(0, 59),
            "m: tensor 'w': unknown dtype 'FP32'; did you mean 'F32'? ha");
  EXPECT_EQ(complaint_of_w(R"("dtype":7)"), "m: tensor 'w': dtype is 7; a string was wanted");
  EXPECT_EQ(complaint_of_w(R"("dtype":["F32"])"),
            "m: tensor 'w': dtype is an array; a string was wanted");
  EXPECT_EQ(complaint_of_w(R"("dtype":"f32")").substr(0, 34), "m: tensor 'w': unknown dtype 'f32'");
}

TEST(Safetensors, RejectsAShapeThatIsNotWholeNumbers) {
  const std::string wanted = "; whole numbers from 0 were wanted";
  for (const char* bad : {"-1", "-0", "1.5", "1e3", "null", "18446744073709551616"}) {
    const std::string said = complaint_of_w("\"shape\":[2," + std::string(bad) + "]");
    EXPECT_EQ(said, "m: tensor 'w': shape holds " + std::string(bad) + wanted);
  }
  EXPECT_EQ(complaint_of_w(R"("shape":["2"])"), "m: tensor 'w': shape holds a string" + wanted);
  EXPECT_EQ(complaint_of_w(R"("shape":[[2]])"), "m: tensor 'w': shape holds an array" + wanted);
  EXPECT_EQ(complaint_of_w(R"("shape":[{}])"), "m: tensor 'w': shape holds an object" + wanted);
  EXPECT_EQ(complaint_of_w(R"("shape":3)"), "m: tensor 'w': shape is 3; an array was wanted");
  EXPECT_EQ(complaint_of_w(R"("shape":{})"),
            "m: tensor 'w': shape is an object; an array was wanted");
}

TEST(Safetensors, RejectsOffsetsThatAreNotTwoWholeNumbers) {
  EXPECT_EQ(complaint_of_w(R"("data_offsets":[0,1,2])"),
            "m: tensor 'w': data_offsets has more than two numbers");
  EXPECT_EQ(complaint_of_w(R"("data_offsets":[0])"),
            "m: tensor 'w': data_offsets has 1 of two numbers, begin and end");
  EXPECT_EQ(complaint_of_w(R"("data_offsets":[])"),
            "m: tensor 'w': data_offsets has 0 of two numbers, begin and end");
  EXPECT_EQ(complaint_of_w(R"("data_offsets":[0,-4])"),
            "m: tensor 'w': data_offsets holds -4; whole numbers from 0 were wanted");
  EXPECT_EQ(complaint_of_w(R"("data_offsets":true)"),
            "m: tensor 'w': data_offsets is true or false; an array was wanted");
}

TEST(Safetensors, RejectsAShapeThatOverflows) {
  EXPECT_EQ(
      complaint_of_w(R"("dtype":"I32","shape":[2,18446744073709551614],"data_offsets":[0,16])"),
      "m: tensor 'w': shape has the size 18446744073709551614, which overflows 63 bits");
  const std::string overflows = " overflows: its size in bits is not below 2^63";
  EXPECT_EQ(
      complaint_of_w(R"("dtype":"I32","shape":[2,9223372036854775807],"data_offsets":[0,16])"),
      "m: tensor 'w': shape [2, 9223372036854775807] of I32" + overflows);
  // 2^32 * 2^32 is 0 in 64 bits: the lie that would pass.
  EXPECT_EQ(complaint_of_w(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
            "m: tensor 'w': shape [4294967296, 4294967296] of F32" + overflows);
  // 2^61 * 8 bits is 0 in 64 bits.
  EXPECT_EQ(complaint_of_w(R"("dtype":"U8","shape":[2305843009213693952],"data_offsets":[0,0])"),
            "m: tensor 'w': shape [2305843009213693952] of U8" + overflows);
  EXPECT_EQ(
      complaint_of_w(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"),
      "m: tensor 'w': shape [0, 4294967296, 4294967296] of U8" + overflows);
}

TEST(Safetensors, RejectsATensorThatIsNotWholeBytes) {
  EXPECT_EQ(complaint_of_w(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", "xx"),
            "m: tensor 'w': shape [3] of F4 is 12 bits, which is not whole bytes");
  EXPECT_EQ(complaint_of_w(R"("dtype":"F6_E2M3","shape":[2,1],"data_offsets":[0,2])", "xx"),
            "m: tensor 'w': shape [2, 1] of F6_E2M3 is 12 bits, which is not whole bytes");
  EXPECT_EQ(complaint_of_w(R"("dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3])", "xxx"), "");
}

TEST(Safetensors, RejectsATensorOfTheWrongSize) {
  EXPECT_EQ(
      complaint_of_w(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,20])", std::string(20, 'x')),
      "m: tensor 'w': bytes 0..20 are 20, but shape [2, 3] of F32 is 24");
  EXPECT_EQ(complaint_of_w(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])", "xxxx"),
            "m: tensor 'w': bytes 0..4 are 4, but shape [0] of F32 is 0");
}

TEST(Safetensors, RejectsATensorThatEndsBeforeItBegins) {
  EXPECT_EQ(complaint_of_w(R"("dtype":"U8","shape":[4],"data_offsets":[8,4])", std::string(8, 'x')),
            "m: tensor 'w': bytes 8..4 end before they begin");
}

TEST(Safetensors, RejectsAFirstTensorThatStartsLate) {
  EXPECT_EQ(
      complaint_of_w(R"("dtype":"U8","shape":[4],"data_offsets":[4,8])", std::string(8, 'x')),
      "m: tensor 'w': bytes 4..8 start late: they come first, and the first tensor must start "
      "at byte 0");
}

TEST(Safetensors, RejectsTensorsThatOverlap) {
  EXPECT_EQ(complaint(file_of(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[8,20]},)"
                              R"("v":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                              std::string(20, 'x'))),
            "m: tensor 'w': bytes 8..20 overlap tensor 'v', bytes 0..12");
  EXPECT_EQ(complaint(file_of(R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
                              R"("v":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                              std::string(12, 'x'))),
            "m: tensor 'w': bytes 8..8 overlap tensor 'v', bytes 0..12");
}

TEST(Safetensors, RejectsAGapBetweenTensors) {
  EXPECT_EQ(complaint(file_of(R"({"v":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                              R"("w":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}})",
                              std::string(20, 'x'))),
            "m: tensor 'w': bytes 16..20 leave a gap after tensor 'v', bytes 0..12");
}

TEST(Safetensors, RejectsDataThatIsCutShort) {
  std::string file = known_file();
  file.resize(160);
  EXPECT_EQ(complaint(file),
            "m: is cut short: its tensors take 14 bytes, and only 8 follow the header");
  EXPECT_EQ(complaint(file, {.allow_trailing_bytes = true}),
            "m: is cut short: its tensors take 14 bytes, and only 8 follow the header");
  EXPECT_EQ(
      complaint_of_w(R"("dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000])"),
      "m: is cut short: its tensors take 1000000000000 bytes, and only 0 follow the header");
}

TEST(Safetensors, RejectsEveryCutOfAGoodFile) {
  const std::string file = known_file();
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(complaint(file.substr(0, size)), "") << size;
}

TEST(Safetensors, RejectsBytesAfterTheLastTensorUnlessAllowed) {
  EXPECT_EQ(complaint(known_file() + "more"),
            "m: has 4 bytes too many: its tensors take 14, and 18 follow the header");
  EXPECT_EQ(complaint(file_of("{}", "x")),
            "m: has 1 bytes too many: its tensors take 0, and 1 follow the header");

  const Folder folder;
  folder.put("m", known_file() + "more");
  const SafetensorsFile file = SafetensorsFile::open(folder / "m", {.allow_trailing_bytes = true});
  EXPECT_EQ(file.trailing_bytes(), 4u);
  EXPECT_EQ(text_of(file.at("a").bytes), text_of(known_tensors()[0].bytes));
}

TEST(Safetensors, JudgesTheGoldenFilesByTheirNames) {
  const fs::path folder = fs::path(__FILE__).parent_path() / "golden" / "safetensors";
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string name = entry.path().filename().string();
    const std::string said = message([&] { SafetensorsFile::open(entry.path()); });
    EXPECT_EQ(said.empty(), name.starts_with("good_")) << name << ": " << said;
    ++seen;
  }
  EXPECT_GE(seen, 10);
}

TEST(Safetensors, NamesThePathOfWhatItCannotOpen) {
  const Folder folder;
  EXPECT_EQ(message([&] { SafetensorsFile::open(folder / "none"); }),
            (folder / "none") + ": cannot open: No such file or directory");
  EXPECT_EQ(message([&] { SafetensorsFile::open(folder.path()); }),
            folder.path().string() + ": is a directory; a file was wanted");
  folder.put("empty", "");
  EXPECT_EQ(message([&] {
              SafetensorsFile::open(folder / "empty");
            }).substr(0, (folder / "empty").size() + 17),
            (folder / "empty") + ": is 0 bytes long");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message([&] { SafetensorsFile::open(folder / "pipe"); }),
            (folder / "pipe") + ": is a device, pipe or socket; a regular file was wanted");
}

TEST(Safetensors, RefusesToWriteWhatItCouldNotRead) {
  const Folder folder;
  const fs::path path = folder / "m";
  const auto refusal = [&](std::vector<TensorEntry> tensors) {
    const std::string said = message([&] { write_safetensors(path, tensors); });
    EXPECT_TRUE(said.starts_with(path.string() + ": ")) << said;
    return said.substr(std::min(said.size(), path.string().size() + 2));
  };
  EXPECT_EQ(refusal({{"w", StoredDtype::F32, {2}, bytes_of("xxxx")}}),
            "tensor 'w': 4 bytes were given, but shape [2] of F32 is 8");
  EXPECT_EQ(refusal({{"w", StoredDtype::F32, {-1}, bytes_of("xxxx")}}),
            "tensor 'w': shape [-1] of F32 has a negative size");
  EXPECT_EQ(refusal({{"w", StoredDtype::F4, {1}, bytes_of("x")}}),
            "tensor 'w': shape [1] of F4 is 4 bits, which is not whole bytes");
  EXPECT_EQ(refusal({{"w", StoredDtype::U8, {1}, bytes_of("x")},
                     {"w", StoredDtype::I8, {1}, bytes_of("x")}}),
            "tensor 'w': the name was given twice");
  EXPECT_EQ(refusal({{"__metadata__", StoredDtype::U8, {1}, bytes_of("x")}}),
            "tensor '__metadata__': the format keeps this name for metadata");
  EXPECT_EQ(refusal({{"w\xFF", StoredDtype::U8, {1}, bytes_of("x")}}),
            "the tensor's name 'w...' cannot be written: it is not UTF-8 from its byte 1");
  EXPECT_NE(message([&] { write_safetensors(path, {}, {{"k", "\xFF"}}); }), "");
  EXPECT_NE(message([&] { write_safetensors(path, {}, {{"\xFF", "v"}}); }), "");
  EXPECT_NE(message([&] {
              write_safetensors(path, {}, {{"k", std::string(100'000'000, 'a')}});
            }).find("the header would be 100000"),
            std::string::npos);
  EXPECT_EQ(folder.names(), Names{});
}

}  // namespace
}  // namespace heed
