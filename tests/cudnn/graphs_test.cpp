// What cuDNN itself says of attention's graphs, for cards that are described to it; none has to be there.
#include <dlfcn.h>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/kernels/cuda/fused_graph_cudnn.h"

namespace weft::cuda {
namespace {

struct Card {
  std::string name;
  int capability, processors, shared_bytes;
};

// What cuDNN's own descriptions of cards say, with NVIDIA's published figures.
std::string json_of(const Card& c) {
  return fmt::format(
      R"({{"deviceVer":{},"driverVer":13000,"cudaDeviceId":0,"maxGridSize":[2147483647,65535,65535],)"
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":{},"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,)"
      R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)"
      R"("pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,)"
      R"("l2CacheSize":52428800,"totalGlobalMem":85017493504,"deviceName":"{}"}})",
      c.capability * 10, c.processors, c.shared_bytes, c.name);
}

const Card kA100{"A100", 80, 108, 166912}, kL40{"L40", 89, 142, 101376}, kH100{"H100", 90, 132, 232448},
    kB200{"B200", 100, 148, 232448};

struct Asked {
  std::string name;
  FusedKey key;
  std::vector<Card> takes, refuses;
};

std::vector<Asked> all_asked() {
  FusedKey key{.is_causal = true, .type = DType::bf16, .sequences = 4, .queries = 1024, .keys = 1024};
  key.heads = key.row_heads = 32, key.kv_heads = key.row_kv_heads = 8, key.dim = key.value_dim = 128,
  key.lse_stride = 4096;
  const std::vector<Card> cards{kA100, kL40, kH100, kB200};
  std::vector<Asked> all;
  const auto ask = [&](const std::string& name, const auto& change, std::vector<Card> takes,
                       std::vector<Card> refuses = {}) {
    FusedKey changed = key;
    change(changed);
    all.push_back({name, changed, std::move(takes), std::move(refuses)});
  };
  const auto backward = [](FusedKey& k) { k.is_backward = true, k.sequences = 1; };
  ask(
      "forward", [](FusedKey&) {}, cards);
  ask(
      "f16", [](FusedKey& k) { k.type = DType::f16; }, cards);
  ask(
      "dim_64", [](FusedKey& k) { k.dim = k.value_dim = 64; }, cards);
  ask(
      "dim_80", [](FusedKey& k) { k.dim = k.value_dim = 80; }, cards);
  ask(
      "all_see_all", [](FusedKey& k) { k.is_causal = false, k.keys = 2048; }, cards);
  ask(
      "ragged", [](FusedKey& k) { k.is_ragged = true; }, cards);
  ask(
      "backward", [&](FusedKey& k) { backward(k); }, cards);
  ask(
      "backward_of_gpt2", [&](FusedKey& k) { backward(k), k.dim = k.value_dim = 64, k.heads = k.kv_heads = 12; },
      cards);
  ask(
      "backward_of_some_heads", [&](FusedKey& k) { backward(k), k.heads = 4, k.kv_heads = 1; }, cards);
  ask(
      "backward_all_see_all", [&](FusedKey& k) { backward(k), k.is_causal = false, k.keys = 2048; }, cards);
  ask(
      "window", [](FusedKey& k) { k.window = 256; }, cards);
  ask(
      "window_ragged", [](FusedKey& k) { k.window = 256, k.is_ragged = true; }, cards);
  ask(
      "backward_window", [&](FusedKey& k) { backward(k), k.window = 256; }, cards);
  ask("latent", [](FusedKey& k) { k.dim = 192, k.kv_heads = k.row_kv_heads = 32; }, {kH100, kB200});
  ask("backward_latent", [&](FusedKey& k) { backward(k), k.dim = 192, k.kv_heads = k.row_kv_heads = 32; }, {kH100});
  // Elsewhere sums of ragged gradients have no fixed order.
  ask("backward_ragged", [&](FusedKey& k) { backward(k), k.is_ragged = true, k.sequences = 4; }, {kH100},
      {kA100, kL40});
  ask("backward_dim_256", [&](FusedKey& k) { backward(k), k.dim = k.value_dim = 256; }, {kH100}, {kA100, kL40});
  return all;
}

class CudnnGraphTest : public testing::TestWithParam<Asked> {
 protected:
  // A driver that is there is used; else one that only has the names of its functions.
  static void SetUpTestSuite() {
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) dlopen(WEFT_CUDA_DRIVER, RTLD_NOW | RTLD_GLOBAL);
  }
  static size_t ways(const FusedKey& key, const Card& card) {
    return fused_graph(key).configurations(cudnn_device(std::string_view(json_of(card)))).size();
  }
};
INSTANTIATE_TEST_SUITE_P(Keys, CudnnGraphTest, testing::ValuesIn(all_asked()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudnnGraphTest, IsTaken) {
  for (const Card& card : GetParam().takes) EXPECT_GT(ways(GetParam().key, card), 0u) << card.name;
  for (const Card& card : GetParam().refuses) EXPECT_EQ(ways(GetParam().key, card), 0u) << card.name;
}

}  // namespace
}  // namespace weft::cuda
