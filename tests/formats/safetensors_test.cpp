// Safetensors: what is written is read back; a header that lies about anything is refused by name.
#include "weft/formats/safetensors.h"

#include <random>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "formats/attack.h"
#include "formats/opening_error.h"

namespace weft {
namespace {

// A file of this header and `data_bytes` of data, whatever they say.
std::string file_of(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  store_le(std::as_writable_bytes(std::span(file)).data(), uint64_t(header.size()));
  return file + std::string(header) + std::string(data_bytes, 'x');
}

std::string safetensors_error(const std::string& path, std::string_view content) {
  return opening_error(path, content, [&] {
    const SafetensorsFile file(path);
    for (const SafetensorsEntry& entry : file.entries()) (void)file.bytes(entry);
  });
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  const std::vector<SafetensorsInfo> infos{
      {"a.weight", DType::f32, {2, 3}},   {"scalar", DType::f64, {}},
      {"empty", DType::bf16, {0, 7}},     {"b \"quoted\" \xc3\xa9", DType::u8, {5}},
      {"deep", DType::f16, {2, 1, 2, 1}}, {"ids", DType::i64, {1}},
      {"ids32", DType::i32, {1}},         {"words", DType::u16, {3}}};
  std::string data;
  std::mt19937 random(3);
  for (const SafetensorsInfo& info : infos) {
    for (uint64_t i = 0; i < info.bytes(); ++i) data += char(random());
  }
  SafetensorsWriter writer(FileSystem::real(), folder / "a", infos, {{"format", "pt"}});
  for (size_t at = 0; at < data.size(); at += 7) writer.write(bytes_of(std::string_view(data).substr(at, 7)));
  writer.finish();

  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.entries().size(), infos.size());
  std::string read;
  for (const SafetensorsInfo& info : infos) {
    const SafetensorsEntry& entry = file.at(info.name);
    EXPECT_EQ(entry.dtype(), info.dtype);
    EXPECT_EQ(entry.shape(), info.shape) << info.name;
    read += text_of(file.bytes(entry));
  }
  EXPECT_EQ(read, data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.bytes(file.at("a.weight")).data()) % 64, 0u);
  EXPECT_EQ(file.find("absent"), nullptr);
  try {
    file.at("a.wieght");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), folder / "a" + " has no tensor 'a.wieght'; did you mean a.weight?");
  }
}

TEST(Safetensors, WriterHoldsTheCallerToTheHeader) {
  const TemporaryFolder folder;
  const std::vector<SafetensorsInfo> infos{{"a", DType::u8, {4}}};
  SafetensorsWriter writer(FileSystem::real(), folder / "a", infos);
  writer.write(bytes_of("abc"));
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.write(bytes_of("de")), Error);
  EXPECT_THROW(safetensors_header({{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}), Error);
  EXPECT_THROW(safetensors_header({{"__metadata__", DType::u8, {1}}}), Error);
}

std::string tensor_entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}
Attack header_attack(std::string name, std::string header, size_t data_bytes, std::string message) {
  return {std::move(name), file_of(header, data_bytes), std::move(message)};
}
std::string sized(uint64_t size) {
  std::string file(8, '\0');
  store_le(std::as_writable_bytes(std::span(file)).data(), size);
  return file;
}

class SafetensorsAttackTest : public testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsAttackTest,
    testing::Values(
        Attack{"Empty", "", "the size of the header"}, Attack{"ShortSize", "1234567", "the size of the header"},
        Attack{"HeaderBeyondFile", sized(50) + "{}", "the header should be 50 bytes from byte 8"},
        Attack{"HeaderHuge", sized(100'000'001) + "{}", "more than the 100000000 allowed"},
        Attack{"HeaderWraps", sized(UINT64_MAX) + "{}", "more than the 100000000 allowed"},
        Attack{"HeaderWrapsWithEight", sized(UINT64_MAX - 7) + "{}", "more than"},
        Attack{"ZeroHeader", sized(0) + "{}", "does not start with"},
        header_attack("Spaces", "  {}", 0, "does not start with"),
        header_attack("Array", "[]", 0, "does not start with"), header_attack("Cut", R"({"a":)", 0, "line 1"),
        header_attack("TrailingText", "{} x", 0, "line 1"), header_attack("NotUtf8", "{\"\xff\":1}", 0, "UTF-8"),
        header_attack("DeepJson", "{\"a\":" + std::string(100'000, '['), 0, "nested deeper"),
        header_attack("DeepMetadata", R"({"__metadata__":{"a":[[[[[[[[[]]]]]]]]]}})", 0, "nested deeper"),
        header_attack("MetadataNumber", R"({"__metadata__":{"a":1}})", 0, "object of strings"),
        header_attack("MetadataArray", R"({"__metadata__":[]})", 0, "object of strings"),
        header_attack("DuplicateTensor",
                      "{\"a\":" + tensor_entry("U8", "[1]", "[0,1]") +
                          ",\"a\":" + tensor_entry("U8", "[1]", "[1,2]") + "}",
                      2, "the key 'a' appears twice"),
        header_attack("DuplicateByEscape",
                      "{\"a\":" + tensor_entry("U8", "[1]", "[0,1]") +
                          ",\"\\u0061\":" + tensor_entry("U8", "[1]", "[1,2]") + "}",
                      2, "the key 'a' appears twice"),
        header_attack("DuplicateField", R"({"a":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}})", 1,
                      "twice"),
        header_attack("DuplicateMetadata", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"),
        header_attack("MissingShape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "must have dtype, shape"),
        header_attack("OtherField", R"({"a":{"dtype":"U8","shape":[1],"offsets":[0,1]}})", 1,
                      "tensor 'a' has no data_offsets"),
        header_attack("ExtraField", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1,
                      "must have dtype"),
        header_attack("NotAnObject", R"({"a":7})", 0, "tensor 'a' must have"),
        header_attack("UnknownDtype", "{\"a\":" + tensor_entry("F4", "[2]", "[0,1]") + "}", 1, "dtype \"F4\""),
        header_attack("DtypeNumber", R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype 7"),
        header_attack("NegativeDim", "{\"a\":" + tensor_entry("U8", "[-1]", "[0,1]") + "}", 1, "each dim of shape"),
        header_attack("FloatDim", "{\"a\":" + tensor_entry("U8", "[1.0]", "[0,1]") + "}", 1, "each dim of shape"),
        header_attack("StringDim", "{\"a\":" + tensor_entry("U8", "[\"1\"]", "[0,1]") + "}", 1, "each dim of shape"),
        header_attack("ShapeNotArray", "{\"a\":" + tensor_entry("U8", "1", "[0,1]") + "}", 1, "shape must"),
        header_attack("ManyDims",
                      "{\"a\":" + tensor_entry("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1,
                      "16 dims"),
        header_attack("ShapeOverflows", "{\"a\":" + tensor_entry("F32", "[4294967296,4294967296]", "[0,0]") + "}", 0,
                      "64 bits"),
        header_attack("ShapeOverflowsBySize", "{\"a\":" + tensor_entry("F32", "[4611686018427387904]", "[0,0]") + "}",
                      0, "64 bits"),
        header_attack("DimAbove63Bits", "{\"a\":" + tensor_entry("U8", "[9223372036854775808]", "[0,0]") + "}", 0,
                      "64 bits"),
        header_attack("DimAbove64Bits", "{\"a\":" + tensor_entry("U8", "[18446744073709551616]", "[0,0]") + "}", 0,
                      "each dim"),
        header_attack("ZeroHidesOverflow",
                      "{\"a\":" + tensor_entry("F32", "[4294967296,4294967296,4294967296,0]", "[0,0]") + "}", 0,
                      "64 bits"),
        header_attack("OffsetsReversed", "{\"a\":" + tensor_entry("U8", "[1]", "[1,0]") + "}", 1, "takes 1 bytes"),
        header_attack("OffsetsNegative", "{\"a\":" + tensor_entry("U8", "[1]", "[-1,0]") + "}", 1,
                      "data_offsets must be"),
        header_attack("OffsetsWrap", "{\"a\":" + tensor_entry("U8", "[2]", "[18446744073709551615,1]") + "}", 1,
                      "takes 2 bytes"),
        header_attack("OffsetsThree", "{\"a\":" + tensor_entry("U8", "[1]", "[0,1,2]") + "}", 1,
                      "must be [begin, end]"),
        header_attack("SizeNotShape", "{\"a\":" + tensor_entry("F32", "[2]", "[0,4]") + "}", 4, "takes 8 bytes"),
        header_attack("BeyondFile", "{\"a\":" + tensor_entry("U8", "[9]", "[0,9]") + "}", 8, "was cut short"),
        header_attack("FarBeyondFile",
                      "{\"a\":" + tensor_entry("U8", "[4611686018427387904]", "[0,4611686018427387904]") + "}", 8,
                      "was cut short"),
        header_attack("HoleAtStart", "{\"a\":" + tensor_entry("U8", "[1]", "[1,2]") + "}", 2,
                      "overlap nor leave holes"),
        header_attack("Hole",
                      "{\"a\":" + tensor_entry("U8", "[1]", "[0,1]") +
                          ",\"b\":" + tensor_entry("U8", "[1]", "[2,3]") + "}",
                      3, "tensor 'b' begins at byte 2"),
        header_attack("Overlap",
                      "{\"a\":" + tensor_entry("U8", "[2]", "[0,2]") +
                          ",\"b\":" + tensor_entry("U8", "[2]", "[1,3]") + "}",
                      3, "tensor 'b' begins at byte 1"),
        header_attack("SameBytesTwice",
                      "{\"a\":" + tensor_entry("U8", "[2]", "[0,2]") +
                          ",\"b\":" + tensor_entry("U8", "[2]", "[0,2]") + "}",
                      2, "overlap"),
        header_attack("TrailingBytes", "{\"a\":" + tensor_entry("U8", "[1]", "[0,1]") + "}", 9,
                      "8 bytes follow the last tensor"),
        header_attack("DataWithoutTensors", "{}", 3, "3 bytes follow")),
    [](const auto& test) { return test.param.name; });

TEST_P(SafetensorsAttackTest, IsRefusedByName) {
  const TemporaryFolder folder;
  const std::string message = safetensors_error(folder / "evil", GetParam().content);
  EXPECT_TRUE(message.find(folder / "evil") != std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_LT(message.size(), 700u) << "no attacker's text at length in messages";
}

TEST(Safetensors, ListsWhatTensorsCannotHold) {
  const TemporaryFolder folder;
  const std::string header = "{\"deep\":" + tensor_entry("U8", "[1,1,1,1,2]", "[0,2]") +
                             ",\"flag\":" + tensor_entry("BOOL", "[3]", "[2,5]") +
                             ",\"f8\":" + tensor_entry("F8_E4M3", "[1]", "[5,6]") + "}";
  ASSERT_EQ(safetensors_error(folder / "a", file_of(header, 6)), "opened");
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.bytes(file.at("deep")).size(), 2u);
  EXPECT_EQ(file.at("flag").dtype_name, "BOOL");
  EXPECT_THROW(file.at("deep").shape(), Error);
  EXPECT_THROW(file.at("flag").dtype(), Error);
  EXPECT_THROW(file.at("f8").dtype(), Error);
}

std::string valid_safetensors() {
  const std::vector<SafetensorsInfo> infos{
      {"wte", DType::f32, {4, 2}}, {"h.0.w", DType::bf16, {3}}, {"none", DType::i64, {0}}};
  return safetensors_header(infos, {{"format", "weft"}}) + std::string(38, 'y');
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = valid_safetensors();
  ASSERT_EQ(safetensors_error(folder / "a", whole), "opened");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(safetensors_error(folder / "a", std::string_view(whole).substr(0, size)), "opened") << size;
  }
  EXPECT_NE(safetensors_error(folder / "a", whole + "z"), "opened");
}

TEST(Safetensors, MutatedHeadersNeverCrash) {
  const TemporaryFolder folder;
  const std::string whole = valid_safetensors();
  const size_t header_end = whole.size() - 38;
  std::mt19937 random(11);
  int opened = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = whole;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % header_end;
      if (random() % 2) {
        text[at] = char(random());
      } else {
        text[at] = "0123456789[]{}\",:-e"[random() % 19];
      }
    }
    opened += safetensors_error(folder / "a", text) == "opened";
  }
  EXPECT_LT(opened, 4000);
}

}  // namespace
}  // namespace weft
