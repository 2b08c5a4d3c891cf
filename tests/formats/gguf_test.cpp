// GGUF: real files and every type of value are read; a header that lies about anything is refused by name.
#include "weft/formats/gguf.h"

#include <random>

#include "base/temporary_folder.h"
#include "formats/attack.h"
#include "formats/gguf_bytes.h"
#include "formats/opening_error.h"
#include "support/message_of.h"
#include "support/test_data.h"
#include "weft/formats/safetensors.h"

namespace weft {
namespace {

std::string gguf_error(const std::string& path, std::string_view content) {
  return opening_error(path, content, [&] {
    const GgufFile file(path);
    for (const GgufTensor& tensor : file.tensors()) (void)file.bytes(tensor);
  });
}

// One key of each type and two tensors.
std::string valid_gguf(uint32_t version = 3) {
  GgufBytes file(2, 15, version);
  file.key("u8", GgufType::u8, uint8_t(200)).key("i8", GgufType::i8, int8_t(-100));
  file.key("u16", GgufType::u16, uint16_t(60000)).key("i16", GgufType::i16, int16_t(-30000));
  file.key("u32", GgufType::u32, uint32_t(4'000'000'000)).key("i32", GgufType::i32, int32_t(-2'000'000'000));
  file.key("u64", GgufType::u64, UINT64_MAX).key("i64", GgufType::i64, INT64_MIN);
  file.key("f32", GgufType::f32, 0.1f).key("f64", GgufType::f64, 0.1);
  file.key("yes", GgufType::boolean, uint8_t(1)).string_key("name", std::string_view("a\0\xff", 3));
  file.key("words", GgufType::array).array(GgufType::string, 2).string("one").string("");
  file.key("rows", GgufType::array).array(GgufType::array, 2);
  file.array(GgufType::i16, 2).number(int16_t(1)).number(int16_t(-2)).array(GgufType::boolean, 1).number(uint8_t(1));
  file.key("general.alignment", GgufType::u32, uint32_t(64));
  file.tensor("wte", {3, 2}, GgmlType::f32, 64).tensor("blocks", {32, 1, 2}, GgmlType::q8_0, 128);
  return file.data(128 + 68, 64).bytes();
}

class GgufVersionTest : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Versions, GgufVersionTest, testing::Values(2, 3));

TEST_P(GgufVersionTest, EveryTypeOfValueIsRead) {
  const TemporaryFolder folder;
  write_file_atomically(FileSystem::real(), folder / "a", valid_gguf(GetParam()));
  const GgufFile file(folder / "a");
  EXPECT_EQ(file.version(), GetParam());
  EXPECT_EQ(file.at("u8").integer(), 200);
  EXPECT_EQ(file.at("i8").integer(), -100);
  EXPECT_EQ(file.at("u16").integer(), 60000);
  EXPECT_EQ(file.at("i16").integer(), -30000);
  EXPECT_EQ(file.at("u32").integer(), 4'000'000'000);
  EXPECT_EQ(file.at("i32").integer(), -2'000'000'000);
  EXPECT_EQ(file.at("i64").integer(), INT64_MIN);
  EXPECT_EQ(file.at("f32").number(), double(0.1f));
  EXPECT_EQ(file.at("f64").number(), 0.1);
  EXPECT_EQ(file.at("u8").number(), 200);
  EXPECT_TRUE(file.at("yes").boolean());
  EXPECT_EQ(file.at("name").string(), std::string_view("a\0\xff", 3));
  EXPECT_EQ(file.at("words").strings(), (std::vector<std::string_view>{"one", ""}));
  const std::vector<GgufValue> rows = file.at("rows").elements();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].is_array_of(GgufType::i16));
  EXPECT_EQ(rows[0].integers(), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(rows[0].numbers(), (std::vector<double>{1, -2}));
  EXPECT_EQ(rows[1].booleans(), (std::vector<bool>{true}));
  EXPECT_EQ(file.keys().front(), "u8");
  EXPECT_EQ(file.keys().back(), "general.alignment");
  EXPECT_EQ(file.alignment(), 64u);

  EXPECT_EQ(file.tensor("wte").dims, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(file.tensor("wte").shape(), Shape({2, 3}));
  EXPECT_EQ(file.bytes(file.tensor("wte")).size(), 24u);
  const GgufTensor& blocks = file.tensor("blocks");
  EXPECT_EQ(blocks.type, GgmlType::q8_0);
  EXPECT_EQ(blocks.shape(), Shape({2, 1, 32}));
  EXPECT_EQ(text_of(file.bytes(blocks)), std::string(68, 'x'));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.bytes(blocks).data()) % 64, 0u);
}

TEST(Gguf, AccessorsNameTheKey) {
  const TemporaryFolder folder;
  write_file_atomically(FileSystem::real(), folder / "a", valid_gguf());
  const GgufFile file(folder / "a");
  const std::string at = folder / "a" + ": key ";
  EXPECT_EQ(message_of([&] { file.at("yess"); }), folder / "a" + " has no key 'yess'; did you mean yes?");
  EXPECT_EQ(message_of([&] { file.at("yes").integer(); }), at + "'yes' must be an integer, but is a bool");
  EXPECT_EQ(message_of([&] { file.at("yes").number(); }), at + "'yes' must be a number, but is a bool");
  EXPECT_EQ(message_of([&] { file.at("u8").boolean(); }), at + "'u8' must be a bool, but is a u8");
  EXPECT_EQ(message_of([&] { file.at("words").string(); }), at + "'words' must be a string, but is an array");
  EXPECT_EQ(message_of([&] { file.at("name").strings(); }), at + "'name' must be an array, but is a string");
  EXPECT_EQ(message_of([&] { file.at("words").integers(); }),
            at + "'words': each element must be an integer, but is a string");
  EXPECT_EQ(message_of([&] { file.at("u8").integer(0, 99); }), at + "'u8' is 200, but must be from 0 to 99");
  EXPECT_EQ(message_of([&] { file.at("u64").integer(); }),
            at + "'u64' is 18446744073709551615, more than 63 bits hold");
  EXPECT_EQ(message_of([&] { file.tensor("blcks"); }), folder / "a" + " has no tensor 'blcks'; did you mean blocks?");
  EXPECT_EQ(file.find_tensor("blcks"), nullptr);
  EXPECT_EQ(file.integer_or("absent", 7), 7);
  EXPECT_EQ(file.integer_or("u8", 7), 200);
  EXPECT_EQ(file.number_or("absent", 0.5), 0.5);
  EXPECT_EQ(file.boolean_or("yes", false), true);
  EXPECT_EQ(file.string_or("absent", "none"), "none");
  EXPECT_EQ(message_of([&] { file.integer_or("yes", 7); }), at + "'yes' must be an integer, but is a bool");
}

Attack gguf_attack(std::string name, const GgufBytes& file, std::string message) {
  return {std::move(name), file.bytes(), std::move(message)};
}
// A key alone, and a tensor alone with 32 bytes of data.
Attack key_attack(std::string name, GgufBytes key, std::string message) {
  return gguf_attack(std::move(name), GgufBytes(0, 1).raw(key.bytes()).data(32), std::move(message));
}
Attack gguf_tensor_attack(std::string name, std::vector<uint64_t> dims, GgmlType type, uint64_t offset,
                          std::string message) {
  return gguf_attack(std::move(name), GgufBytes(1, 0).tensor("a", std::move(dims), type, offset).data(32),
                     std::move(message));
}
GgufBytes two_tensors(uint64_t first, uint64_t second) {
  return GgufBytes(2, 0).tensor("a", {8}, GgmlType::f32, first).tensor("b", {9}, GgmlType::f32, second).data(128);
}
GgufBytes nested_arrays(int depth) {
  GgufBytes key;
  key.key("k", GgufType::array);
  for (int i = 1; i < depth; ++i) key.array(GgufType::array, 1);
  return key.array(GgufType::u8, 0);
}
GgufBytes array_of(GgufType type, uint64_t count) { return GgufBytes().key("k", GgufType::array).array(type, count); }
GgufBytes alignment(uint32_t value) { return GgufBytes().key("general.alignment", GgufType::u32, value); }

const uint64_t kHugeCount = uint64_t(1) << 62;
const std::string kLong(70'000, 'k');

class GgufAttackTest : public testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(
    Headers, GgufAttackTest,
    testing::Values(
        Attack{"Empty", "", "not a GGUF file"}, Attack{"OtherMagic", "GGML\3", "not a GGUF file"},
        Attack{"MagicOnly", "GGUF", "ends within the version"},
        gguf_attack("Version1", GgufBytes(0, 0, 1), "version 1"),
        gguf_attack("Version4", GgufBytes(0, 0, 4), "version 4"),
        gguf_attack("Version0", GgufBytes(0, 0, 0), "version 0"),
        gguf_attack("BigEndian", GgufBytes(0, 0, 3u << 24), "big-endian"),
        gguf_attack("ManyTensors", GgufBytes((1 << 20) + 1, 0), "the number of tensors is 1048577; at most"),
        gguf_attack("AllTensors", GgufBytes(UINT64_MAX, 0), "the number of tensors is"),
        gguf_attack("TensorsBeyondFile", GgufBytes(1000, 0), "more than 24 bytes can hold"),
        gguf_attack("ManyKeys", GgufBytes(0, 1 << 17), "the number of keys is 131072; at most"),
        gguf_attack("KeysBeyondFile", GgufBytes(0, 50), "more than 24 bytes can hold"),
        key_attack("EmptyKey", GgufBytes().key("", GgufType::u8, uint8_t(1)), "a key has no name"),
        key_attack("ControlInKey", GgufBytes().key("a\x1b[2J", GgufType::u8, uint8_t(1)), "'a?[2J' has a control"),
        key_attack("LongKey", GgufBytes().key(kLong, GgufType::u8, uint8_t(1)), "65535 are allowed"),
        key_attack("KeyWraps", GgufBytes().number(UINT64_MAX).raw("abcdefghijk"), "65535 are allowed"),
        key_attack("KeyBeyondFile", GgufBytes().number(uint64_t(2000)).raw("abcdefghijk"), "only 64 follow"),
        key_attack("UnknownType", GgufBytes().string("k").number(uint32_t(13)), "key 'k' has the unknown type 13"),
        key_attack("Boolean2", GgufBytes().key("k", GgufType::boolean, uint8_t(2)), "key 'k' holds 2"),
        key_attack("StringHuge", GgufBytes().key("k", GgufType::string, kHugeCount), "key 'k' would have"),
        key_attack("StringWraps", GgufBytes().key("k", GgufType::string, UINT64_MAX - 7), "key 'k' would have"),
        key_attack("StringBeyondFile", GgufBytes().key("k", GgufType::string, uint64_t(500)), "follow: the file is"),
        key_attack("ArrayHuge", array_of(GgufType::u64, kHugeCount), "4611686018427387904 elements, but only"),
        key_attack("ArrayWraps", array_of(GgufType::u64, (UINT64_MAX / 8) + 2), "elements, but only"),
        key_attack("ArrayOfStringsHuge", array_of(GgufType::string, kHugeCount), "elements, but only"),
        key_attack("ArrayOfArraysHuge", array_of(GgufType::array, kHugeCount), "elements, but only"),
        key_attack("ArrayOfUnknownType", array_of(GgufType(77), 1), "the unknown type 77"),
        key_attack("ArrayOfBooleans", array_of(GgufType::boolean, 1).raw("x"), "where only 0 and 1"),
        key_attack("StringInArrayBeyondFile", array_of(GgufType::string, 1).number(uint64_t(400)), "would have 400"),
        key_attack("Deep", nested_arrays(5), "nested deeper than 4 levels"),
        key_attack("VeryDeep", nested_arrays(100'000), "nested deeper than 4 levels"),
        gguf_attack("DuplicateKey",
                    GgufBytes(0, 2).key("k", GgufType::u8, uint8_t(1)).key("k", GgufType::u32, uint32_t(1)).data(0),
                    "the key 'k' appears twice"),
        key_attack("Alignment0", alignment(0), "general.alignment' is 0, but must be from 1"),
        key_attack("Alignment24", alignment(24), "must be a power of two"),
        key_attack("AlignmentHuge", alignment(0x80000000), "must be from 1 to 1048576"),
        key_attack("AlignmentString", GgufBytes().string_key("general.alignment", "32"), "must be an integer"),
        gguf_attack("DuplicateTensor",
                    GgufBytes(2, 0).tensor("a", {1}, GgmlType::f32, 0).tensor("a", {1}, GgmlType::f32, 32).data(64),
                    "the tensor 'a' appears twice"),
        gguf_attack("LongName", GgufBytes(1, 0).tensor(kLong, {1}, GgmlType::f32, 0).data(32), "1024 are allowed"),
        gguf_attack("EmptyName", GgufBytes(1, 0).tensor("", {1}, GgmlType::f32, 0).data(32), "a tensor has no name"),
        gguf_attack("UnknownTensorType", GgufBytes(1, 0).tensor("a", {1}, 36u, 0).data(32), "unknown ggml type 36"),
        gguf_tensor_attack("FiveDims", {1, 1, 1, 1, 1}, GgmlType::f32, 0, "has 5 dims"),
        gguf_tensor_attack("PartOfABlock", {33}, GgmlType::q4_0, 0,
                           "rows of 33 elements, but Q4_0 comes in blocks of 32"),
        gguf_tensor_attack("RowsOfHalfBlocks", {128, 2}, GgmlType::q4_k, 0, "blocks of 256"),
        gguf_tensor_attack("DimAbove63Bits", {uint64_t(1) << 63}, GgmlType::i8, 0, "63 bits"),
        gguf_tensor_attack("DimsWrap", {uint64_t(1) << 32, uint64_t(1) << 32}, GgmlType::i8, 0, "63 bits"),
        gguf_tensor_attack("BytesWrap", {kHugeCount}, GgmlType::f32, 0, "63 bits"),
        gguf_tensor_attack("ZeroHidesOverflow", {kHugeCount, kHugeCount, 0}, GgmlType::f32, 0, "63 bits"),
        gguf_tensor_attack("Unaligned", {1}, GgmlType::f32, 4, "which is no multiple of 32"),
        gguf_tensor_attack("BeyondFile", {9}, GgmlType::f32, 0, "the file holds only 32 bytes of data"),
        gguf_tensor_attack("OffsetBeyondFile", {1}, GgmlType::f32, 64, "it was cut short"),
        gguf_tensor_attack("OffsetWraps", {8}, GgmlType::f32, UINT64_MAX - 31, "it was cut short"),
        gguf_attack("NoData", GgufBytes(1, 0).tensor("a", {1}, GgmlType::f32, 0), "the file holds only 0 bytes"),
        gguf_attack("Overlap", two_tensors(32, 0), "tensor 'a' begins at byte 32 of the data, but the one before"),
        gguf_attack("SamePlace", two_tensors(0, 0), "they overlap")),
    [](const auto& test) { return test.param.name; });

TEST_P(GgufAttackTest, IsRefusedByName) {
  const TemporaryFolder folder;
  const std::string message = gguf_error(folder / "evil", GetParam().content);
  EXPECT_TRUE(message.find(folder / "evil") != std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_LT(message.size(), 700u) << "no attacker's text at length in messages";
}

TEST(Gguf, OddButValidFilesAreRead) {
  const TemporaryFolder folder;
  const auto opens = [&](const GgufBytes& file) { return gguf_error(folder / "a", file.bytes()); };
  EXPECT_EQ(opens(GgufBytes(0, 0)), "opened") << "neither keys nor tensors";
  EXPECT_EQ(opens(GgufBytes(0, 1).raw(nested_arrays(4).bytes())), "opened");
  EXPECT_EQ(opens(GgufBytes(1, 0).tensor("none", {0, 7}, GgmlType::f32, 0)), "opened") << "no data at all";
  EXPECT_EQ(opens(GgufBytes(1, 0).tensor("scalar", {}, GgmlType::f32, 0).data(4)), "opened");
  EXPECT_EQ(opens(two_tensors(64, 0)), "opened") << "in another order";
  EXPECT_EQ(opens(two_tensors(0, 64)), "opened") << "with a hole";
  const GgufBytes twice = GgufBytes(2, 0).tensor("a", {0}, GgmlType::f32, 0).tensor("b", {1}, GgmlType::f32, 0);
  EXPECT_EQ(opens(GgufBytes(twice).data(4)), "opened") << "an empty tensor takes no place";
}

TEST(Gguf, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = valid_gguf();
  ASSERT_EQ(gguf_error(folder / "a", whole), "opened");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(gguf_error(folder / "a", std::string_view(whole).substr(0, size)), "opened") << size;
  }
}

TEST(Gguf, MutatedHeadersNeverCrash) {
  const TemporaryFolder folder;
  const std::string whole = valid_gguf();
  std::mt19937 random(5);
  int opened = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = whole;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      text[at] = random() % 2 ? char(random()) : "\0\1\2\3\xff\x7f\x80"[random() % 7];
    }
    opened += gguf_error(folder / "a", text) == "opened";
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, 4000);
}

TEST(Gguf, ARealModelHoldsTheTensorsOfItsSafetensorsFile) {
  const std::string path = test_data("models/stories260K/stories260K.f32.gguf");
  if (path.empty()) GTEST_SKIP() << no_test_data("models/stories260K");
  const GgufFile file(path);
  EXPECT_EQ(file.at("general.architecture").string(), "llama");
  EXPECT_EQ(file.at("llama.block_count").integer(), 5);
  EXPECT_EQ(file.at("llama.rope.freq_base").number(), 10000);
  EXPECT_EQ(file.at("tokenizer.ggml.tokens").size(), 512u);
  EXPECT_EQ(file.at("tokenizer.ggml.tokens").strings()[1], "<s>");
  EXPECT_EQ(file.at("tokenizer.ggml.scores").numbers().size(), 512u);
  ASSERT_EQ(file.tensors().size(), 48u);
  const SafetensorsFile same(test_data("models/stories260K/model.safetensors"));
  const auto equals = [&](const char* name, const char* there) {
    const GgufTensor& tensor = file.tensor(name);
    EXPECT_EQ(tensor.type, GgmlType::f32);
    EXPECT_EQ(tensor.shape(), same.at(there).shape()) << name;
    EXPECT_EQ(text_of(file.bytes(tensor)), text_of(same.bytes(same.at(there)))) << name;
  };
  equals("token_embd.weight", "model.embed_tokens.weight");
  equals("blk.4.ffn_down.weight", "model.layers.4.mlp.down_proj.weight");
  equals("output_norm.weight", "model.norm.weight");
}

struct Vocabulary {
  std::string name, model;
  uint64_t size;
};
class GgufVocabularyTest : public testing::TestWithParam<Vocabulary> {};
INSTANTIATE_TEST_SUITE_P(Real, GgufVocabularyTest,
                         testing::Values(Vocabulary{"bert-bge", "bert", 30522},
                                         Vocabulary{"deepseek-coder", "gpt2", 32256},
                                         Vocabulary{"falcon", "gpt2", 65024}, Vocabulary{"gpt-2", "gpt2", 50257},
                                         Vocabulary{"llama-spm", "llama", 32000}, Vocabulary{"phi-3", "llama", 32064},
                                         Vocabulary{"starcoder", "gpt2", 49152}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(GgufVocabularyTest, IsReadWhole) {
  const std::string name = "tokenizers/llama.cpp/ggml-vocab-" + GetParam().name + ".gguf";
  const std::string path = test_data(name);
  if (path.empty()) GTEST_SKIP() << no_test_data(name);
  const GgufFile file(path);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.at("tokenizer.ggml.model").string(), GetParam().model);
  EXPECT_EQ(file.at("tokenizer.ggml.tokens").strings().size(), GetParam().size);
  EXPECT_EQ(file.at("tokenizer.ggml.token_type").integers().size(), GetParam().size);
}

}  // namespace
}  // namespace weft
