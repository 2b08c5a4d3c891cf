// Checkpoints: saved values come back bit for bit, by name; pruning keeps the newest; messages name what is wrong.
#include "weft/checkpoint/checkpoint.h"

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "checkpoint/sample_checkpoint.h"
#include "support/message_of.h"

namespace weft {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Checkpoint, ComesBackBitForBit) {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "runs/a/checkpoints");
  EXPECT_EQ(load_newest(store), -1);
  SampleModel model;
  model.set(500);
  EXPECT_EQ(model.save(store), folder / "runs/a/checkpoints/step-000500");
  EXPECT_EQ(load_newest(store), 500);
  const Checkpoint checkpoint = Checkpoint::open(store.path_of(500), Checkpoint::Check::sizes);
  EXPECT_EQ(checkpoint.read(kRecipeName), "[train]\nsteps = 5\n");
  EXPECT_EQ(checkpoint.names(kModelGroup).size(), model.weights.size());
  EXPECT_EQ(checkpoint.find(kOptimizerGroup, "m.wte")->shape, Shape({13, 8}));
  EXPECT_FALSE(checkpoint.find(kModelGroup, "m.wte"));
  const CheckpointReport report = verify_checkpoint(store.path_of(500));
  EXPECT_TRUE(report.is_valid());
  EXPECT_EQ(report.digest, checkpoint.digest());
  EXPECT_TRUE(has(report.to_text(), "every byte agrees")) << report.to_text();
}

TEST(Checkpoint, TensorsLongerThanAPieceAndFilledInPieces) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  const int64_t count = (int64_t(33) << 20) + 5;  // three pieces of 16 MiB
  std::vector<std::byte> data(static_cast<size_t>(count));
  for (size_t i = 0; i < data.size(); ++i) data[i] = std::byte(i * 2654435761u >> 13);
  CheckpointWriter writer = store.begin(1);
  const std::vector<SafetensorsInfo> infos{{"big", DType::u8, {count}}, {"small", DType::u8, {3}}};
  writer.add_tensors("model.safetensors", infos, [&](CheckpointTensorFile& file) {
    for (size_t at = 0; at < data.size(); at += 5'000'000) {
      file.write(Bytes(data).subspan(at, std::min<size_t>(5'000'000, data.size() - at)));
    }
    file.write(bytes_of("abc"));
  });
  writer.commit();
  const Checkpoint checkpoint = Checkpoint::open(store.path_of(1));
  EXPECT_EQ(checkpoint.manifest().files[0].pieces.size(), 5u);
  const Bytes stored = checkpoint.find("model", "big")->bytes;
  EXPECT_TRUE(std::equal(stored.begin(), stored.end(), data.begin(), data.end()));
  EXPECT_EQ(text_of(checkpoint.find("model", "small")->bytes), "abc");

  CheckpointWriter other = store.begin(2);
  EXPECT_THROW(other.add_tensors("model.safetensors", infos, [&](CheckpointTensorFile& f) { f.write(data); }), Error);
  EXPECT_THROW(other.add_tensors("m.safetensors", {}, [&](CheckpointTensorFile& f) { f.write(data); }), Error);
}

TEST(Checkpoint, RanksWriteFilesOfTheirOwn) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  SampleModel model;
  model.set(3);
  CheckpointWriter first = store.begin(3);
  std::string records;
  {
    CheckpointWriter second = store.join(3);
    second.add_tensors("model-1.safetensors", std::span(model.weights).subspan(2));
    records = second.records();
    EXPECT_THROW(second.commit(), Error);
  }
  first.add_tensors("model-0.safetensors", std::span(model.weights).first(2));
  first.adopt(records);
  EXPECT_THROW(first.adopt(records), Error) << "twice the same file";
  EXPECT_THROW(first.adopt("[1]"), Error);
  first.commit();
  SampleModel loaded;
  const Checkpoint checkpoint = Checkpoint::open(store.path_of(3));
  checkpoint.load("model", loaded.weights);
  EXPECT_EQ(
      std::memcmp(loaded.weights[3].tensor.raw(), model.weights[3].tensor.raw(), model.weights[3].tensor.bytes()), 0);
  EXPECT_EQ(
      std::memcmp(loaded.weights[0].tensor.raw(), model.weights[0].tensor.raw(), model.weights[0].tensor.bytes()), 0);
}

TEST(Checkpoint, LoadingNamesTensorShapesAndDtypes) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  SampleModel model;
  model.set(1);
  model.save(store);
  const Checkpoint checkpoint = Checkpoint::open(store.path_of(1));
  const auto load = [&](std::vector<NamedTensor> list, LoadOptions options = {}) {
    return message_of([&] { checkpoint.load("model", list, options); });
  };
  Allocator& a = model.allocator;
  EXPECT_TRUE(has(load({{"wte", a.empty(DType::f32, {13, 9})}}),
                  "model tensor 'wte' has shape [13, 8], but the model expects [13, 9]"));
  EXPECT_TRUE(has(load({{"wte", a.empty(DType::bf16, {13, 8})}}), "model tensor 'wte' is f32, but bf16 is expected"));
  EXPECT_TRUE(has(load({{"wet", a.empty(DType::f32, {13, 8})}}), "has no model tensor 'wet'; did you mean wte?"));
  EXPECT_TRUE(has(load({{"wte", a.empty(DType::f32, {13, 8})}}),
                  "has 4 model tensors that the model does not, the first is 'h.0.attn'"));
  EXPECT_EQ(load({{"wte", a.empty(DType::f32, {13, 8})}}, {.allow_unused = true}), "nothing was thrown");
  EXPECT_EQ(load({{"new", a.empty(DType::f32, {1})}}, {.allow_missing = true, .allow_unused = true}),
            "nothing was thrown");
}

TEST(Checkpoint, KeepsTheNewestAndReplacesTheSameStep) {
  const TemporaryFolder folder;
  std::vector<std::string> lines;
  CheckpointStore store(folder.path(), {.keep = 2, .log = [&](const std::string& line) { lines.push_back(line); }});
  SampleModel model;
  for (const int64_t step : {100, 200, 300}) {
    model.set(step);
    model.save(store);
  }
  EXPECT_EQ(store.list(), (std::vector<std::string>{store.path_of(300), store.path_of(200)}));
  model.save(store);  // step 300 again
  EXPECT_EQ(load_newest(store), 300);
  model.set(250);  // a run wound back: 300 is not in the way
  model.save(store);
  EXPECT_EQ(store.list(), (std::vector<std::string>{store.path_of(300), store.path_of(250), store.path_of(200)}));
  EXPECT_EQ(list_folder(FileSystem::real(), folder.path()).size(), 3u);
  EXPECT_TRUE(lines.empty()) << lines[0];
}

TEST(Checkpoint, LeftoversAreIgnoredAndCleaned) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  SampleModel model;
  model.set(100);
  model.save(store);
  for (const char* name : {"step-000200.partial/model.safetensors", "step-000050.trash/x", "step-x/y", "other/z"}) {
    make_folders(FileSystem::real(), parent_of(folder / name));
    write_file_atomically(FileSystem::real(), folder / name, "junk");
  }
  EXPECT_EQ(load_newest(store), 100);
  {
    const CheckpointWriter writer = store.begin(300);
    EXPECT_EQ(list_folder(FileSystem::real(), folder.path()),
              (std::vector<std::string>{"other", "step-000100", "step-000300.partial", "step-x"}));
  }
  EXPECT_FALSE(exists(FileSystem::real(), folder / "step-000300.partial")) << "removed without commit";
}

// Between the two renames of a replacement, the old checkpoint has another name and is still found.
TEST(Checkpoint, AReplacedCheckpointIsFoundAfterACrash) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  SampleModel model;
  model.set(100);
  model.save(store);
  rename_path(FileSystem::real(), store.path_of(100), store.path_of(100) + ".replaced");
  EXPECT_EQ(load_newest(store), 100);
  { const CheckpointWriter writer = store.begin(200); }
  EXPECT_EQ(load_newest(store), 100) << "only a newer valid checkpoint ends it";
  model.set(200);
  model.save(store);
  EXPECT_EQ(store.list(), std::vector<std::string>{store.path_of(200)});
}

TEST(Checkpoint, AFullDiskIsRefusedUpFront) {
  const TemporaryFolder folder;
  FaultyFileSystem fs;
  CheckpointStore store(folder.path(), {}, fs);
  SampleModel model;
  model.set(100);
  model.save(store);
  fs.pretend_free_bytes(1000);
  model.set(200);
  const std::string message = message_of([&] { model.save(store); });
  const uint64_t needed =
      CheckpointStore::bytes_of(model.weights) + CheckpointStore::bytes_of(model.moments) + (1 << 20);
  EXPECT_TRUE(has(message, fmt::format("checkpoint step-000200 needs {} bytes", needed))) << message;
  EXPECT_TRUE(has(message, folder.path()) && has(message, "only 1000 ")) << message;
  EXPECT_EQ(list_folder(fs, folder.path()), std::vector<std::string>{"step-000100"});
  fs.pretend_free_bytes(1 << 30);
  model.save(store);
  EXPECT_EQ(load_newest(store), 200) << "space came back";
}

TEST(Manifest, RefusesHostileText) {
  Manifest manifest{.step = 1, .files = {{.name = "a", .pieces = {{"(file)", 5, digest_of(bytes_of("abcde"))}}}}};
  const std::string good = to_json_text(manifest);
  EXPECT_EQ(parse_manifest(good, "m").files[0].bytes(), 5u);
  for (const std::string name : {"../a", "/etc/passwd", "a/b", ".hidden", "", "manifest.json", "a\\b"}) {
    manifest.files[0].name = name;
    EXPECT_TRUE(has(message_of([&] { parse_manifest(to_json_text(manifest), "m"); }), "not a plain file name"))
        << name;
  }
  manifest.files[0].name = "a";
  manifest.files[0].pieces = {
      {"x", uint64_t(1) << 62, {}}, {"y", uint64_t(1) << 62, {}}, {"z", uint64_t(1) << 63, {}}};
  EXPECT_THROW(parse_manifest(to_json_text(manifest), "m"), Error);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= char(1 << bit % 8);
    EXPECT_THROW(parse_manifest(bad, "m"), Error) << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(parse_manifest(std::string_view(good).substr(0, size), "m"), Error) << size;
  }
}

}  // namespace
}  // namespace weft
