// Export of codes: weights of a Hugging Face folder in 8 or 4 bits, as other programs read them too.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/base/machine.h"
#include "weft/base/thread_team.h"
#include "weft/formats/safetensors.h"
#include "weft/kernels/block_matrix.h"
#include "weft/pretrained/assembled.h"

namespace weft {

// int8 and fp8: of compressed-tensors, "int-quantized" and "float-quantized", with a scale to each output; nf4: of
// bitsandbytes, with one to 64 neighbours. The numbers are those that `hold_blocks` rounds the same weights to, but
// of nf4 whose rows are no multiple of 64. mxfp4: of gpt-oss, stacks of experts with a power of two to 32 inputs.
class CodedWeights {
 public:
  // Those of the model's tensors that are matrices [outputs, inputs] which only products read, but for the head; of
  // mxfp4 those that their names call codes of a stack. Throws Error when there is none, or one has no whole blocks.
  // `tensors` outlives this.
  CodedWeights(BlockType type, const ModelConfig& config, const std::vector<AssembledTensor>& tensors);

  bool has(size_t tensor) const { return is_coded_[tensor]; }
  // What is written in place of a weight.
  std::vector<SafetensorsInfo> infos_of(size_t tensor) const;
  // Gives their bytes, in that order. Throws Error for values that are not finite.
  void encode(size_t tensor, std::span<const float> values, FunctionRef<void(Bytes)> write);
  // What config.json says of it.
  nlohmann::json quantization_config() const;
  // Of weights that stay floats although products alone read them, for people.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string quant_state_of(size_t tensor) const;

  ThreadTeam team_{usable_cores()};
  BlockType type_;
  const std::vector<AssembledTensor>& tensors_;
  std::vector<bool> is_coded_;
  std::vector<std::string> kept_;  // modules with a matrix that stays
  std::vector<std::string> notes_;
};

}  // namespace weft
