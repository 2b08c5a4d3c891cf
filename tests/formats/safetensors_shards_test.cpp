// Safetensors in shards: written and read back over any size of shard; an index that lies is refused by name.
#include "weft/formats/safetensors_shards.h"

#include <nlohmann/json.hpp>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "formats/attack.h"
#include "weft/base/json.h"

namespace weft {
namespace {

const std::vector<SafetensorsInfo> kWeights = {{"wte", DType::f32, {5, 2}},                               // 40 bytes
                                               {"none", DType::f32, {0}},   {"h.0.w", DType::bf16, {6}},  // 12
                                               {"h.0.b", DType::u8, {3}},                                 // 3
                                               {"h.1.w", DType::bf16, {6}},                               // 12
                                               {"last", DType::u8, {0, 1}}};
const std::string kData = "The quick brown fox jumps over the lazy dog; then it does so again.";  // 67 bytes

void write_model(FileSystem& fs, const std::string& folder, uint64_t max_shard_bytes, size_t piece = 1000) {
  SafetensorsShardsWriter writer(fs, folder, kWeights, {{"format", "pt"}}, max_shard_bytes);
  for (size_t at = 0; at < kData.size(); at += piece) {
    writer.write(bytes_of(std::string_view(kData).substr(at, piece)));
  }
  writer.finish();
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

struct Size {
  std::string name;
  uint64_t max_bytes;
  std::vector<size_t> shards;
};
class ShardSizeTest : public testing::TestWithParam<Size> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ShardSizeTest,
                         testing::Values(Size{"All", 67, {0, 0, 0, 0, 0, 0}}, Size{"Two", 66, {0, 0, 0, 0, 1, 1}},
                                         Size{"FirstAlone", 40, {0, 0, 1, 1, 1, 1}},
                                         Size{"LargerThanAShard", 15, {0, 0, 1, 1, 2, 2}},
                                         Size{"One", 1, {0, 0, 1, 2, 3, 3}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(ShardSizeTest, WhatIsWrittenIsReadBack) {
  EXPECT_EQ(assign_shards(kWeights, GetParam().max_bytes), GetParam().shards);
  for (const size_t piece : {1, 7, 1000}) {
    const TemporaryFolder folder;
    write_model(FileSystem::real(), folder.path(), GetParam().max_bytes, piece);
    const SafetensorsShards model(folder.path());
    EXPECT_EQ(model.files().size(), GetParam().shards.back() + 1);
    EXPECT_EQ(model.entries().size(), kWeights.size());
    std::string read;
    for (const SafetensorsInfo& info : kWeights) {
      EXPECT_EQ(model.at(info.name).dtype(), info.dtype);
      EXPECT_EQ(model.at(info.name).shape(), info.shape);
      read += text_of(model.bytes(model.at(info.name)));
    }
    EXPECT_EQ(read, kData);
    EXPECT_EQ(model.files().front().metadata().at("format"), "pt");
    for (const std::string& name : list_folder(FileSystem::real(), folder.path())) {
      EXPECT_FALSE(name.ends_with(".tmp")) << name;
    }
  }
}

TEST(SafetensorsShards, NamesAndIndexAreThoseOfHuggingFace) {
  const TemporaryFolder folder;
  write_model(FileSystem::real(), folder.path(), 40);
  EXPECT_EQ(list_folder(FileSystem::real(), folder.path()),
            (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"}));
  const auto index = parse_json(read_file(folder / "model.safetensors.index.json", 10'000), "index");
  EXPECT_EQ(index["metadata"]["total_size"], 67);
  EXPECT_EQ(index["weight_map"]["h.1.w"], "model-00002-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"].size(), kWeights.size());
  // The index and a single file can be named themselves.
  EXPECT_EQ(SafetensorsShards(folder / "model.safetensors.index.json").entries().size(), kWeights.size());
  EXPECT_EQ(SafetensorsShards(folder / "model-00001-of-00002.safetensors").entries().size(), 2u);
}

TEST(SafetensorsShards, AMissingTensorIsNamed) {
  const TemporaryFolder folder;
  write_model(FileSystem::real(), folder.path(), 40);
  const SafetensorsShards model(folder.path());
  EXPECT_EQ(model.find("h.2.w"), nullptr);
  EXPECT_EQ(error_of([&] { model.at("h.2.w"); }),
            folder / "model.safetensors.index.json" + " has no tensor 'h.2.w'; did you mean h.0.w?");
  EXPECT_NE(error_of([&] { SafetensorsShards(folder / "absent"); }).find("has neither"), std::string::npos);
}

std::string index_of(std::string_view weight_map) { return fmt::format(R"({{"weight_map": {}}})", weight_map); }

class ShardIndexTest : public testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(
    Indices, ShardIndexTest,
    testing::Values(
        Attack{"NotJson", "{", "line 1"}, Attack{"NoMap", "{}", "weight_map is missing"},
        Attack{"MapIsAList", index_of("[]"), "weight_map must be an object"},
        Attack{"FileIsANumber", index_of(R"({"a": 7})"), "weight_map.a must be a string"},
        Attack{"Duplicate", index_of(R"({"a": "a.safetensors", "a": "b.safetensors"})"), "appears twice"},
        Attack{"Deep", index_of(std::string(100, '[')), "nested deeper"},
        Attack{"Parent", index_of(R"({"a": "../a.safetensors"})"), "not the name of a .safetensors file"},
        Attack{"Absolute", index_of(R"({"a": "/etc/a.safetensors"})"), "not the name"},
        Attack{"Folder", index_of(R"({"a": "x/a.safetensors"})"), "not the name"},
        Attack{"Backslash", index_of(R"({"a": "..\\a.safetensors"})"), "not the name"},
        Attack{"Zero", index_of(R"({"a": "a.safetensors\u0000.safetensors"})"), "not the name"},
        Attack{"OtherEnding", index_of(R"({"a": "a.bin"})"), "not the name"},
        Attack{"Empty", index_of(R"({"a": ""})"), "not the name"},
        Attack{"MissingFile", index_of(R"({"a": "c.safetensors"})"), "names c.safetensors, which is not there"},
        Attack{"MissingTensor", index_of(R"({"zzz": "a.safetensors"})"), "has no tensor 'zzz', which"},
        Attack{"WrongFile", index_of(R"({"a": "b.safetensors"})"), "has no tensor 'a', which"},
        Attack{"InTwoFiles", index_of(R"({"a": "a.safetensors", "b": "b.safetensors"})"), "tensor 'both' is in "}),
    [](const auto& test) { return test.param.name; });

TEST_P(ShardIndexTest, IsRefusedByName) {
  const TemporaryFolder folder;
  for (const std::string name : {"a", "b"}) {
    SafetensorsWriter writer(FileSystem::real(), folder / (name + ".safetensors"),
                             {{name, DType::u8, {1}}, {"both", DType::u8, {1}}});
    writer.write(bytes_of("xy"));
    writer.finish();
  }
  write_file_atomically(FileSystem::real(), folder / std::string(kSafetensorsNames.index), GetParam().content);
  const std::string message = error_of([&] { SafetensorsShards model(folder.path()); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_NE(message.find(folder.path()), std::string::npos) << message;
}

TEST(SafetensorsShardsWriter, KeepsOffOtherModels) {
  for (const std::string_view name : {"model.safetensors", "model.safetensors.index.json"}) {
    const TemporaryFolder folder;
    write_file_atomically(FileSystem::real(), folder / name, "{}");
    EXPECT_NE(error_of([&] { write_model(FileSystem::real(), folder.path(), 40); }).find("is there already"),
              std::string::npos);
  }
}

TEST(SafetensorsShardsWriter, HoldsTheCallerToTheList) {
  const TemporaryFolder folder;
  SafetensorsShardsWriter writer(FileSystem::real(), folder.path(), kWeights, {}, 40);
  writer.write(bytes_of(std::string_view(kData).substr(0, 30)));
  EXPECT_THROW(writer.finish(), Error);
  writer.write(bytes_of(std::string_view(kData).substr(30)));
  EXPECT_THROW(writer.write(bytes_of("x")), Error);
}

// Whichever call fails, the folder never holds a model that can be opened and is not whole.
TEST(SafetensorsShardsWriter, AFailureLeavesNoHalfModel) {
  for (const uint64_t max_bytes : {40, 100}) {
    FaultyFileSystem counting;
    {
      const TemporaryFolder folder;
      write_model(counting, folder.path(), max_bytes);
    }
    int64_t num_failed = 0;
    for (int64_t n = 0; n < counting.calls(); ++n) {
      const TemporaryFolder folder;
      FaultyFileSystem faulty(Fault::eio_for_good, n);
      const std::string written = error_of([&] { write_model(faulty, folder.path(), max_bytes); });
      const std::string message = error_of([&] {
        const SafetensorsShards model(folder.path());
        std::string read;
        for (const SafetensorsInfo& info : kWeights) read += text_of(model.bytes(model.at(info.name)));
        EXPECT_EQ(read, kData) << n;
      });
      const bool is_absent = message.find("has neither") != std::string::npos;
      EXPECT_TRUE(message == "no error" || (is_absent && written != "no error")) << n << ": " << message;
      num_failed += written != "no error";
    }
    EXPECT_EQ(num_failed, counting.calls() - 1) << "all but the closing of the folder after its sync";
  }
}

}  // namespace
}  // namespace weft
