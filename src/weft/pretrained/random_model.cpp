// random_model: parameters that are made when they are read.
#include "weft/pretrained/random_model.h"

#include <unordered_map>

#include "weft/base/philox.h"
#include "weft/text/byte_tokenizer.h"

namespace weft {
namespace {

class RandomSource final : public ModelSource {
 public:
  RandomSource(std::string name, const ModelConfig& config)
      : ModelSource(std::move(name), SourceKind::random, config), names_(names_of(config)) {
    Decoder shapes(config);
    for (const Param* p : shapes.params()) inits_.emplace(p->name, p->init);
    for (const RouterBias* b : shapes.router_biases()) inits_.emplace(b->bias.name, b->bias.init);
  }
  const std::vector<ParamNames>& names() const override { return names_; }
  std::unique_ptr<Tokenizer> tokenizer() const override { return std::make_unique<ByteTokenizer>(); }
  std::optional<DType> dtype_of(const std::string&) const override { return DType::f32; }
  std::optional<RowsOfBlocks> blocks_of(const std::string&) const override { return {}; }

  void read(const std::string& param, int64_t first, std::span<float> out) const override {
    const Init& init = inits_.at(param);
    const uint64_t name = name_hash(param);
    for (size_t i = 0; i < out.size(); ++i) out[i] = init.value(0, name, uint64_t(first) + uint64_t(i));
  }

 private:
  std::vector<ParamNames> names_;
  std::unordered_map<std::string, Init> inits_;
};

}  // namespace

std::unique_ptr<ModelSource> random_model(std::string name, const ModelConfig& config) {
  return std::make_unique<RandomSource>(std::move(name), config);
}

}  // namespace weft
