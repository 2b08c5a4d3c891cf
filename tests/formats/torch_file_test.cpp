// PyTorch checkpoints: tensors with any strides are read; a pickle that asks for anything else is refused by name.
#include "weft/formats/torch_file.h"

#include <cstring>
#include <random>

#include "base/temporary_folder.h"
#include "formats/attack.h"
#include "formats/opening_error.h"
#include "formats/zip_bytes.h"
#include "weft/formats/safetensors_shards.h"

namespace weft {
namespace {

std::string read_bytes(const TorchFile& file, const std::string& name) {
  const TorchEntry& entry = file.at(name);
  std::string bytes(entry.size(), '\0');
  file.read(entry, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

template <class T>
std::vector<T> read_values(const TorchFile& file, const std::string& name) {
  const std::string bytes = read_bytes(file, name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The file was written by PyTorch 2.15: torch.save of nested dicts and lists with numbers and text among the tensors.
TEST(TorchFile, ReadsWhatPyTorchWrote) {
  const TorchFile file(WEFT_SOURCE_DIR "/tests/formats/data/torch/tiny.bin");
  std::vector<std::string> names;
  for (const TorchEntry& entry : file.entries()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"model.plain", "model.transposed", "model.sliced", "model.tied",
                                             "model.half", "model.parameter", "model.scalar", "model.empty",
                                             "model.flags", "layers.0.w"}));
  using Floats = std::vector<float>;
  EXPECT_EQ(file.at("model.plain").shape(), Shape({3, 4}));
  EXPECT_EQ(read_values<float>(file, "model.plain"), (Floats{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(read_values<float>(file, "model.tied"), read_values<float>(file, "model.plain"));
  EXPECT_EQ(file.at("model.transposed").shape(), Shape({4, 3}));
  EXPECT_EQ(read_values<float>(file, "model.transposed"), (Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(file.at("model.sliced").shape(), Shape({2, 2}));
  EXPECT_EQ(read_values<float>(file, "model.sliced"), (Floats{4, 6, 8, 10}));
  EXPECT_EQ(file.at("model.half").dtype(), DType::f16);
  EXPECT_EQ(read_values<uint16_t>(file, "model.half"), (std::vector<uint16_t>{0x3800, 0xc000}));
  EXPECT_EQ(file.at("model.parameter").dtype(), DType::bf16);
  EXPECT_EQ(read_values<uint16_t>(file, "model.parameter"), (std::vector<uint16_t>{0x3f80, 0x4040}));
  EXPECT_EQ(file.at("model.scalar").shape(), Shape({}));
  EXPECT_EQ(read_values<int64_t>(file, "model.scalar"), (std::vector<int64_t>{-7}));
  EXPECT_EQ(file.at("model.empty").shape(), Shape({0, 3}));
  EXPECT_EQ(read_bytes(file, "model.empty"), "");
  EXPECT_EQ(file.at("model.flags").dtype_name, "BOOL");
  EXPECT_THROW(file.at("model.flags").dtype(), Error);
  EXPECT_EQ(read_bytes(file, "model.flags"), std::string("\1\0", 2));
  EXPECT_EQ(read_values<int32_t>(file, "layers.0.w"), (std::vector<int32_t>{5}));

  EXPECT_TRUE(file.at("model.plain").is_contiguous());
  EXPECT_FALSE(file.at("model.sliced").is_contiguous());
  EXPECT_EQ(text_of(file.bytes(file.at("model.plain"))), read_bytes(file, "model.plain"));
  EXPECT_THROW(file.bytes(file.at("model.sliced")), Error);
  EXPECT_THROW(file.at("model.plane"), Error);
}

// PyTorch 2.15 wrote the .bin files, and safetensors' own library the same tensors beside them.
const std::string kTorchData = WEFT_SOURCE_DIR "/tests/formats/data/torch/";

template <class Torch>
void expect_same(const Torch& torch, const TorchEntry& entry, const SafetensorsFile& expected) {
  SCOPED_TRACE(entry.name);
  const SafetensorsEntry& other = expected.at(entry.name);
  EXPECT_EQ(entry.dtype_name, other.dtype_name);
  EXPECT_EQ(entry.dims, other.dims);
  std::string bytes(entry.size(), '\0');
  torch.read(entry, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, text_of(expected.bytes(other)));
}

class TorchDataTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Files, TorchDataTest, testing::Values("state_dict", "protocol_4"),
                         [](const auto& test) { return test.param; });

TEST_P(TorchDataTest, EqualsSafetensors) {
  const TorchFile file(kTorchData + GetParam() + ".bin");
  const SafetensorsFile expected(kTorchData + GetParam() + ".safetensors");
  EXPECT_EQ(file.entries().size(), expected.entries().size());
  for (const TorchEntry& entry : file.entries()) expect_same(file, entry, expected);
}

TEST(TorchFile, StoragesAreShared) {
  const TorchFile file(kTorchData + "state_dict.bin");
  EXPECT_EQ(file.at("head.weight").storage, file.at("embedding.weight").storage);
  EXPECT_EQ(file.bytes(file.at("head.weight")).data(), file.bytes(file.at("embedding.weight")).data());
  EXPECT_EQ(file.bytes(file.at("row")).data(), file.bytes(file.at("rows")).data() + 4 * sizeof(float));
  EXPECT_EQ(file.at("column").storage, file.at("transposed").storage);
}

TEST(TorchFile, TheFormatBeforeZipIsRefused) {
  try {
    const TorchFile file(kTorchData + "before_1.6.bin");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string_view(e.what()).find("load it with PyTorch and save it again"), std::string_view::npos);
  }
}

// Pickles as text, by the letters of their operations.
std::string text(std::string_view value) {
  std::string bytes = "X";
  ZipBytes::number(bytes, uint32_t(value.size()));
  return bytes.append(value);
}
std::string integer(int64_t value) {
  std::string bytes = "\x8a\x08";
  ZipBytes::number(bytes, value);
  return bytes;
}
std::string global(std::string_view module, std::string_view name) { return fmt::format("c{}\n{}\n", module, name); }
std::string tuple(const std::vector<std::string>& items) {
  std::string bytes = "(";
  for (const std::string& item : items) bytes += item;
  return bytes + "t";
}
std::string integers(const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (const int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}
std::string storage(std::string_view type, std::string_view key, int64_t numel) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(numel)}) + "Q";
}
std::string rebuilt_tensor(const std::string& stored, int64_t offset, const std::string& dims,
                           const std::string& strides, const std::string& metadata = "") {
  const std::string hooks = global("collections", "OrderedDict") + ")R";
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({stored, integer(offset), dims, strides, "\x89", hooks, metadata}) + "R";
}
const std::string kStorage = storage("FloatStorage", "0", 6);
std::string valid_tensor() { return rebuilt_tensor(kStorage, 0, integers({2, 3}), integers({3, 1})); }
std::string dict(const std::vector<std::string>& items) {
  std::string bytes = "}(";
  for (const std::string& item : items) bytes += item;
  return bytes + "u";
}
std::string pickle(const std::string& object) { return "\x80\x02" + object + "."; }
std::string state_dict(const std::string& value) { return pickle(dict({text("w"), value})); }

std::string archive(std::string_view pickled) {
  ZipBytes zip;
  zip.add("x/data.pkl", pickled);
  zip.add("x/data/0", "abcdefghijklmnopqrstuvwx");  // 6 floats
  zip.add("x/byteorder", "little");
  return zip.bytes();
}

std::string torch_error(const std::string& path, std::string_view content) {
  return opening_error(path, content, [&] {
    const TorchFile file(path);
    for (const TorchEntry& entry : file.entries()) (void)read_bytes(file, entry.name);
  });
}

TEST(TorchFile, WhatIsNoTensorIsPassedOver) {
  const TemporaryFolder folder;
  const std::string ordered = global("collections", "OrderedDict");
  const auto names_in = [&](const std::string& pickled) {
    EXPECT_EQ(torch_error(folder / "a.bin", archive(pickled)), "opened");
    const TorchFile file(folder / "a.bin");
    std::string names;
    for (const TorchEntry& entry : file.entries()) names += entry.name + ";";
    return names;
  };
  EXPECT_EQ(names_in(state_dict(valid_tensor())), "w;");
  EXPECT_EQ(names_in(state_dict("N")), "");
  EXPECT_EQ(names_in(pickle(integer(3))), "");
  EXPECT_EQ(names_in(pickle(valid_tensor())), ";") << "a tensor alone has no name";
  EXPECT_EQ(names_in(pickle(dict({integer(7), valid_tensor(), "N", "N"}))), "7;");
  EXPECT_EQ(names_in(pickle(ordered + ")R(" + text("w") + valid_tensor() + "u" + dict({}) + "b")), "w;") << "BUILD";
  EXPECT_EQ(names_in(pickle(ordered + tuple({"](" + tuple({text("w"), valid_tensor()}) + "e"}) + "R")), "w;");
  EXPECT_EQ(names_in(state_dict(
                rebuilt_tensor(kStorage, 0, global("torch", "Size") + tuple({integers({6})}) + "R", integers({1})))),
            "w;");
}

Attack pickle_attack(std::string name, const std::string& pickled, std::string message) {
  return {std::move(name), archive(pickled), std::move(message)};
}
Attack torch_tensor_attack(std::string name, int64_t offset, const std::vector<int64_t>& dims,
                           const std::vector<int64_t>& strides, std::string message) {
  return pickle_attack(std::move(name),
                       state_dict(rebuilt_tensor(kStorage, offset, integers(dims), integers(strides))),
                       std::move(message));
}
std::string nested_lists(int depth) {
  std::string bytes, end;
  for (int i = 0; i < depth; ++i) bytes += "](", end += "e";
  return bytes + valid_tensor() + end;
}
std::string big_endian() {
  ZipBytes zip;
  zip.add("x/data.pkl", state_dict(valid_tensor()));
  zip.add("x/byteorder", "big");
  return zip.bytes();
}
std::string without_pickle() {
  ZipBytes zip;
  zip.add("x/data/0", "abcd");
  return zip.bytes();
}
std::string repeated(std::string_view bytes, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += bytes;
  return result;
}
// A list that holds itself, many times.
std::string self_containing() { return "]q\1(" + repeated("h\1", 1000) + "e"; }
// Lists of a thousand times the one before.
std::string shared_lists() {
  std::string bytes = "]q\1";
  for (int i = 0; i < 10; ++i) bytes += "0](" + repeated("h\1", 1000) + "eq\1";
  return bytes;
}

// A list of many tensors under a long key, which stands in the file once.
std::string long_names(size_t key_bytes, size_t count) {
  return pickle(
      dict({text(std::string(key_bytes, 'k')), valid_tensor() + "q\1" + "0](" + repeated("h\1", count) + "e"}));
}

const int64_t kHugeNumel = int64_t(1) << 62;
class TorchAttackTest : public testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(
    Files, TorchAttackTest,
    testing::Values(
        Attack{"NotAZip", "\x80\x02\x8a\nl\xfc\x9c", "is not in the zip format of PyTorch 1.6"},
        Attack{"WithoutPickle", without_pickle(), "is an archive without data.pkl"},
        Attack{"BigEndian", big_endian(), "big-endian"},
        pickle_attack("System", state_dict(global("os", "system") + tuple({text("true")}) + "R"),
                      "asks for os.system, which"),
        pickle_attack("Eval", state_dict(global("builtins", "eval") + tuple({text("1")}) + "R"),
                      "asks for builtins.eval"),
        pickle_attack("UnusedGlobal", state_dict(global("posix", "system") + "0N"), "asks for posix.system"),
        pickle_attack("StackGlobal", state_dict(text("os") + text("popen") + "\x93"), "asks for os.popen"),
        pickle_attack("OtherOfTorch", state_dict(global("torch.hub", "load") + ")R"), "asks for torch.hub.load"),
        pickle_attack("ControlInGlobal", state_dict(global("a\x1b[2J", "b")), "asks for a?[2J.b"),
        pickle_attack("StackGlobalOfNumbers", state_dict("K\1K\1\x93"), "the name of a global is no text"),
        pickle_attack("NewObject", state_dict(global("torch", "Size") + ")\x81"), "operation 0x81"),
        pickle_attack("Instance", state_dict("(i__main__\nA\n"), "operation 0x69"),
        pickle_attack("Reduce", state_dict("K\1)R"), "a call has no function"),
        pickle_attack("ReduceByList", state_dict(global("torch", "Size") + "]R"),
                      "a call has no function or no arguments"),
        pickle_attack("Extension", state_dict("\x82\1"), "operation 0x82"),
        pickle_attack("Empty", "", "it was cut short"), pickle_attack("NoStop", "N", "it was cut short"),
        pickle_attack("NothingAtStop", ".", "0 values on its stack"),
        pickle_attack("MuchAtStop", "NN.", "2 values on its stack"),
        pickle_attack("OpenMark", "(N.", "values on its stack"),
        pickle_attack("Protocol", "\x80\x09N.", "protocol 9"), pickle_attack("Underflow", "0.", "its stack is empty"),
        pickle_attack("UnderflowBelowMark", "N(0.", "its stack is empty"),
        pickle_attack("NoMark", "t.", "a mark is missing"), pickle_attack("Memo", "h\7.", "refers to value 7"),
        pickle_attack("AppendToNumber", "K\1Na.", "what is no list"),
        pickle_attack("SetInList", "]NNs.", "what is no dict"),
        pickle_attack("OddDict", "}(Nu.", "a key without a value"),
        pickle_attack("OddDictFromMark", "(Nd.", "a key without a value"),
        pickle_attack("TextBeyond", "X\xff\xff\xff\x7f", "it was cut short"),
        pickle_attack("TextWraps", "\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "it was cut short"),
        pickle_attack("LongLong", "\x8a\x09" + std::string(9, '\1') + ".", "an integer has 9 bytes"),
        pickle_attack("NameWithoutEnd", "c" + std::string(5000, 'a'), "a name has no end"),
        pickle_attack("BuildOnNumber", "K\1Nb.", "what is no dict"),
        pickle_attack("ManyOperations", repeated("N0", 2'000'000) + "N.", "more than 2097152 operations"),
        pickle_attack("DeepLists", state_dict(nested_lists(100)), "nested deeper than 16 levels"),
        pickle_attack("SelfContaining", pickle(self_containing()), "nested deeper than 16"),
        pickle_attack("SharedLists", pickle(shared_lists()), "more than 1048576 objects"),
        pickle_attack("ParameterWithoutTensor", state_dict(global("torch._utils", "_rebuild_parameter") + ")R"),
                      "a parameter without a tensor"),
        pickle_attack("TensorWithoutArguments", state_dict(global("torch._utils", "_rebuild_tensor_v2") + ")R"),
                      "not complete"),
        pickle_attack("NoStorage", state_dict(rebuilt_tensor("N", 0, integers({1}), integers({1}))),
                      "it has no storage"),
        pickle_attack("StorageOfNumbers",
                      state_dict(rebuilt_tensor(integers({1, 2, 3, 4, 5}) + "Q", 0, integers({1}), integers({1}))),
                      "its storage has no known type"),
        pickle_attack("MissingStorage",
                      state_dict(rebuilt_tensor(storage("FloatStorage", "9", 6), 0, integers({1}), integers({1}))),
                      "the archive has no storage '9'"),
        pickle_attack("StorageOutside",
                      state_dict(rebuilt_tensor(storage("FloatStorage", "../byteorder", 6), 0, integers({1}),
                                                integers({1}))),
                      "the archive has no storage '../byteorder'"),
        pickle_attack("StorageSize",
                      state_dict(rebuilt_tensor(storage("FloatStorage", "0", 7), 0, integers({1}), integers({1}))),
                      "its storage of 7 F32 has 24 bytes"),
        pickle_attack("StorageType",
                      state_dict(rebuilt_tensor(storage("DoubleStorage", "0", 6), 0, integers({1}), integers({1}))),
                      "its storage of 6 F64 has 24 bytes"),
        pickle_attack("StorageNegative",
                      state_dict(rebuilt_tensor(storage("FloatStorage", "0", -1), 0, integers({1}), integers({1}))),
                      "no integer of at least 0"),
        pickle_attack("StorageHuge",
                      state_dict(rebuilt_tensor(storage("FloatStorage", "0", kHugeNumel), 0, integers({1}),
                                                integers({1}))),
                      "has 24 bytes"),
        pickle_attack("ShapeOfText", state_dict(rebuilt_tensor(kStorage, 0, text("6"), integers({1}))),
                      "its shape is no tuple"),
        pickle_attack("DimOfText", state_dict(rebuilt_tensor(kStorage, 0, tuple({text("6")}), integers({1}))),
                      "no integer of at least 0"),
        pickle_attack("NegatedView",
                      state_dict(rebuilt_tensor(kStorage, 0, integers({6}), integers({1}),
                                                dict({text("neg"), "\x88"}))),
                      "a view that negates or conjugates"),
        torch_tensor_attack("ManyDims", 0, std::vector<int64_t>(17, 1), std::vector<int64_t>(17, 1),
                            "at most 16 dims"),
        torch_tensor_attack("FewStrides", 0, {2, 3}, {3}, "not as many strides as dims"),
        torch_tensor_attack("NegativeDim", 0, {-1}, {1}, "no integer of at least 0"),
        torch_tensor_attack("NegativeStride", 5, {6}, {-1}, "no integer of at least 0"),
        torch_tensor_attack("NegativeOffset", -1, {1}, {1}, "no integer of at least 0"),
        torch_tensor_attack("BeyondStorage", 0, {7}, {1}, "not all inside its storage, which has 6"),
        torch_tensor_attack("OffsetBeyond", 6, {1}, {1}, "not all inside"),
        torch_tensor_attack("OffsetOfEmptyBeyond", 7, {0}, {1}, "not all inside"),
        torch_tensor_attack("StrideBeyond", 0, {2, 3}, {4, 1}, "not all inside"),
        torch_tensor_attack("Expanded", 0, {kHugeNumel / 2}, {0}, "not all inside"),
        torch_tensor_attack("ExpandedABit", 0, {7}, {0}, "not all inside"),
        torch_tensor_attack("DimsWrap", 0, {kHugeNumel, 4}, {0, 1}, "not all inside"),
        torch_tensor_attack("StridesWrap", 0, {5}, {kHugeNumel}, "not all inside"),
        torch_tensor_attack("SumWraps", 5, {2, 2}, {INT64_MAX, INT64_MAX}, "not all inside"),
        torch_tensor_attack("ZeroHidesOverflow", 0, {kHugeNumel, kHugeNumel, 0}, {1, 1, 1}, "not all inside"),
        pickle_attack("LongName", long_names(5000, 1), "has more than 4096 bytes"),
        pickle_attack("LongNames", long_names(4000, 20'000),
                      "the names of its tensors have more than 67108864 bytes"),
        pickle_attack("ManyTensors", long_names(1, 200'000), "more than 131072 tensors"),
        pickle_attack("NameTwice", pickle(dict({text("w"), valid_tensor(), text("w"), valid_tensor()})),
                      "it appears twice")),
    [](const auto& test) { return test.param.name; });

TEST_P(TorchAttackTest, IsRefusedByName) {
  const TemporaryFolder folder;
  const std::string message = torch_error(folder / "evil.bin", GetParam().content);
  EXPECT_NE(message.find(folder / "evil.bin"), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_LT(message.size(), 500u);
}

TEST(TorchFile, MutationsNeverCrash) {
  const TemporaryFolder folder;
  const std::string whole = read_file(WEFT_SOURCE_DIR "/tests/formats/data/torch/tiny.bin", 10'000);
  std::mt19937 random(4);
  int opened = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string content = whole;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) content[random() % content.size()] = char(random());
    opened += torch_error(folder / "a.bin", content) == "opened";
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, 4000);
}

TEST(TorchShards, AnIndexJoinsFiles) {
  const TemporaryFolder folder;
  const auto write = [&](std::string_view name, std::string_view content) {
    write_file_atomically(FileSystem::real(), folder / name, content);
  };
  write("pytorch_model-00001-of-00002.bin", archive(state_dict(valid_tensor())));
  write("pytorch_model-00002-of-00002.bin", archive(pickle(dict({text("v"), valid_tensor()}))));
  write("pytorch_model.bin.index.json",
        R"({"weight_map": {"w": "pytorch_model-00001-of-00002.bin", "v": "pytorch_model-00002-of-00002.bin"}})");
  const TorchShards model(folder.path());
  EXPECT_EQ(model.entries().size(), 2u);
  std::string bytes(24, '\0');
  model.read(model.at("v"), std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, "abcdefghijklmnopqrstuvwx");
  EXPECT_THROW(model.at("u"), Error);
  write("pytorch_model.bin.index.json", R"({"weight_map": {"w": "../pytorch_model-00001-of-00002.bin"}})");
  EXPECT_THROW(TorchShards(folder.path()), Error);
}

TEST(TorchShards, ReadsWhatPyTorchWrote) {
  const TorchShards model(kTorchData + "sharded");
  const SafetensorsFile expected(kTorchData + "state_dict.safetensors");
  EXPECT_EQ(model.files().size(), 2u);
  EXPECT_EQ(model.entries().size(), 6u);
  for (const TorchEntry* entry : model.entries()) expect_same(model, *entry, expected);
}

}  // namespace
}  // namespace weft
