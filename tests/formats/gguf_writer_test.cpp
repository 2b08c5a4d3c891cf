// GGUF writing: what is written is read back; the writer holds its caller to what it announced.
#include "weft/formats/gguf_writer.h"

#include <random>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "support/test_data.h"

namespace weft {
namespace {

GgufMetadata all_types() {
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "llama");
  metadata.set<uint8_t>("u8", 255);
  metadata.set<int8_t>("i8", -128);
  metadata.set<uint16_t>("u16", 65535);
  metadata.set<int16_t>("i16", -32768);
  metadata.set<uint32_t>("u32", 4'000'000'000);
  metadata.set<int32_t>("i32", -7);
  metadata.set<uint64_t>("u64", uint64_t(1) << 40);
  metadata.set<int64_t>("i64", INT64_MIN);
  metadata.set<float>("f32", 0.1f);
  metadata.set<double>("f64", 0.1);
  metadata.set<bool>("yes", true);
  metadata.set_array<float>("scores", std::vector<float>{0.5f, -1});
  metadata.set_array<int32_t>("types", std::vector<int32_t>{});
  metadata.set_strings("words", std::vector<std::string>{"a", "", "\xe2\x96\x81the"});
  return metadata;
}

std::string random_bytes(size_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string bytes(n, '\0');
  for (char& c : bytes) c = char(random());
  return bytes;
}

const std::vector<GgufInfo> kGgufInfos = {{"odd", GgmlType::i8, {3}},
                                          {"none", GgmlType::f32, {0, 5}},
                                          {"blocks", GgmlType::q4_k, {2, 256}},
                                          {"scalar", GgmlType::f64, {}},
                                          {"wide", GgmlType::bf16, {2, 3, 1, 5}}};

uint64_t total_bytes(const std::vector<GgufInfo>& infos) {
  uint64_t bytes = 0;
  for (const GgufInfo& info : infos) bytes += info.bytes();
  return bytes;
}

class GgufAlignmentTest : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Alignments, GgufAlignmentTest, testing::Values(0, 1, 8, 64, 4096));

TEST_P(GgufAlignmentTest, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  GgufMetadata metadata = all_types();
  if (GetParam() != 0) metadata.set<uint32_t>("general.alignment", GetParam());
  const std::string data = random_bytes(total_bytes(kGgufInfos));
  GgufWriter writer(FileSystem::real(), folder / "a", kGgufInfos, metadata);
  for (size_t at = 0; at < data.size(); at += 7) writer.write(bytes_of(std::string_view(data).substr(at, 7)));
  writer.finish();

  const GgufFile file(folder / "a");
  EXPECT_EQ(file.alignment(), GetParam() ? GetParam() : 32);
  EXPECT_EQ(file.at("general.architecture").string(), "llama");
  EXPECT_EQ(file.at("u8").integer(), 255);
  EXPECT_EQ(file.at("i8").integer(), -128);
  EXPECT_EQ(file.at("u16").integer(), 65535);
  EXPECT_EQ(file.at("i16").integer(), -32768);
  EXPECT_EQ(file.at("u32").integer(), 4'000'000'000);
  EXPECT_EQ(file.at("i32").integer(), -7);
  EXPECT_EQ(file.at("u64").integer(), int64_t(1) << 40);
  EXPECT_EQ(file.at("i64").integer(), INT64_MIN);
  EXPECT_EQ(file.at("f32").number(), double(0.1f));
  EXPECT_EQ(file.at("f64").number(), 0.1);
  EXPECT_TRUE(file.at("yes").boolean());
  EXPECT_EQ(file.at("scores").numbers(), (std::vector<double>{0.5, -1}));
  EXPECT_TRUE(file.at("types").is_array_of(GgufType::i32));
  EXPECT_EQ(file.at("types").size(), 0u);
  EXPECT_EQ(file.at("words").strings(), (std::vector<std::string_view>{"a", "", "\xe2\x96\x81the"}));

  ASSERT_EQ(file.tensors().size(), kGgufInfos.size());
  std::string read;
  for (const GgufInfo& info : kGgufInfos) {
    const GgufTensor& tensor = file.tensor(info.name);
    EXPECT_EQ(tensor.type, info.type) << info.name;
    EXPECT_EQ(tensor.shape(), info.shape) << info.name;
    EXPECT_EQ(tensor.begin % file.alignment(), 0u);
    read += text_of(file.bytes(tensor));
  }
  EXPECT_EQ(read, data);
}

// Writes `file` again, value by value and tensor by tensor.
void copy_file(const GgufFile& file, const std::string& path) {
  GgufMetadata metadata;
  for (const std::string& key : file.keys()) metadata.set_copy(key, file.at(key));
  std::vector<GgufInfo> infos;
  for (const GgufTensor& tensor : file.tensors()) infos.push_back({tensor.name, tensor.type, tensor.shape()});
  GgufWriter writer(FileSystem::real(), path, infos, metadata);
  for (const GgufTensor& tensor : file.tensors()) writer.write(file.bytes(tensor));
  writer.finish();
}

TEST(GgufWriter, ARealFileIsCopiedBitForBit) {
  for (const char* name :
       {"models/stories260K/stories260K.f32.gguf", "tokenizers/llama.cpp/ggml-vocab-llama-spm.gguf"}) {
    const std::string path = test_data(name);
    if (path.empty()) GTEST_SKIP() << no_test_data(name);
    const TemporaryFolder folder;
    copy_file(GgufFile(path), folder / "copy");
    EXPECT_TRUE(read_file(path, 1 << 24) == read_file(folder / "copy", 1 << 24)) << name;
  }
}

TEST(GgufWriter, HoldsTheCallerToTheHeader) {
  const TemporaryFolder folder;
  GgufWriter writer(FileSystem::real(), folder / "a", {{"a", GgmlType::i8, {4}}, {"none", GgmlType::i8, {0}}}, {});
  writer.write(bytes_of("abc"));
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.write(bytes_of("de")), Error);

  GgufMetadata metadata;
  metadata.set<uint32_t>("a", 1);
  EXPECT_THROW(metadata.set<uint32_t>("a", 1), Error) << "twice";
  EXPECT_THROW(metadata.set<uint32_t>("general.alignment", 48), Error);
  EXPECT_THROW(metadata.set_string("general.alignment", "32"), Error);
}

TEST(GgufWriter, RefusesWhatTheFormatCannotHoldBeforeThereIsAFile) {
  const TemporaryFolder folder;
  const auto error_of = [&](const std::vector<GgufInfo>& infos) -> std::string {
    try {
      GgufWriter(FileSystem::real(), folder / "a", infos, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of({{"w", GgmlType::q4_k, {256, 100}}}),
            "tensor 'w' of shape [256, 100] cannot be stored as Q4_K: its rows must be a multiple of 256 long");
  EXPECT_NE(error_of({{std::string(64, 'n'), GgmlType::f32, {1}}}).find("1 to 63 bytes"), std::string::npos);
  EXPECT_NE(error_of({{"", GgmlType::f32, {1}}}).find("1 to 63 bytes"), std::string::npos);
  EXPECT_NE(error_of({{"a", GgmlType::f32, {1}}, {"a", GgmlType::f32, {1}}}).find("named 'a'"), std::string::npos);
  EXPECT_FALSE(exists(FileSystem::real(), folder / "a"));
}

TEST(GgufWriter, EveryFailingCallIsAnError) {
  const auto write_with = [](FileSystem& fs) {
    const TemporaryFolder folder;
    GgufWriter writer(fs, folder / "a", kGgufInfos, all_types());
    writer.write(bytes_of(random_bytes(total_bytes(kGgufInfos))));
    writer.finish();
  };
  FaultyFileSystem counting;
  write_with(counting);
  for (int64_t n = 0; n < counting.calls(); ++n) {
    for (const Fault fault : {Fault::eio, Fault::enospc}) {
      FaultyFileSystem faulty(fault, n);
      EXPECT_THROW(write_with(faulty), Error) << n;
    }
    FaultyFileSystem interrupted(Fault::short_write, n);
    EXPECT_NO_THROW(write_with(interrupted)) << n;
  }
}

}  // namespace
}  // namespace weft
