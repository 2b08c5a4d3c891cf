// The corpus of the fuzz targets, run without a fuzzer: every file, its beginnings, and small changes of it.
#include <filesystem>
#include <random>

#include "fuzz/targets.h"
#include "weft/base/file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = WEFT_SOURCE_DIR;

struct Target {
  std::string name;
  void (*run)(Bytes);
  std::vector<std::string> more = {};  // folders of other tests whose files are good seeds
};

class FuzzCorpusTest : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(
    Targets, FuzzCorpusTest,
    testing::Values(Target{"safetensors", fuzz_safetensors}, Target{"shard_index", fuzz_shard_index},
                    Target{"gguf", fuzz_gguf}, Target{"torch", fuzz_torch, {"tests/formats/data/torch"}},
                    Target{"blocks", fuzz_blocks}, Target{"config", fuzz_config}, Target{"quantized", fuzz_quantized},
                    Target{"tokenizer", fuzz_tokenizer}, Target{"import", fuzz_import, {"tests/plan/data/imports"}},
                    Target{"published", fuzz_published},
                    Target{"jinja", fuzz_jinja, {"tests/text/data/chat_templates"}}, Target{"trace", fuzz_trace},
                    Target{"form", fuzz_form}, Target{"message", fuzz_message}),
    [](const auto& test) { return test.param.name; });

TEST_P(FuzzCorpusTest, EveryFileIsReadOrRefused) {
  std::vector<fs::path> folders = {kRoot / "tests/fuzz/corpus" / GetParam().name};
  for (const std::string& folder : GetParam().more) folders.push_back(kRoot / folder);
  std::mt19937 random(1);
  int num_files = 0;
  for (const fs::path& folder : folders) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string content = read_file(entry.path().string(), 1 << 20);
      const Bytes bytes = bytes_of(content);
      GetParam().run(bytes);
      for (size_t part = 0; part < 16; ++part) GetParam().run(bytes.first(bytes.size() * part / 16));
      for (int i = 0; i < 32 && !content.empty(); ++i) {
        std::string changed = content;
        changed[random() % changed.size()] = char(random());
        GetParam().run(bytes_of(changed));
      }
      ++num_files;
    }
  }
  EXPECT_GT(num_files, 0);
}

}  // namespace
}  // namespace weft
