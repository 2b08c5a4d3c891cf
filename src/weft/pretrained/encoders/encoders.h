// Encoders: the models that are no decoders, from the folders that Hugging Face's library saves.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "weft/models/bert.h"
#include "weft/models/clip.h"
#include "weft/models/t5.h"
#include "weft/models/vit.h"
#include "weft/pretrained/encoders/named_params.h"
#include "weft/pretrained/hf_family.h"

namespace weft {

enum class EncoderKind : uint8_t { bert, t5, vit, clip };

// What config.json says; nothing when it is none of them, or no such folder.
std::optional<EncoderKind> encoder_kind(const std::string& folder);

// With this rank's part of their weights in `dtype`. The context and the groups outlive the model. Throw Error naming
// the file and the key or the tensor that is missing or out of range, UsageError where there are more ranks than
// heads.
struct EncoderUse {
  DType dtype = DType::f32;
  Partition partition = {};
};
void check_ranks(const EncoderUse& use, int64_t heads);
std::unique_ptr<Bert> open_bert(Context& context, const std::string& folder, const EncoderUse& use = {});
std::unique_ptr<T5> open_t5(Context& context, const std::string& folder, const EncoderUse& use = {});
std::unique_ptr<Vit> open_vit(Context& context, const std::string& folder, const EncoderUse& use = {});
std::unique_ptr<Clip> open_clip(Context& context, const std::string& folder, const EncoderUse& use = {});

template <class Model>
std::vector<Param*> params_of(Model& model) {
  std::vector<Param*> all;
  model.each_param([&](Param& p) { all.push_back(&p); });
  return all;
}

}  // namespace weft
