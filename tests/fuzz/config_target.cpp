// A model's config.json from outside.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/pretrained/hf_family.h"

namespace weft {

void fuzz_config(Bytes input) {
  expect_errors_only([&] {
    const HfConfig config = parse_hf_config(text_of(input), "config.json");
    const ModelConfig& model = config.model;
    if (!config.family || model.layers < 1 || model.heads < 1 || model.vocab < 1) std::abort();
  });
}

}  // namespace weft
